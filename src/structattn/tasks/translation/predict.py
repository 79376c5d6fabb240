"""Translation of lines with trained models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.decoding import (
    BeamSearch,
    BeamTree,
    DecodingStart,
    Hypothesis,
    NoLengthPenalty,
    Stepper,
    add_spelling_score,
    beam_search,
    beam_search_tree,
    dusell_chiang_2024,
    fairseq,
    gnmt,
    map_in_batches,
    max_target_lengths,
    pad_sequences,
    start_translation,
    vaswani_2017,
    weights_unchanged,
    you_2020,
)
from structattn.decoding.beam_search import Forbid
from structattn.decoding.ensemble import start_together
from structattn.decoding.sampling import SeededSampling
from structattn.models import EncoderDecoder
from structattn.support.devices import Precision, autocast, device_of
from structattn.support.errors import DataError, quoted
from structattn.support.progress import Advance, show_nothing
from structattn.support.special_tokens import EOS, UNK
from structattn.tasks.translation.attended import Alignment, EncodedSources, attended_positions, word_alignment
from structattn.tasks.translation.constraints import Constraint
from structattn.tasks.translation.pairs import PairEncoder
from structattn.tasks.translation.predictions import spelled_source
from structattn.tasks.translation.unknown_words import Unknown, UnknownWords
from structattn.text.batching.corruption import unknown_words_of_lines
from structattn.text.folders.parallel import ParallelSides
from structattn.text.tokenization.tokenizers import split_line
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL

SEARCHES: Mapping[str, Callable[..., BeamSearch]] = MappingProxyType(
    {
        "fairseq": fairseq,
        "gnmt": gnmt,
        "vaswani-2017": vaswani_2017,
        "you-2020": you_2020,
        "dusell-chiang-2024": dusell_chiang_2024,
    }
)
"""Beam search presets by name; each is a function of the beam size and, but for the last, of the length penalty."""

SOURCE_LINES, PREFIXES = Path("source"), Path("prefixes")  # in messages, in place of the paths of files


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Args:
        score: by which it was ranked.
        log_probability: of its tokens, in nats; both are 0 for an empty line, whose translation is empty by rule, where
            ``score`` has what the model gives <eos> after an empty source. No pair with an empty side is trained on.
        alignment: of its words with those of the line, where it was asked for; see ``word_alignment``.
        finished: whether it ends in <eos>; otherwise it was cut at the maximum length.
    """

    text: str
    score: float
    log_probability: float
    alignment: Alignment | None = None
    finished: bool = True


@dataclass(frozen=True)
class SearchedLine:
    """The translation of a line, and the beam search that found it.

    Args:
        ids: of its tokens, without <eos>.
        replacements: of its <unk>, one after another; none where they are kept.
        best: the index of the node of the translation.
    """

    translation: Translation
    ids: tuple[int, ...]
    replacements: tuple[str, ...]
    tree: BeamTree
    best: int


class _Line(NamedTuple):
    """A normalized line, its ids, and the ids of its translation's prefix."""

    text: str
    ids: list[int]
    prefix: list[int]


_Completed = tuple[Hypothesis, list[str]]  # a hypothesis and the words that replace its <unk>


