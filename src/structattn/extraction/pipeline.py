"""Read the stack of a trained language model out as an automaton and a grammar, and check both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np

from structattn.extraction.agreement import (
    Agreement,
    Modelled,
    agreement_on_prefixes,
    agreement_on_strings,
    fitted_threshold,
    forbidden_mass,
    sides_with_extracted,
)
from structattn.extraction.automaton import PushdownAutomaton
from structattn.extraction.comparison import Comparison, PrefixPair, compare, pairs_along, prefix_pairs, with_strings
from structattn.extraction.configurations import Simulator
from structattn.extraction.learned import learned_automata
from structattn.extraction.letters import Letters, ambiguous_share
from structattn.extraction.minimization import Minimal, minimized, unmerged
from structattn.extraction.observations import String, observe
from structattn.extraction.reading import (
    MIN_COUNT,
    SHORT_LENGTH,
    SHORT_PREFIXES,
    CausalCheck,
    Strings,
    Subject,
    best_reading,
    lowest,
    sampled_strings,
    short_strings,
    validation_strings,
)
from structattn.extraction.stacks import Observation, stack_reader
from structattn.extraction.threshold import Threshold, fallback_of, find_threshold
from structattn.extraction.to_grammar import TooManyRulesError
from structattn.extraction.transitions import automaton_of
from structattn.extraction.verdict import MIN_AGREEMENT, Verdict, verdict_of
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import EmptyLanguageError, Grammar
from structattn.tasks.formal_languages.language_files.language_file import prepared_language
from structattn.tasks.formal_languages.next_symbols import Recognizer, contains

MAX_ROUNDS = 3
"""In which strings that the automaton lacks are read."""
MAX_COUNTEREXAMPLES = 50
"""In each round."""
Algorithm = Literal["transitions", "visibly pushdown"]


@dataclass(frozen=True)
class ExtractionSettings:
    """How an automaton is extracted.

    Args:
        layer: of the stack, from 0; None: the only one.
        strings: the number of strings sampled from the model; None: as many as have 10,000 symbols, from 100 to 1,000.
        threshold: τ; None: found in the probabilities.
        max_length: of the strings that are compared exhaustively, if they are not too many.
        short_length: where the threshold separates, all strings of the model of at most this length are read, too.
        seed: of the samples.

    Raises:
        UsageError: the threshold is not above 0 and below 1, or another number is too low or not whole.
    """

    layer: int | None = None
    strings: int | None = None
    threshold: float | None = None
    max_length: int = 40
    short_length: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise UsageError(f"threshold={self.threshold:g}; expected a probability above 0 and below 1 (--tau)")
        for name, least in {"layer": 0, "strings": 1, "max_length": 1, "short_length": 0, "seed": 0}.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | np.integer) and value >= least):
                raise UsageError(f"{name}={value!r}; expected a whole number of at least {least}")


@dataclass(frozen=True)
class Extraction:
    """What was extracted from a run, and how far it agrees.

    Args:
        algorithm: the automaton is of the transitions of best runs of prefixes, or a visibly pushdown one that was
            learned from the model's answers.
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
        comparison: of the extracted (first) with the true grammar (second), exhaustively, and where that finds no
            difference on validation strings; None if the true one is unknown.
    """

    algorithm: Algorithm
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

    @property
    def agreement(self) -> float:
        """Of automaton and model, the share of validation prefixes; -1 without an automaton."""
        return -1.0 if self.trained is None else self.trained.extracted_model.value


def extract(run: TrainedRun, settings: ExtractionSettings = ExtractionSettings()) -> Extraction:
    """Extract the automaton of a run's stack, and compare it with the model and with the language of its data.

    First that of the best runs of prefixes. If it does not agree with the model, visibly pushdown automata are learned.

    Args:
        run: a language model of a formal language with one nondeterministic or superposition stack.
        settings: how.

    Raises:
        UsageError: the run has other data or another model.
        DataError: the prepared folder has no validation strings.

    Cost: for each string of n symbols that of n forward passes of the stack; a minute for strings of 80 symbols.
    """
    if run.prepared.kind != "formal_language":
        raise UsageError(f"{run.run_dir}: its data are of kind {run.prepared.kind!r}; expected 'formal_language'")
    reader = stack_reader(run, settings.layer)
    valid = validation_strings(run)
    observed = observe(run, reader, valid, what="validation strings")
    threshold = find_threshold(observed)
    if settings.threshold is not None:
        threshold = replace(threshold, value=settings.threshold, origin="given")
    modelled = Modelled(run.prepared.vocabulary.symbols, math.log(threshold.value))
    judge = _Judge(Subject(run, reader, valid, observed), settings, threshold, modelled, true_grammar(run))
    strings = Strings(
        sampled=sampled_strings(judge.subject, modelled, settings.strings, settings.seed, with_runs=True),
        short=short_strings(judge.subject, modelled, settings.short_length) if threshold.separates else [],
        least=1 if threshold.separates else MIN_COUNT,
    )
    first = _of_transitions(judge, strings)
    if first.verdict.kind != "no automaton agrees":
        return first
    judges = [judge]
    if threshold.separates and settings.threshold is None:
        judges.append(judge.without_gap())  # the widest gap can be another one than that below what can follow
    for each in judges:
        sampled = [string for string in strings.sampled if lowest(string) > each.modelled.log_threshold]
        for learned in learned_automata(each.subject, sampled, each.modelled, settings.seed):
            automaton = learned.automaton.automaton(first.automaton.alphabet, learned.first)
            found = each.extraction("visibly pushdown", learned.calls.letters, strings, automaton, learned.causal)
            if found.verdict.kind != "no automaton agrees":
                return found
    return first


def _of_transitions(judge: "_Judge", strings: Strings) -> Extraction:
    """Extract from the best runs of prefixes; of strings that the model has and the automaton lacks, too."""
    best: Extraction | None = None
    subject, modelled, settings = judge.subject, judge.modelled, judge.settings
    others: list[Observation] | None = None
    for _ in range(MAX_ROUNDS):
        reading = best_reading(subject, strings)
        automaton = automaton_of(reading.evidence, reading.letters, modelled.symbols)
        found = judge.extraction("transitions", reading.letters, strings, automaton, reading.causal)
        if best is not None and found.agreement < best.agreement:
            break
        best = found
        if found.minimal is None:
            break
        if others is None:
            others = sampled_strings(subject, modelled, settings.strings, settings.seed + 1)
            others += short_strings(subject, modelled, settings.short_length, with_runs=False)
        lacking = _lacking(found.minimal, others, modelled)
        if not lacking:
            break
        more = observe(
            subject.run, subject.reader, lacking[:MAX_COUNTEREXAMPLES], with_runs=True, what="counterexamples"
        )
        strings = replace(strings, sampled=[*strings.sampled, *more])
    assert best is not None
    return best


def _lacking(minimal: Minimal, observations: Sequence[Observation], modelled: Modelled) -> list[String]:
    """Return the strings that an automaton lacks, the shortest first."""
    reader = Simulator(minimal.automaton)
    strings = (each.ids[1:] for each in observations)
    lacking = [each for each in strings if not contains(reader, [modelled.symbols[index] for index in each.tolist()])]
    return sorted({tuple(each.tolist()): each for each in lacking}.values(), key=len)


def true_grammar(run: TrainedRun) -> Grammar | None:
    """Return the grammar of the language of a run's data; None if its language has none."""
    language = prepared_language(run.prepared)
    return language.grammar if isinstance(language, ContextFreeLanguage) else None


