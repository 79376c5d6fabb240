"""Read the stack of a trained language model out as an automaton and a grammar, and check both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from structattn.extraction.agreement import (
    Agreement,
    Modelled,
    agreement_on_prefixes,
    agreement_on_strings,
    forbidden_mass,
)
from structattn.extraction.automaton import PushdownAutomaton
from structattn.extraction.comparison import Comparison, PrefixPair, compare, prefix_pairs
from structattn.extraction.configurations import Simulator
from structattn.extraction.letters import Letters, ambiguous_share
from structattn.extraction.minimization import Minimal, minimized
from structattn.extraction.next_symbols import Recognizer
from structattn.extraction.observations import observe
from structattn.extraction.reading import (
    MIN_COUNT,
    SHORT_PREFIXES,
    CausalCheck,
    Strings,
    Subject,
    best_reading,
    sampled_strings,
    short_strings,
    validation_strings,
)
from structattn.extraction.stacks import Observation, stack_reader
from structattn.extraction.threshold import THRESHOLDS, Threshold, find_threshold
from structattn.extraction.to_grammar import EmptyLanguageError, TooManyRulesError
from structattn.extraction.transitions import automaton_of
from structattn.extraction.verdict import Verdict, verdict_of
from structattn.loading.trained_run import TrainedRun
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.language_files.language_file import prepared_language


@dataclass(frozen=True)
class ExtractionSettings:
    """How an automaton is extracted.

    Args:
        layer: of the stack, from 0; None: the only one.
        strings: the number of strings sampled from the model; None: as many as have 10,000 symbols, from 100 to 1,000.
        threshold: τ; None: found in the probabilities.
        max_length: of the strings that are compared exhaustively.
        short_length: where the threshold separates, all strings of the model of at most this length are read, too.
        seed: of the samples.
    """

    layer: int | None = None
    strings: int | None = None
    threshold: float | None = None
    max_length: int = 12
    short_length: int = 8
    seed: int = 0


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
    valid = validation_strings(run)
    observed = observe(run, reader, valid, what="validation strings")
    threshold = find_threshold(observed)
    if settings.threshold is not None:
        threshold = replace(threshold, value=settings.threshold)
    modelled = Modelled(run.prepared.vocabulary.symbols, math.log(threshold.value))
    subject = Subject(run, reader, valid, observed)
    strings = Strings(
        sampled=sampled_strings(subject, modelled, settings.strings, settings.seed),
        short=short_strings(subject, modelled, settings.short_length) if threshold.separates else [],
        least=1 if threshold.separates else MIN_COUNT,
    )
    reading = best_reading(subject, strings)
    automaton = automaton_of(reading.evidence, reading.letters, modelled.symbols)
    minimal, truth = _minimal(automaton), true_grammar(run)
    extraction = Extraction(
        verdict=verdict_of(reading.causal.checks(threshold), None, None, has_truth=truth is not None),
        threshold=threshold,
        letters=reading.letters,
        ambiguous=ambiguous_share(reading.letters, observed),
        num_strings=(len(strings.sampled), len(strings.short)),
        automaton=automaton,
        minimal=minimal,
        causal=reading.causal,
        trained=None,
        short=None,
        forbidden_mass=None,
        comparison=None,
    )
    return extraction if minimal is None else _compared(subject, extraction, minimal, modelled, truth, settings)


def true_grammar(run: TrainedRun) -> Grammar | None:
    """Return the grammar of the language of a run's data; None if its language has none."""
    language = prepared_language(run.prepared)
    return language.grammar if isinstance(language, ContextFreeLanguage) else None


def _minimal(automaton: PushdownAutomaton) -> Minimal | None:
    try:
        return minimized(automaton)
    except (EmptyLanguageError, TooManyRulesError):
        return None


def _compared(
    subject: Subject,
    extraction: Extraction,
    minimal: Minimal,
    modelled: Modelled,
    truth: Grammar | None,
    settings: ExtractionSettings,
) -> Extraction:
    extracted, true = Simulator(minimal.automaton), None if truth is None else Recognizer(truth)
    observed, threshold = subject.observed, extraction.threshold
    if settings.threshold is None and not threshold.separates:
        threshold, modelled = _agreeing(observed, modelled, extracted, threshold)
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
        short = agreement_on_prefixes(pairs, _after(subject, pairs, modelled), modelled)
    checks = extraction.causal.checks(threshold)
    return replace(
        extraction,
        threshold=threshold,
        verdict=verdict_of(checks, trained.extracted_model.value, comparison, has_truth=truth is not None),
        trained=trained,
        short=short,
        forbidden_mass=mass,
        comparison=comparison,
    )


def _agreeing(
    observed: Sequence[Observation], modelled: Modelled, extracted: Simulator, threshold: Threshold
) -> tuple[Threshold, Modelled]:
    """Return the threshold, of some that no gap rules out, at which model and extracted grammar agree most."""
    candidates = [Modelled(modelled.symbols, math.log(value)) for value in THRESHOLDS]
    shares = [agreement_on_strings(observed, each, extracted, None).extracted_model.value for each in candidates]
    best = int(np.argmax(shares))
    return replace(threshold, value=float(THRESHOLDS[best])), candidates[best]


def _after(subject: Subject, pairs: Sequence[PrefixPair], modelled: Modelled) -> list[np.ndarray]:
    """Return the model's log-probabilities after each prefix."""
    ids = {symbol: index for index, symbol in enumerate(modelled.symbols)}
    strings = [np.array([ids[symbol] for symbol in each.string], dtype=np.int64) for each in pairs]
    return [each.log_probabilities[-1] for each in observe(subject.run, subject.reader, strings, what="short prefixes")]
