"""Read the transitions of a stack: strings, letters, evidence, and the causal check of what was found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from structattn.extraction.agreement import Modelled
from structattn.extraction.causal import disabled, only_extracted
from structattn.extraction.letters import Letters, covering, letters_of_granularities, mean_weights
from structattn.extraction.observations import String, cross_entropy, observe
from structattn.extraction.stacks import Observation, StackReader
from structattn.extraction.transitions import Evidence, allowed_steps
from structattn.loading.trained_run import TrainedRun
from structattn.settings.embeddings import max_positions
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS_CLASS, FIRST_SYMBOL, class_of
from structattn.tasks.language_modeling.prompts import TextEncoder

VALIDATION = 150  # strings whose cross-entropy is compared
SAMPLED_SYMBOLS = 10_000
TEMPERATURE = 1.5
MIN_COUNT = 2  # strings that must show a transition, where no threshold rejects wrong samples for certain
MAX_OF_LETTERS, MAX_OF_TRANSITIONS = 0.01, 0.02  # nats per token that the model loses in the causal check
SHORT_LENGTH, SHORT_PREFIXES = 12, 3_000  # of prefixes that the model reads in one pass


@dataclass(frozen=True)
class Subject:
    """A run, its stack, and validation strings with what the model does on them."""

    run: TrainedRun
    reader: StackReader
    valid: Sequence[String]
    observed: Sequence[Observation]

    def readable(self, length: int) -> int:
        """Return this length of strings, or the greatest that the model has positions for if that is less."""
        positions = max_positions(self.run.settings.model)
        return length if positions is None else min(length, positions - 1)  # <bos> has one

    @cached_property
    def cross_entropy(self) -> float:
        """Of the model on the validation strings, in nats per token."""
        return cross_entropy(self.run, self.reader, self.valid)

    @cached_property
    def disabled(self) -> float:
        """The same with the stack disabled: the lower of two ways, as each can also upset a model that needs none."""
        return min(
            cross_entropy(self.run, self.reader, self.valid, each) for each in disabled(self.reader, self.observed)
        )


@dataclass(frozen=True)
class Strings:
    """Strings of the model, with the best runs of their prefixes.

    Args:
        sampled: from the model.
        short: all strings of the model up to a length.
        least: the number of samples that must show a transition.
    """

    sampled: Sequence[Observation]
    short: Sequence[Observation]
    least: int


@dataclass(frozen=True)
class CausalCheck:
    """Cross-entropies on validation strings, in nats per token.

    Args:
        letters: with the weights of the stack replaced by the means of their letters.
        extracted: with the extracted transitions alone.
        disabled: with a stack that does not read the string.
    """

    model: float
    letters: float
    extracted: float
    disabled: float

    @property
    def letters_difference(self) -> float:
        """What the model loses with the mean weights of letters."""
        return self.letters - self.model

    @property
    def difference(self) -> float:
        """What the model loses with the extracted transitions."""
        return self.extracted - self.model

    @property
    def disabled_difference(self) -> float:
        """What the model loses with a stack that does not read the string."""
        return self.disabled - self.model


@dataclass(frozen=True)
class Reading:
    """Letters, what the strings show in terms of them, and the causal check of that."""

    letters: Letters
    evidence: Evidence
    causal: CausalCheck


def best_reading(subject: Subject, strings: Strings) -> Reading:
    """Return the reading with the fewest letters that passes the causal check, else the one that costs least.

    Letters whose mean weights cost too much are left out, unless all do.
    """
    best: Reading | None = None
    for reading in _readings(subject, strings):
        if best is None or reading.causal.difference < best.causal.difference:
            best = reading
        if reading.causal.difference < MAX_OF_TRANSITIONS:
            return reading
    assert best is not None
    return best


def _readings(subject: Subject, strings: Strings) -> Iterator[Reading]:
    """Yield the readings of all granularities whose mean weights cost little, or else that of the finest."""
    finite, of_means, letters = False, 0.0, None
    observed = covering(subject.observed, [*strings.sampled, *strings.short])
    for letters in letters_of_granularities(subject.reader, observed):
        of_means = cross_entropy(subject.run, subject.reader, subject.valid, mean_weights(subject.reader, letters))
        if of_means - subject.cross_entropy < MAX_OF_LETTERS:
            finite = True
            yield _reading(subject, strings, letters, of_means)
    if not finite:
        assert letters is not None
        yield _reading(subject, strings, letters, of_means)


def _reading(subject: Subject, strings: Strings, letters: Letters, of_means: float) -> Reading:
    evidence = _evidence(letters, strings.sampled, strings.least).joined(_evidence(letters, strings.short, 1))
    sampled = ((letters.read(x.ids, x.features), x.runs or ()) for x in (*strings.sampled, *strings.short))
    replacement = only_extracted(subject.reader, letters, allowed_steps(evidence, sampled))
    of_transitions = cross_entropy(subject.run, subject.reader, subject.valid, replacement)
    return Reading(letters, evidence, CausalCheck(subject.cross_entropy, of_means, of_transitions, subject.disabled))


def validation_strings(run: TrainedRun) -> list[String]:
    """Return validation strings, evenly spread.

    Raises:
        DataError: there are none.
    """
    split = run.prepared.split("valid")
    if not len(split):
        raise DataError(run.prepared.path / "valid", "has no strings; expected some")
    chosen = np.linspace(0, len(split) - 1, min(VALIDATION, len(split))).astype(int)
    return [np.asarray(split[index]) for index in chosen.tolist()]


def _number_of_strings(strings: Sequence[String]) -> int:
    symbols = sum(len(string) for string in strings) / len(strings)
    return int(min(1000, max(100, SAMPLED_SYMBOLS / max(1.0, symbols))))


def sampled_strings(
    subject: Subject, modelled: Modelled, count: int | None, seed: int, *, with_runs: bool = False
) -> list[Observation]:
    """Sample strings and return those whose symbols and ends all have probabilities above the threshold.

    Args:
        subject: the run.
        modelled: the threshold.
        count: the number of samples; None: as many as have 10,000 symbols, from 100 to 1,000.
        seed: of the samples.
        with_runs: whether to find the best runs of their prefixes.
    """
    samples = _samples(subject.run, count or _number_of_strings(subject.valid), seed)
    observations = observe(subject.run, subject.reader, samples, with_runs=with_runs, what="samples")
    return [each for each in observations if lowest(each) > modelled.log_threshold]


def _samples(run: TrainedRun, count: int, seed: int) -> list[String]:
    """Sample strings, a half of them at a higher temperature, which shows more of what is rare."""
    generated = run.generate(n=count - count // 2, seed=seed)[0]
    if count > 1:
        generated += run.generate(n=count // 2, seed=seed, temperature=TEMPERATURE)[0]
    encoder = TextEncoder(run)
    texts = [each.text for each in generated if each.finished]
    return [np.array(encoder.encode(text, Path("samples"), n)[1:], dtype=np.int64) for n, text in enumerate(texts)]


def lowest(observation: Observation) -> float:
    """Return the lowest log-probability of a symbol of a string, or of its end."""
    classes = np.append(class_of(observation.ids[1:]), EOS_CLASS)
    return float(np.take_along_axis(observation.log_probabilities, classes[:, None], 1).min())


def short_strings(
    subject: Subject, modelled: Modelled, max_length: int, *, with_runs: bool = True
) -> list[Observation]:
    """Return all strings of the model of at most ``max_length`` symbols.

    Shorter ones where prefixes are many, or the model has no positions for more.
    """
    run, reader = subject.run, subject.reader
    alphabet = range(FIRST_SYMBOL, len(modelled.symbols))
    layer: list[String] = [np.zeros(0, dtype=np.int64)]
    found, total = list[String](), 0
    for length in range(subject.readable(max_length) + 1):
        total += len(layer)
        if not layer or total > SHORT_PREFIXES:
            break
        longer: list[String] = []
        for string, each in zip(layer, observe(run, reader, layer, what=f"prefixes of length {length}"), strict=True):
            row = each.log_probabilities[-1]
            if row[EOS_CLASS] > modelled.log_threshold:
                found.append(string)
            longer += [
                np.append(string, symbol) for symbol in alphabet if row[class_of(symbol)] > modelled.log_threshold
            ]
        layer = longer
    return observe(run, reader, found, with_runs=with_runs, what="short strings")


def _evidence(letters: Letters, observations: Sequence[Observation], count: int) -> Evidence:
    evidence = Evidence()
    for each in observations:
        evidence.add(letters.read(each.ids, each.features), each.runs or (), letters.vectors)
    return evidence.at_least(count)
