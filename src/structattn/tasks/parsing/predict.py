"""Constituency parsing with trained models: the translation of a sentence into its linearized tree.

Where symbols of trees are tokens, the beam search is constrained to trees over the words of the sentence; otherwise, or
if that is switched off, malformed outputs are repaired.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from structattn.settings.evaluation import EvaluationSettings
from structattn.support.errors import UsageError
from structattn.tasks.loaded import TEXTS, LoadedRun, Prediction, Predictor
from structattn.tasks.parsing.constraint import TreeConstraint
from structattn.tasks.parsing.prepare import TREE_TAGS
from structattn.tasks.parsing.trees import Tags, Tree, bracketed, repair
from structattn.tasks.translation.predict import SOURCE_LINES, Translation, Translator
from structattn.tasks.translation.translators import make_translator


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
    tags: Tags

    def __call__(
        self,
        sentences: Sequence[Sequence[str]],
        advance: Callable[[int], object] = lambda count: None,
        first: int = 1,
        path: Path = SOURCE_LINES,
    ) -> list[Parse | None]:
        """Return the best tree of each sentence; None for a sentence without words.

        Raises:
            DataError: a sentence cannot be encoded or is too long for the model, or its shortest tree is.
        """
        translations = self.translator([" ".join(words) for words in sentences], 1, advance, first, paths=(path, path))
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
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        parses = parser([treebank_words(line) for line in inputs], advance, first, path)
        return [
            Prediction("")
            if parse is None
            else Prediction(bracketed(parse.tree), parse.log_probability, repaired=parse.malformed)
            for parse in parses
        ]

    return predict
