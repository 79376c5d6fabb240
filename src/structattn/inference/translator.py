"""From lines of one language to lines of another, with trained models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.data.batching.spelled_words import spelt_lines
from structattn.data.parallel.parallel_side import Sides
from structattn.data.tokenization.tokenizers import split_line
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.decoding import (
    BeamSearch,
    DecodingStart,
    Ensemble,
    Hypothesis,
    NoLengthPenalty,
    Sampling,
    Stepper,
    add_spelling_score,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    map_in_batches,
    max_target_lengths,
    pad_sequences,
    sample,
    start_translation,
    you_2020,
)
from structattn.inference.pair_scorer import ids_of, least
from structattn.inference.unknown_words import Incomplete, Sources, Unknown
from structattn.models import EncoderDecoder
from structattn.support.errors import DataError
from structattn.support.seeds import derived_seed
from structattn.support.special_tokens import EOS, UNK
from structattn.tasks.translation.predictions import spelt_source

SEARCHES: Mapping[str, Callable[..., BeamSearch]] = MappingProxyType(
    {"fairseq": fairseq, "you-2020": you_2020, "dusell-chiang-2024": dusell_chiang_2024}
)
"""Ways to search by name, each a function of the size of the beam."""

SOURCE_LINES, PREFIXES = Path("source"), Path("prefixes")  # what messages call what is translated, and its beginnings


@dataclass(frozen=True)
class Translation:
    """One translation of a line.

    Args:
        text: the line in the target language.
        score: what it was ranked by.
        log_probability: of its tokens, nats.
    """

    text: str
    score: float
    log_probability: float


class _Line(NamedTuple):
    """A line to be translated, normalised, its ids, and those that its translation begins with."""

    text: str
    ids: list[int]
    prefix: list[int]


@dataclass(frozen=True)
class Draws:
    """Chance in the place of search. What is drawn for a line depends on the seed, the line, and how often, no more.

    Args:
        sampling: what tokens are drawn from.
        seed: of all draws.
    """

    sampling: Sampling
    seed: int

    def __call__(
        self,
        model: Stepper,
        start: DecodingStart,
        limits: Tensor,
        lines: Sequence[str],
        count: int,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """``count`` hypotheses of each sentence, in the order in which they were drawn."""
        device = start.tokens.device
        drawn = [
            sample(
                model, start, limits, [self._generator(device, line, number) for line in lines], self.sampling, prefixes
            )
            for number in range(count)
        ]
        return [list(of_one) for of_one in zip(*drawn, strict=True)]

    def _generator(self, device: torch.device, line: str, number: int) -> torch.Generator:
        return torch.Generator(device).manual_seed(derived_seed(self.seed, "translation", line, number))


@dataclass(frozen=True)
class Translator:
    """Translates lines; each one's translations do not depend on the others.

    Args:
        models: in evaluation mode; several predict as one, by the mean of their probabilities.
        sides: how lines become ids, and back.
        search: how to look for the best.
        limits: how many tokens a target may have, <eos> counted, from the number of those of its source.
        batch_tokens: padded source tokens decoded at once, which bounds the memory.
        unknown: what stands where a model predicts <unk>: that, the attended source word, or, of models that spell, a
            spelling. Spelling is a second stage: all hypotheses in the beam are spelt, and ranked by what their words
            and their characters come to (Luong & Manning 2016).
        draws: what draws hypotheses, instead of a search for the best.
    """

    models: tuple[EncoderDecoder, ...]
    sides: Sides
    search: BeamSearch
    limits: Callable[[Tensor], Tensor] = max_target_lengths
    batch_tokens: int = 2048
    unknown: Unknown = "keep"
    draws: Draws | None = None

    def __call__(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        advance: Callable[[int], object] = lambda count: None,
        first: int = 1,
        prefixes: Sequence[str] | None = None,
        names: tuple[Path, Path] = (SOURCE_LINES, PREFIXES),
    ) -> list[list[Translation]]:
        """At most ``n_best`` translations of each line; an empty line has an empty one, or its prefix alone.

        The best is first; of those that are drawn, the one drawn first.

        Args:
            lines: as they stand in a file.
            n_best: how many.
            advance: told how many lines more are done.
            first: the number of the first line, for messages.
            prefixes: what the translation of each line begins with; an empty one is none. Its probability counts, but
                for that of an empty line. Its last word may go on where symbols do not mark the ends of words. A prefix
                that is as long as the limit of a translation raises it, so that <eos> has its place.
            names: what messages call the lines and the prefixes.

        Raises:
            DataError: a line or a prefix has no encoding, or is too long for the model; or there are not as many
                prefixes as lines, or one holds a symbol that the vocabulary lacks.
        """
        given = [""] * len(lines) if prefixes is None else prefixes
        if len(given) != len(lines):
            number = first + min(len(given), len(lines))
            raise DataError(names[1], "there is no such line; expected one for each line to translate", number)
        read = [
            self._line(line, prefix, number, names)
            for number, (line, prefix) in enumerate(zip(lines, given, strict=True), start=first)
        ]

        def decode(batch: list[_Line]) -> list[list[Translation]]:
            found = self._decoded(batch, n_best)
            advance(len(batch))
            return found

        lengths = [max(len(line.ids), len(line.prefix)) + 1 for line in read]
        return map_in_batches(read, lengths, self.batch_tokens, decode)

    def _line(self, line: str, prefix: str, number: int, names: tuple[Path, Path]) -> _Line:
        source, target = self.sides.source, self.sides.target
        text, beginning = source.normalization(line), target.normalization(prefix)
        ids = ids_of(source, text, least(model.longest_source for model in self.models), names[0], number)
        forced = ids_of(target, beginning, least(model.longest_target for model in self.models), names[1], number)
        if UNK in forced:
            raise DataError(names[1], f"{beginning!r:.60} holds what the target vocabulary lacks", number)
        return _Line(text, ids, forced)

    def _decoded(self, lines: list[_Line], n_best: int) -> list[list[Translation]]:
        there = [index for index, line in enumerate(lines) if line.ids]
        results = [[Translation(self.sides.target.decode(line.prefix), 0.0, 0.0)] for line in lines]
        if there:
            chosen = [lines[index] for index in there]
            sources, prefixes = self._sources(chosen), [line.prefix for line in chosen]
            model, start = self._start(sources)
            forced = torch.tensor([len(prefix) + 1 for prefix in prefixes], device=sources.lengths.device)
            most = least(model.longest_target for model in self.models)
            limits = torch.maximum(self.limits(sources.lengths - 1), forced * (forced > 1)).clamp(min=0, max=most)
            if self.draws is None:
                kept = self.search.beam_size if self.unknown == "spell" else n_best
                found = beam_search(model, start, limits, self.search, kept, prefixes)
            else:
                found = self.draws(model, start, limits, [line.text for line in chosen], n_best, prefixes)
            for index, translations in zip(there, self._translations(sources, found), strict=True):
                results[index] = translations[:n_best]
        return results

    def _sources(self, lines: list[_Line]) -> Sources:
        device = next(self.models[0].parameters()).device
        ids, lengths = pad_sequences([[*line.ids, EOS] for line in lines], device)
        words = [split_line("word", line.text) for line in lines] if self.sides.level == "word" else []
        speller, numbers = self.sides.source.speller, [line.ids for line in lines]
        known = None if speller is None else spelt_lines(words, numbers, ids.shape[1], speller).to(device)
        return Sources(tuple(spelt_source(model, ids, known) for model in self.models), lengths, words)

    def _start(self, sources: Sources) -> tuple[Stepper, DecodingStart]:
        starts = [
            start_translation(model, ids, sources.lengths, rare)
            for model, (ids, rare) in zip(self.models, sources.read, strict=True)
        ]
        if len(starts) == 1:
            return self.models[0], starts[0]
        ensemble = Ensemble(self.models)
        return ensemble, ensemble.start(starts)

    def _translations(self, sources: Sources, found: list[list[Hypothesis]]) -> list[list[Translation]]:
        """The hypotheses of each sentence as texts, the best first."""
        if self.unknown == "keep":
            return [[self._translation(hypothesis) for hypothesis in of_one] for of_one in found]
        places = [(i, j) for i, of_one in enumerate(found) for j, each in enumerate(of_one) if UNK in each.tokens]
        incomplete = Incomplete(self.models, sources, [i for i, _ in places], [found[i][j] for i, j in places])
        completed = dict(zip(places, self._completed(incomplete) if places else [], strict=True))
        whole = [
            [completed.get((i, j)) or (each, []) for j, each in enumerate(of_one)] for i, of_one in enumerate(found)
        ]
        if self.unknown == "spell" and self.draws is None:
            whole = [sorted(of_one, key=lambda one: (not one[0].finished, -one[0].score)) for of_one in whole]
        return [[self._translation(*one) for one in of_one] for of_one in whole]

    def _completed(self, incomplete: Incomplete) -> list[tuple[Hypothesis, list[str]]]:
        """Each hypothesis, scored anew where it is spelt, and the words that take the places of <unk>."""
        if self.unknown == "copy":
            return list(zip(incomplete.hypotheses, incomplete.copied(), strict=True))
        speller = self.sides.target.speller
        assert speller is not None
        found = incomplete.spelt(speller, self.search.beam_size)
        rule = NoLengthPenalty() if self.draws is not None else self.search.ranking_penalty
        return [
            (add_spelling_score(hypothesis, sum(p for _, p in words), rule), [word for word, _ in words])
            for hypothesis, words in zip(incomplete.hypotheses, found, strict=True)
        ]

    def _translation(self, hypothesis: Hypothesis, words: Sequence[str] = ()) -> Translation:
        """The text, in which words stand in the places of <unk>, if there are any."""
        text = self.sides.target.decode(hypothesis.text)
        if words:
            rest = iter(words)
            text = " ".join(next(rest) if word == UNKNOWN_SYMBOL else word for word in text.split(" "))
        return Translation(text, hypothesis.score, hypothesis.log_probability)