@dataclass(frozen=True)
class Translator:
    """Translates lines; the translations of a line do not depend on the other lines.

    Args:
        models: in evaluation mode; several form an ensemble that averages probabilities.
        sides: normalization and tokenizers of both languages.
        search: settings of the beam search.
        max_lengths: maximum numbers of target tokens, <eos> included, from numbers of source tokens without <eos>.
        batch_tokens: the maximum padded number of source tokens decoded at once, which bounds the memory.
        unknown: what replaces words predicted as <unk>: "keep" them, "copy" the attended source word, or "spell" them,
            with models that have a spelling decoder. Spelling is a second stage: all hypotheses in the beam are
            spelled, and ranked by the log-probability of their words and characters (Luong & Manning 2016).
        sampling: draws hypotheses, in place of the beam search.
        batch_size: the maximum number of lines decoded at once; None: any.
        precision: of products: "float32" for that of the weights, or "bf16", by ``torch.autocast``.
        warns: whether source words outside the vocabulary are logged.
        aligns: whether translations have word alignments.
        constraint: of the outputs of the beam search, which may exceed ``max_lengths`` where it needs more tokens.
    """

    models: tuple[EncoderDecoder, ...]
    sides: ParallelSides
    search: BeamSearch
    max_lengths: Callable[[Tensor], Tensor] = max_target_lengths
    batch_tokens: int = 2048
    unknown: Unknown = "keep"
    sampling: SeededSampling | None = None
    batch_size: int | None = None
    precision: Precision = "float32"
    warns: bool = True
    aligns: bool = False
    constraint: Constraint | None = None

    def __call__(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        advance: Advance = show_nothing,
        first: int = 1,
        prefixes: Sequence[str] | None = None,
        paths: tuple[Path, Path] = (SOURCE_LINES, PREFIXES),
        numbers: Sequence[int] | None = None,
    ) -> list[list[Translation]]:
        """Return at most ``n_best`` translations of each line, the best first; samples in the order of sampling.

        Those that were cut at the maximum length come last; of a search that stops at its best translation, as
        dusell-chiang-2024 does, those that were still open are left out. The translation of an empty line is empty, or
        its prefix.

        Args:
            lines: raw lines of text.
            n_best: the number of translations of each line.
            advance: called with the number of lines that have been translated since.
            first: the number of the first line, for messages.
            prefixes: the text that the translation of each line must begin with, possibly empty. Its log-probability
                counts, except for empty lines. Its last word may be continued where tokens do not mark the ends of
                words. A prefix that is as long as the maximum length of a translation raises it by one, for <eos>.
            paths: of the files of lines and prefixes, for messages.
            numbers: of the lines, for messages; None: from ``first`` on.

        Raises:
            DataError: a line or prefix cannot be encoded, or is too long for the model; there is not one prefix for
                each line; or a prefix has out-of-vocabulary words.
        """
        beginnings = [""] * len(lines) if prefixes is None else prefixes
        if len(beginnings) != len(lines):
            number = first + min(len(beginnings), len(lines))
            raise DataError(paths[1], "missing line; expected one for each line to translate", number)
        numbers = range(first, first + len(lines)) if numbers is None else numbers
        encoded = [self._encode(*each, paths) for each in zip(lines, beginnings, numbers, strict=True)]
        if self.warns:
            self._encoder.warn_of_unknown("source", lines, [line.ids for line in encoded], paths[0], numbers)

        def translate(batch: list[_Line]) -> list[list[Translation]]:
            translations = self._translate(batch, n_best)
            advance(len(batch))
            return translations

        lengths = [max(len(line.ids), len(line.prefix)) + 1 for line in encoded]
        with self._decoding():
            return map_in_batches(encoded, lengths, self.batch_tokens, translate, self.batch_size)

    def search_tree(self, line: str, number: int = 1, path: Path = SOURCE_LINES) -> SearchedLine | None:
        """Translate one line by beam search, and return the tree of its hypotheses, too; None for an empty line.

        Raises:
            DataError: the line cannot be encoded, or is too long for the model.
        """
        encoded = self._encode(line, "", number, (path, PREFIXES))
        if not encoded.ids:
            return None
        sources = self._sources([encoded])
        limits = self._limits([encoded], sources)
        with self._decoding():
            model, start = self._start([encoded], sources)
            forbid = self._forbid([encoded], limits)
            hypotheses, tree = beam_search_tree(
                model, start, limits, self.search, self._num_hypotheses(1), forbid=forbid
            )
            ((best, words), *_), *_ = self._completed(sources, [hypotheses])
        return SearchedLine(self._translation(best, words), best.text, tuple(words), tree, tree.index(best.tokens))

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Decode batches with the same weights, in the precision."""
        device = device_of(self.models[0])
        with autocast(device, self.precision), weights_unchanged():
            yield

    @cached_property
    def _encoder(self) -> PairEncoder:
        return PairEncoder(self.models, self.sides)

    def _encode(self, line: str, prefix: str, number: int, paths: tuple[Path, Path]) -> _Line:
        text, beginning = self.sides.source.normalized(line), self.sides.target.normalized(prefix)
        ids = self._encoder.source_ids(text, paths[0], number)
        forced = self._encoder.target_ids(beginning, paths[1], number)
        if UNK in forced:
            raise DataError(paths[1], f"{quoted(beginning)} has words outside the target vocabulary", number)
        least, most = self._min_length(text), self._encoder.max_target_length
        if ids and most is not None and least > most:
            reason = f"its shortest output has {least} tokens with <eos>; the model has {most} positions"
            raise DataError(paths[0], reason, number)
        return _Line(text, ids, forced)

    def _min_length(self, text: str) -> int:
        return 0 if self.constraint is None else self.constraint.min_length(text)

    def _forbid(self, lines: list[_Line], limits: Tensor) -> Forbid | None:
        return None if self.constraint is None else self.constraint.forbid([line.text for line in lines], limits)

    def _translate(self, lines: list[_Line], n_best: int) -> list[list[Translation]]:
        nothing = () if self.aligns else None
        results = [[Translation(self.sides.target.decode(line.prefix), 0.0, 0.0, nothing)] for line in lines]
        indices = [index for index, line in enumerate(lines) if line.ids]
        if indices:
            chosen = [lines[index] for index in indices]
            sources = self._sources(chosen)
            hypotheses = self._decode(chosen, sources, n_best)
            completed = [pairs[:n_best] for pairs in self._completed(sources, hypotheses)]
            alignments = iter(self._alignments(chosen, sources, completed))
            for index, pairs in zip(indices, completed, strict=True):
                results[index] = [replace(self._translation(*pair), alignment=next(alignments)) for pair in pairs]
        return results

    def _alignments(
        self, lines: list[_Line], sources: EncodedSources, completed: list[list[_Completed]]
    ) -> list[Alignment | None]:
        """Return the alignments of all hypotheses, one line after another; None where they were not asked for."""
        of_line = [(index, hypothesis) for index, pairs in enumerate(completed) for hypothesis, _ in pairs]
        if not self.aligns or not of_line:
            return [None] * len(of_line)
        sentences, hypotheses = [index for index, _ in of_line], [hypothesis for _, hypothesis in of_line]
        attended = attended_positions(self.models, sources, sentences, hypotheses)
        source, target = self.sides.source, self.sides.target
        return [
            word_alignment((source, lines[index].ids), (target, hypothesis.text), positions)
            for (index, hypothesis), positions in zip(of_line, attended, strict=True)
        ]

    def _sources(self, lines: list[_Line]) -> EncodedSources:
        device = device_of(self.models[0])
        ids, lengths = pad_sequences([[*line.ids, EOS] for line in lines], device)
        words = [split_line("word", line.text) for line in lines] if self.sides.level == "word" else []
        speller, unspelled = self.sides.source.character_tokenizer, [line.ids for line in lines]
        spelled = (
            None if speller is None else unknown_words_of_lines(words, unspelled, ids.shape[1], speller).to(device)
        )
        return EncodedSources(tuple(spelled_source(model, ids, spelled) for model in self.models), lengths, words)

    def _decode(self, lines: list[_Line], sources: EncodedSources, n_best: int) -> list[list[Hypothesis]]:
        prefixes, limits = [line.prefix for line in lines], self._limits(lines, sources)
        model, start = self._start(lines, sources)
        if self.sampling is not None:
            return self.sampling(model, start, limits, [line.text for line in lines], n_best, prefixes)
        count, forbid = self._num_hypotheses(n_best), self._forbid(lines, limits)
        found = beam_search(model, start, limits, self.search, count, prefixes, forbid=forbid)
        return [
            [each for each in of_line if each.finished or len(each.tokens) >= limit]
            for of_line, limit in zip(found, limits.tolist(), strict=True)
        ]

    def _limits(self, lines: list[_Line], sources: EncodedSources) -> Tensor:
        """Return the maximum length of each translation, with room for its prefix and <eos>, and what is required."""
        with_eos = [max(len(line.prefix) + 1 if line.prefix else 0, self._min_length(line.text)) for line in lines]
        least = torch.tensor(with_eos, device=sources.lengths.device)
        limits = torch.maximum(self.max_lengths(sources.lengths - 1), least)
        return limits.clamp(min=0, max=self._encoder.max_target_length)

    def _num_hypotheses(self, n_best: int) -> int:
        return self.search.beam_size if self.unknown == "spell" else n_best

    def _start(self, lines: list[_Line], sources: EncodedSources) -> tuple[Stepper, DecodingStart]:
        starts = [
            start_translation(model, ids, sources.lengths, rare)
            for model, (ids, rare) in zip(self.models, sources.inputs, strict=True)
        ]
        return start_together(self.models, starts)

    def _completed(self, sources: EncodedSources, found: list[list[Hypothesis]]) -> list[list[_Completed]]:
        """Return the hypotheses of each sentence with the words that replace their <unk>, the best first."""
        completed: list[list[_Completed]] = [[(hypothesis, []) for hypothesis in of_line] for of_line in found]
        positions = [(i, j) for i, of_line in enumerate(found) for j, each in enumerate(of_line) if UNK in each.tokens]
        if self.unknown != "keep" and positions:
            hypotheses = [found[i][j] for i, j in positions]
            unknown = UnknownWords(self.models, sources, [i for i, _ in positions], hypotheses)
            for (i, j), pair in zip(positions, self._complete(unknown), strict=True):
                completed[i][j] = pair
        if self.unknown == "spell" and self.sampling is None:
            completed = [sorted(pairs, key=lambda pair: (not pair[0].finished, -pair[0].score)) for pairs in completed]
        return completed

    def _complete(self, unknown: UnknownWords) -> list[_Completed]:
        """Return each hypothesis, with a new score if its words are spelled, and the words that replace its <unk>."""
        if self.unknown == "copy":
            return list(zip(unknown.hypotheses, unknown.copied(), strict=True))
        speller = self.sides.target.character_tokenizer
        assert speller is not None
        spelled = unknown.spelled(speller, self.search.beam_size, self.sides.target.vocabulary.id_of)
        penalty = NoLengthPenalty() if self.sampling is not None else self.search.ranking_penalty
        return [
            (add_spelling_score(hypothesis, sum(log_p for _, log_p in words), penalty), [word for word, _ in words])
            for hypothesis, words in zip(unknown.hypotheses, spelled, strict=True)
        ]

    def _translation(self, hypothesis: Hypothesis, words: list[str]) -> Translation:
        """Return the text of a hypothesis, with ``words`` in place of its <unk>, if there are any."""
        text = self.sides.target.decode(hypothesis.text)
        if words:
            rest = iter(words)
            text = " ".join(next(rest) if word == UNKNOWN_SYMBOL else word for word in text.split(" "))
        return Translation(text, hypothesis.score, hypothesis.log_probability, finished=hypothesis.finished)