def _has_symbols(grammar: Grammar) -> bool:
    """Return whether some string is not empty; no file has another grammar."""
    return any(symbol not in grammar.rules_of for rule in grammar.rules for symbol in rule.right)


@dataclass(frozen=True)
class _Judge:
    """Compares automata with a model and with the language of its data."""

    subject: Subject
    settings: ExtractionSettings
    threshold: Threshold
    modelled: Modelled
    truth: Grammar | None

    @cached_property
    def true(self) -> Recognizer | None:
        """The reader of the language, which keeps the prefixes that it read for the automata to come."""
        return None if self.truth is None else Recognizer(self.truth)

    def without_gap(self) -> "_Judge":
        """Return a judge that fits the threshold to each automaton."""
        value = fallback_of(len(self.modelled.classes))
        threshold = replace(self.threshold, value=value, origin="fallback")
        return replace(self, threshold=threshold, modelled=Modelled(self.modelled.symbols, math.log(value)))

    def extraction(
        self,
        algorithm: Algorithm,
        letters: Letters,
        strings: Strings,
        automaton: PushdownAutomaton,
        causal: CausalCheck,
    ) -> Extraction:
        """Minimize an automaton, and conclude how far it agrees."""
        reason = "the transitions accept no string with symbols"
        if not strings.sampled and not strings.short:
            reason = f"no sampled string has symbols above τ = {self.threshold.value:.2g} alone"
        found = Extraction(
            algorithm=algorithm,
            verdict=verdict_of(causal, self.threshold, None, None, absent=reason),
            threshold=self.threshold,
            letters=letters,
            ambiguous=ambiguous_share(letters, self.subject.observed),
            num_strings=(len(strings.sampled), len(strings.short)),
            automaton=automaton,
            minimal=None,
            causal=causal,
            trained=None,
            short=None,
            forbidden_mass=None,
            comparison=None,
        )
        try:
            minimal = minimized(automaton)
            return self._compared(replace(found, minimal=minimal)) if _has_symbols(minimal.grammar) else found
        except EmptyLanguageError:
            return found
        except TooManyRulesError as error:
            reason = f"the automaton is too large: {error}"
            return replace(found, verdict=verdict_of(causal, self.threshold, None, None, absent=reason))

    def _agreement(self, extracted: Simulator, true: Recognizer | None) -> tuple[Threshold, Modelled, Agreement]:
        """Return the threshold, fitted where none separates, and the agreement on validation strings."""
        observed, threshold, modelled = self.subject.observed, self.threshold, self.modelled
        if self.settings.threshold is None and not threshold.separates:
            threshold = replace(threshold, value=fitted_threshold(observed, modelled, extracted), origin="fitted")
            modelled = Modelled(modelled.symbols, math.log(threshold.value))
        return threshold, modelled, agreement_on_strings(observed, modelled, extracted, true)

    def _compared(self, extraction: Extraction) -> Extraction:
        assert extraction.minimal is not None
        observed, true = self.subject.observed, self.true
        extracted = Simulator(extraction.minimal.automaton)
        threshold, modelled, trained = self._agreement(extracted, true)
        if trained.extracted_model.value < 1:  # merges are checked on short prefixes alone
            whole = self._agreement(Simulator(extraction.automaton), true)
            if whole[2].extracted_model.value > trained.extracted_model.value:
                minimal = unmerged(extraction.automaton)
                extraction, extracted = replace(extraction, minimal=minimal), Simulator(minimal.automaton)
                threshold, modelled, trained = whole
        if extraction.algorithm == "visibly pushdown" and trained.extracted_model.value < MIN_AGREEMENT:
            return extraction  # one of several, which is not reported
        comparison = short = sides = None
        if self.truth is not None and true is not None:
            alphabet, length = self.truth.alphabet, self.settings.max_length
            comparison = compare(extracted, true, alphabet, length)
            short_length = self.subject.readable(min(length, SHORT_LENGTH))
            layers = prefix_pairs(extracted, true, alphabet, short_length, SHORT_PREFIXES)
            pairs = [each for layer in layers for each in layer]
            after = _after(self.subject, pairs, modelled)
            short = agreement_on_prefixes(pairs, after, modelled)
            if comparison.is_equal and trained.extracted_truth is not None and trained.extracted_truth.value < 1:
                along = [pairs_along(extracted, true, modelled.string(each.ids)) for each in observed]
                comparison = with_strings(comparison, along)
                pairs, after = list(chain(*along)), list(chain(*(each.log_probabilities for each in observed)))
            sides = sides_with_extracted(pairs, after, modelled, min(map(len, self.subject.valid)))
        return replace(
            extraction,
            threshold=threshold,
            verdict=verdict_of(extraction.causal, threshold, trained.extracted_model.value, comparison, sides),
            trained=trained,
            short=short,
            forbidden_mass=forbidden_mass(observed, modelled, extracted),
            comparison=comparison,
        )


def _after(subject: Subject, pairs: Sequence[PrefixPair], modelled: Modelled) -> list[np.ndarray]:
    """Return the model's log-probabilities after each prefix."""
    ids = {symbol: index for index, symbol in enumerate(modelled.symbols)}
    strings = [np.array([ids[symbol] for symbol in each.string], dtype=np.int64) for each in pairs]
    return [each.log_probabilities[-1] for each in observe(subject.run, subject.reader, strings, what="short prefixes")]
