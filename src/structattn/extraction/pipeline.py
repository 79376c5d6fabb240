"""Read the stack of a trained language model out as an automaton and a grammar, and check both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from structattn.extraction.agreement import (
    Agreement,
    Modelled,
    agreement_on_prefixes,
    agreement_on_strings,
    forbidden_mass,
)
from structattn.extraction.automaton import PushdownAutomaton
from structattn.extraction.causal import only_extracted
from structattn.extraction.comparison import Comparison, PrefixPair, compare, prefix_pairs
from structattn.extraction.configurations import Simulator
from structattn.extraction.letters import GRANULARITIES, Letters, ambiguous_share, find_letters, mean_weights
from structattn.extraction.minimization import Minimal, minimized
from structattn.extraction.next_symbols import Recognizer
from structattn.extraction.observations import String, cross_entropy, observe
from structattn.extraction.stacks import Observation, StackReader, stack_reader
from structattn.extraction.threshold import Threshold, find_threshold
from structattn.extraction.to_grammar import EmptyLanguageError, TooManyRulesError
from structattn.extraction.transitions import Evidence, allowed_steps, automaton_of, first_steps
from structattn.extraction.verdict import Checks, Verdict, verdict_of
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS_CLASS, FIRST_SYMBOL, id_of
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.language_files.language_file import prepared_language
from structattn.tasks.language_modeling.prompts import TextEncoder

VALIDATION = 150  # strings whose cross-entropy is compared
SHORT_PREFIXES = 3_000  # that the model reads in one pass


@dataclass(frozen=True)
class ExtractionSettings:
    """How an automaton is extracted.

    Args:
        layer: of the stack, from 0; None: the only one.
        strings: the number of strings sampled from the model.
        threshold: τ; None: found in the probabilities.
        min_share: the share of the sampled strings in which a transition must be seen.
        max_length: of the strings that are compared exhaustively.
        short_length: where the threshold separates, all strings of the model of at most this length are read, too.
        seed: of the samples.
    """

    layer: int | None = None
    strings: int = 400
    threshold: float | None = None
    min_share: float = 0.005
    max_length: int = 12
    short_length: int = 8
    seed: int = 0


@dataclass(frozen=True)
class CausalCheck:
    """Cross-entropies on validation strings, in nats per token.

    Args:
        model: of the model.
        letters: with the weights of the stack replaced by the means of their letters.
        extracted: with the extracted transitions alone.
    """

    model: float
    letters: float
    extracted: float

    @property
    def difference(self) -> float:
        """What the model loses with the extracted transitions."""
        return self.extracted - self.model


@dataclass(frozen=True)
class Extraction:
    """What was extracted from a run, and how far it agrees.

    Args:
        verdict: the conclusion.
        threshold: between the symbols that can follow and those that cannot.
        letters: kinds of steps.
        ambiguous: the share of steps whose letter does not follow from the letter before and the symbol.
        num_strings: the numbers of strings that were read: sampled ones, short ones.
        automaton: as it was read, before anything was merged.
        minimal: its smaller form, and the grammar; None if there is none.
        causal: the causal check.
        trained: agreement on validation strings, of the lengths of training.
        short: agreement after all prefixes of short strings; None without a true grammar.
        forbidden_mass: the mean probability that the model gives to what the grammar forbids, on validation strings.
        comparison: of the extracted (first) with the true grammar (second), exhaustively; None if that is unknown.
    """

    verdict: Verdict
    threshold: Threshold
    letters: Letters
    ambiguous: float
    num_strings: tuple[int, int]
    automaton: PushdownAutomaton
    minimal: Minimal | None
    causal: CausalCheck
    trained: Agreement | None
    short: Agreement | None
    forbidden_mass: float | None
    comparison: Comparison | None


def extract(run: TrainedRun, settings: ExtractionSettings = ExtractionSettings()) -> Extraction:
    """Extract the automaton of a run's stack, and compare it with the model and with the language of its data.

    Args:
        run: a language model of a formal language with one nondeterministic or superposition stack.
        settings: how.

    Raises:
        UsageError: the run has another task or model.
        DataError: the prepared folder has no validation strings.

    Cost: for each string of n symbols that of n forward passes of the stack; a minute for strings of 80 symbols.
    """
    reader = stack_reader(run, settings.layer)
    valid = _validation(run)
    observed = observe(run, reader, valid, what="validation strings")
    threshold = find_threshold(observed)
    if settings.threshold is not None:
        threshold = replace(threshold, value=settings.threshold)
    modelled = Modelled(run.prepared.vocabulary.symbols, math.log(threshold.value))
    letters, of_means, of_model = _letters(run, reader, valid, observed)
    sampled = _accepted(observe(run, reader, _samples(run, settings), with_runs=True, what="samples"), modelled)
    accepted = _short_strings(run, reader, modelled, settings) if threshold.separates else []
    short = observe(run, reader, accepted, with_runs=True, what="short strings")
    evidence = _evidence(letters, sampled, max(1, round(settings.min_share * len(sampled)))).joined(
        _evidence(letters, short, 1)
    )
    automaton = automaton_of(evidence, letters, modelled.symbols)
    minimal = _minimal(automaton)
    steps = allowed_steps(evidence) | first_steps((letters.read(x.ids, x.features), x.runs or ()) for x in sampled)
    causal = CausalCheck(of_model, of_means, cross_entropy(run, reader, valid, only_extracted(reader, letters, steps)))
    truth = true_grammar(run)
    checks = Checks(causal.letters - of_model, causal.difference, threshold)
    extraction = Extraction(
        verdict_of(checks, None, None, has_truth=truth is not None),
        threshold,
        letters,
        ambiguous_share(letters, observed),
        (len(sampled), len(short)),
        automaton,
        minimal,
        causal,
        None,
        None,
        None,
        None,
    )
    return (
        extraction
        if minimal is None
        else _compared(run, reader, extraction, minimal, observed, modelled, truth, settings)
    )


def true_grammar(run: TrainedRun) -> Grammar | None:
    """Return the grammar of the language of a run's data; None if its language has none."""
    language = prepared_language(run.prepared)
    return language.grammar if isinstance(language, ContextFreeLanguage) else None


