"""From lines of one language to lines of another, with trained models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from structattn.data.parallel.sides import Sides
from structattn.data.vocabulary import EOS
from structattn.decoding import (
    BeamSearch,
    Ensemble,
    Hypothesis,
    Start,
    Stepper,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    in_batches,
    length_limits,
    padded,
    translation,
    you_2020,
)
from structattn.models import EncoderDecoder

SEARCHES: Mapping[str, Callable[[int], BeamSearch]] = MappingProxyType(
    {"fairseq": fairseq, "you-2020": you_2020, "dusell-chiang-2024": dusell_chiang_2024}
)
"""Ways to search by name, each a function of the size of the beam."""


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


@dataclass(frozen=True)
class Translator:
    """Translates lines; each one's translations do not depend on the others.

    Args:
        models: in evaluation mode; several predict as one, by the mean of their probabilities.
        sides: how lines become ids, and back.
        search: how to look for the best.
        limits: how many tokens a target may have, <eos> counted, from the number of those of its source.
        batch_tokens: padded source tokens decoded at once, which bounds the memory.
    """

    models: tuple[EncoderDecoder, ...]
    sides: Sides
    search: BeamSearch
    limits: Callable[[Tensor], Tensor] = length_limits
    batch_tokens: int = 2048

    def __call__(
        self, lines: Sequence[str], n_best: int = 1, advance: Callable[[int], object] = lambda count: None
    ) -> list[list[Translation]]:
        """At most ``n_best`` translations of each line, the best first; an empty line has an empty one.

        Args:
            lines: as they stand in a file.
            n_best: how many.
            advance: told how many lines more are done.
        """
        sources = [self.sides.source.encode(line) for line in lines]

        def decode(batch: list[list[int]]) -> list[list[Translation]]:
            found = self._decoded(batch, n_best)
            advance(len(batch))
            return found

        return in_batches(sources, [len(source) + 1 for source in sources], self.batch_tokens, decode)

    def _decoded(self, sources: list[list[int]], n_best: int) -> list[list[Translation]]:
        there = [index for index, source in enumerate(sources) if source]
        results = [[Translation("", 0.0, 0.0)] for _ in sources]
        if there:
            device = next(self.models[0].parameters()).device
            ids, lengths = padded([[*sources[index], EOS] for index in there], device)
            model, start = self._start(ids, lengths)
            limits = self.limits(lengths - 1)
            for index, found in zip(there, beam_search(model, start, limits, self.search, n_best), strict=True):
                results[index] = [self._translation(hypothesis) for hypothesis in found]
        return results

    def _start(self, ids: Tensor, lengths: Tensor) -> tuple[Stepper, Start]:
        starts = [translation(model, ids, lengths) for model in self.models]
        if len(starts) == 1:
            return self.models[0], starts[0]
        ensemble = Ensemble(self.models)
        return ensemble, ensemble.start(starts)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        return Translation(self.sides.target.decode(hypothesis.text), hypothesis.score, hypothesis.log_probability)
