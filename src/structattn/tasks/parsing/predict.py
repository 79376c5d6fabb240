"""Constituency parsing with trained models: the translation of a sentence into its linearized tree.

Where symbols of trees are tokens, the beam search is constrained to trees over the words of the sentence; otherwise, or
if that is switched off, malformed outputs are repaired.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from structattn.settings.choices import TreeTags
from structattn.settings.evaluation import EvaluationSettings
from structattn.support.errors import UsageError
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Bool, Int
from structattn.support.special_tokens import CLASS_OFFSET, EOS, EOS_CLASS, FIRST_SYMBOL, class_of
from structattn.tasks.loaded import TEXTS, LoadedRun, Prediction, Predictor
from structattn.tasks.parsing.prepare import TREE_TAGS
from structattn.tasks.parsing.trees import MAX_DEPTH, Tree, bracketed, is_closing, is_opening, is_word, repair
from structattn.tasks.translation.predict import SOURCE_LINES, Translation, Translator
from structattn.tasks.translation.translators import make_translator
from structattn.text.tokenization.vocabulary import Vocabulary

_MAX_OPEN: Final = MAX_DEPTH - 1  # ``repair`` counts its own root, too
_WITHOUT_WORDS: Final = 3  # tokens of the flat tree: two brackets and <eos>


@dataclass(frozen=True)
class TreeConstraint:
    """Allows linearized trees that have the words of their line; a ``translation.constraints.Constraint``.

    Constituents are not empty, and at most ``MAX_DEPTH`` - 1 of them are open at once. A label whose opening or closing
    bracket is not in the vocabulary is never used, nor is ``<unk>``.

    Args:
        vocabulary: of the linearized trees, whose symbols are its tokens.
        tags: what stands for a word.

    Raises:
        UsageError: the vocabulary has no label with both brackets, or no symbol for a word.
    """

    vocabulary: Vocabulary
    tags: TreeTags

    def __post_init__(self) -> None:
        if not bool(self._symbols.opens.any()):
            raise UsageError("the vocabulary of the trees has no label with both brackets; expected one at least")
        if not bool(self._symbols.words.any()):
            raise UsageError("the vocabulary of the trees has no symbol for a word; expected one at least")

    def min_length(self, line: str) -> int:
        """Return the number of tokens of a flat tree over the words of a line, <eos> included."""
        return len(line.split(" ")) + _WITHOUT_WORDS

    def forbid(self, lines: Sequence[str], max_lengths: Int[Tensor, " batch"]) -> "TreeRule":
        """Return the rule of a beam search for lines of words."""
        device = max_lengths.device
        num_words = torch.tensor([len(line.split(" ")) for line in lines], device=device)
        return TreeRule(self._symbols.to(device), num_words, max_lengths)

    @cached_property
    def _symbols(self) -> "_Symbols":
        symbols = self.vocabulary.symbols
        closing = [self.vocabulary.id_of.get(f"){each[1:]}") if is_opening(each) else None for each in symbols]
        return _Symbols(
            opens=torch.tensor([partner is not None for partner in closing]),
            closes=torch.tensor([is_closing(each) for each in symbols]),
            words=torch.tensor([n >= FIRST_SYMBOL and is_word(each, self.tags) for n, each in enumerate(symbols)]),
            closing=torch.tensor([EOS if partner is None else partner for partner in closing]),
        )


@dataclass(frozen=True)
class _Symbols:
    """What each id stands for.

    Args:
        opens: opening brackets, of labels that have both.
        closes: closing brackets.
        words: symbols of words.
        closing: of an opening bracket, the id of its closing one.
    """

    opens: Bool[Tensor, " symbols"]
    closes: Bool[Tensor, " symbols"]
    words: Bool[Tensor, " symbols"]
    closing: Int[Tensor, " symbols"]

    def to(self, device: torch.device) -> "_Symbols":
        """Return the same on a device."""
        return _Symbols(*(each.to(device) for each in (self.opens, self.closes, self.words, self.closing)))


@dataclass(frozen=True)
class TreeRule:
    """The rule of a beam search for a batch of sentences; a ``Forbid``.

    Args:
        num_words: of each sentence, at least 1.
        max_lengths: the maximum numbers of tokens, <eos> included; each at least the number of words + 3.
    """

    symbols: _Symbols
    num_words: Int[Tensor, " batch"]
    max_lengths: Int[Tensor, " batch"]

    def __call__(
        self, tokens: Int[Tensor, "open beam time"], sentences: Int[Tensor, " open"], num_classes: int
    ) -> Bool[Tensor, "open beam classes"]:
        """Return the classes after which a hypothesis is not the beginning of a tree that ends in time.

        Cost: O(time + classes) for each hypothesis.

        Args:
            tokens: <bos> and the symbols so far, as this rule allows them.
            sentences: their indices in the batch.
            num_classes: of the model; class c stands for id c + 2.
        """
        opened = self.symbols.opens[tokens]
        depths = (opened.long() - self.symbols.closes[tokens].long()).cumsum(2)
        depth, length = depths[:, :, -1], tokens.shape[2] - 1
        left = self.num_words[sentences, None] - self.symbols.words[tokens].sum(2)
        spare = self.max_lengths[sentences, None] - (length + left + depth + 1)
        begins = torch.full_like(depth, length == 0, dtype=torch.bool)
        may_open = (left > 0) & (spare >= 2) & (depth < _MAX_OPEN) & ((depth > 0) | begins)
        may_add_word = (left > 0) & (depth > 0)
        may_close = ((depth > 1) | (depth == 1) & (left == 0)) & ~opened[:, :, -1]
        classes = slice(CLASS_OFFSET, CLASS_OFFSET + num_classes)
        allowed = may_open[:, :, None] & self.symbols.opens[classes]
        allowed |= may_add_word[:, :, None] & self.symbols.words[classes]
        closing = class_of(self.symbols.closing[_innermost(tokens, opened, depths)])
        allowed.scatter_(2, closing[:, :, None], may_close[:, :, None])
        allowed[:, :, EOS_CLASS] = (depth == 0) & ~begins
        return ~allowed


def _innermost(
    tokens: Int[Tensor, "open beam time"], opened: Bool[Tensor, "open beam time"], depths: Int[Tensor, "open beam time"]
) -> Int[Tensor, "open beam"]:
    """Return the bracket that the innermost open constituent begins with; <bos> where none is open.

    It is the last opening bracket after which as many constituents were open as are now.
    """
    last = (opened & (depths == depths[:, :, -1:])) * torch.arange(tokens.shape[2], device=tokens.device)
    return tokens.take_along_dim(last.amax(2, keepdim=True), 2)[:, :, 0]


def treebank_words(line: str) -> list[str]:
    """Return the words of a line, parentheses spelled -LRB- and -RRB- as in treebanks, whose trees are bracketed."""
    escaped = line.replace("(", "-LRB-").replace(")", "-RRB-").replace("\t", " ")
    return [word for word in escaped.split(" ") if word]


@dataclass(frozen=True)
class Parse:
    """A tree that a model found for a sentence.

    Args:
        tree: over exactly the words of the sentence.
        log_probability: log p(linearized tree | sentence) under the model, in nats, <eos> included unless
            an unconstrained search cut the output before it; not renormalised over what a constraint allows. None of a
            repaired tree.
    """

    tree: Tree
    log_probability: float | None

    @property
    def malformed(self) -> bool:
        """Whether the tree was made of symbols that are not the linearization of a tree of these words."""
        return self.log_probability is None


@dataclass(frozen=True)
class Parser:
    """Parses sentences; every tree has exactly the words of its sentence."""

    translator: Translator
    tags: TreeTags

    def __call__(
        self,
        sentences: Sequence[Sequence[str]],
        advance: Advance = show_nothing,
        numbers: Sequence[int] | None = None,
        path: Path = SOURCE_LINES,
    ) -> list[Parse | None]:
        """Return the best tree of each sentence; None for a sentence without words.

        Messages have the path and the number of a sentence; by default, numbers are counted from 1.

        Raises:
            DataError: a sentence cannot be encoded or is too long for the model, or its shortest tree is.
        """
        lines = [" ".join(words) for words in sentences]
        translations = self.translator(lines, 1, advance, paths=(path, path), numbers=numbers)
        return [
            self._parse(words, best) if words else None for words, best in zip(sentences, translations, strict=True)
        ]

    def _parse(self, words: Sequence[str], best: Sequence[Translation]) -> Parse:
        symbols = [symbol for translation in best for symbol in translation.text.split(" ") if symbol]
        found = repair(symbols, words, self.tags)
        return Parse(found.tree, None if found.malformed else best[0].log_probability)


def make_parser(run: LoadedRun, how: EvaluationSettings | None = None) -> Parser:
    """Return a parser with the model of a run.

    Raises:
        UsageError: the run was not trained on trees, or the search cannot be constrained although it should be.
    """
    if TREE_TAGS not in run.prepared.header.extra:
        raise UsageError(f"{run.run_dir}: was not trained on trees; see `structattn prepare trees`")
    constraint = _constraint(run, (how or run.settings.evaluation).constrained)
    return Parser(replace(make_translator([run], how), constraint=constraint), run.prepared.header.extra[TREE_TAGS])


def _constraint(run: LoadedRun, constrained: bool | None) -> TreeConstraint | None:
    level, vocabulary = run.prepared.sides.level, run.prepared.sides.target.vocabulary
    if constrained and level != "word":
        raise UsageError(f"evaluation.constrained=true needs data of level 'word'; the level of the data is {level!r}")
    if constrained is False or level != "word":
        return None
    return TreeConstraint(vocabulary, run.prepared.header.extra[TREE_TAGS])


def make_predictor(run: LoadedRun, batch_size: int = 64) -> Predictor:
    """Return a predictor of bracketed trees with the model of a run."""
    parser = make_parser(run)
    parser = replace(parser, translator=replace(parser.translator, batch_size=batch_size))

    def predict(
        inputs: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Prediction]:
        numbers = range(first, first + len(inputs))
        parses = parser([treebank_words(line) for line in inputs], advance, numbers, path)
        return [
            Prediction("")
            if parse is None
            else Prediction(bracketed(parse.tree), parse.log_probability, repaired=parse.malformed)
            for parse in parses
        ]

    return predict