def _validation(run: TrainedRun) -> list[String]:
    split = run.prepared.split("valid")
    if not len(split):
        raise DataError(run.prepared.path / "valid", "has no strings; expected some")
    chosen = np.linspace(0, len(split) - 1, min(VALIDATION, len(split))).astype(int)
    return [np.asarray(split[index]) for index in chosen.tolist()]


def _letters(
    run: TrainedRun, reader: StackReader, valid: Sequence[String], observed: Sequence[Observation]
) -> tuple[Letters, float, float]:
    """Return the fewest letters that can replace the weights, or the most; cross-entropies with and without them."""
    of_model = cross_entropy(run, reader, valid)
    for granularity in GRANULARITIES:
        letters = find_letters(reader, observed, *granularity)
        of_means = cross_entropy(run, reader, valid, mean_weights(reader, letters))
        if of_means - of_model < Checks.MAX_OF_LETTERS:
            break
    return letters, of_means, of_model


def _samples(run: TrainedRun, settings: ExtractionSettings) -> list[String]:
    generated = run.generate(n=settings.strings, seed=settings.seed)[0]
    encoder = TextEncoder(run)
    texts = [each.text for each in generated if each.finished]
    return [np.array(encoder.encode(text, Path("samples"), n).ids[1:], dtype=np.int64) for n, text in enumerate(texts)]


def _accepted(observations: Sequence[Observation], modelled: Modelled) -> list[Observation]:
    """Return the strings whose symbols and ends all have probabilities above the threshold."""
    return [each for each in observations if _lowest(each) > modelled.log_threshold]


def _lowest(observation: Observation) -> float:
    classes = np.append(observation.ids[1:] - id_of(0), EOS_CLASS)
    return float(np.take_along_axis(observation.log_probabilities, classes[:, None], 1).min())


def _short_strings(
    run: TrainedRun, reader: StackReader, modelled: Modelled, settings: ExtractionSettings
) -> list[String]:
    """Return all strings of the model of at most ``short_length`` symbols, or fewer where they have many prefixes."""
    alphabet = range(FIRST_SYMBOL, len(modelled.symbols))
    layer: list[String] = [np.zeros(0, dtype=np.int64)]
    found, total = list[String](), 0
    for length in range(settings.short_length + 1):
        total += len(layer)
        if not layer or total > SHORT_PREFIXES:
            break
        longer: list[String] = []
        for string, each in zip(layer, observe(run, reader, layer, what=f"prefixes of length {length}"), strict=True):
            row = each.log_probabilities[-1]
            if row[EOS_CLASS] > modelled.log_threshold:
                found.append(string)
            longer += [
                np.append(string, symbol) for symbol in alphabet if row[symbol - id_of(0)] > modelled.log_threshold
            ]
        layer = longer
    return found


def _evidence(letters: Letters, observations: Sequence[Observation], count: int) -> Evidence:
    evidence = Evidence()
    for each in observations:
        evidence.add(letters.read(each.ids, each.features), each.runs or (), letters.vectors)
    return evidence.at_least(count)


def _minimal(automaton: PushdownAutomaton) -> Minimal | None:
    try:
        return minimized(automaton)
    except (EmptyLanguageError, TooManyRulesError):
        return None


def _compared(
    run: TrainedRun,
    reader: StackReader,
    extraction: Extraction,
    minimal: Minimal,
    observed: Sequence[Observation],
    modelled: Modelled,
    truth: Grammar | None,
    settings: ExtractionSettings,
) -> Extraction:
    extracted, true = Simulator(minimal.automaton), None if truth is None else Recognizer(truth)
    trained = agreement_on_strings(observed, modelled, extracted, true)
    mass = forbidden_mass(observed, modelled, extracted)
    comparison = short = None
    if truth is not None and true is not None:
        comparison = compare(extracted, true, truth.alphabet, settings.max_length)
        pairs = [
            each
            for layer in prefix_pairs(extracted, true, truth.alphabet, settings.max_length, SHORT_PREFIXES)
            for each in layer
        ]
        short = agreement_on_prefixes(pairs, _after(run, reader, pairs, modelled), modelled)
    causal = extraction.causal
    checks = Checks(causal.letters - causal.model, causal.difference, extraction.threshold)
    return replace(
        extraction,
        verdict=verdict_of(checks, trained.extracted_model.value, comparison, has_truth=truth is not None),
        trained=trained,
        short=short,
        forbidden_mass=mass,
        comparison=comparison,
    )


def _after(run: TrainedRun, reader: StackReader, pairs: Sequence[PrefixPair], modelled: Modelled) -> list[np.ndarray]:
    """Return the model's log-probabilities after each prefix."""
    ids = {symbol: index for index, symbol in enumerate(modelled.symbols)}
    strings = [np.array([ids[symbol] for symbol in each.string], dtype=np.int64) for each in pairs]
    return [each.log_probabilities[-1] for each in observe(run, reader, strings, what="short prefixes")]
