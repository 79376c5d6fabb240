"""Thresholds, comparisons, verdicts and drawings of extraction."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from structattn.extraction import pipeline
from structattn.extraction.agreement import Modelled, sides_with_extracted
from structattn.extraction.automaton import Configuration, PushdownAutomaton, Start, Transition
from structattn.extraction.comparison import Comparison, Difference, compare, prefix_pairs
from structattn.extraction.drawing import automaton_svg
from structattn.extraction.pipeline import ExtractionSettings
from structattn.extraction.reading import CausalCheck
from structattn.extraction.stacks import (
    Observation,
)
from structattn.extraction.threshold import FALLBACK, Threshold, best_threshold, find_threshold
from structattn.extraction.verdict import MIN_AGREEMENT, MIN_SIDES, described, verdict_of
from structattn.tasks.formal_languages.grammar import Grammar, normalized, rule
from structattn.tasks.formal_languages.next_symbols import END, Recognizer, following
from structattn.tasks.formal_languages.registry import GRAMMARS

SYMBOLS = ("<pad>", "<bos>", "<eos>", "(", ")", "[", "]")
THRESHOLD = Threshold(1e-3, 20.0, 2e-4, 4e-3)


def test_threshold_is_the_middle_of_a_wide_gap_only():
    def observed(*probabilities):
        return [Observation(np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)), np.log([probabilities]))]

    wide = find_threshold(observed(1e-7, 3e-5, 2e-4, 4e-3, 1.5e-2, 5e-2, 0.5))
    assert wide.separates
    np.testing.assert_allclose([wide.value, wide.factor], [np.sqrt(2e-4 * 4e-3), 20])
    narrow = find_threshold(observed(*np.geomspace(1e-6, 0.5, 40)))
    assert not narrow.separates
    assert narrow.value == FALLBACK
    assert (wide.origin, narrow.origin) == ("gap", "fallback")
    large = find_threshold(observed(*np.geomspace(1e-6, 0.5, 500)))
    assert large.value == 0.001


@pytest.mark.parametrize(
    ("of_letters", "of_transitions", "agreement", "equal", "kind"),
    [
        (0.0, 0.0, 1.0, True, "exact"),
        (0.0, 0.0, 1.0, False, "other language"),
        (0.01, 0.0, 1.0, True, "no automaton agrees"),
        (0.0, 2.2, 1.0, True, "no automaton agrees"),
        (0.0, 0.0, MIN_AGREEMENT, True, "exact"),
        (0.0, 0.0, MIN_AGREEMENT - 1e-3, True, "no automaton agrees"),
        (0.0, 0.0, None, None, "no automaton agrees"),
    ],
)
def test_verdict(of_letters, of_transitions, agreement, equal, kind):
    marked, dyck = (Recognizer(GRAMMARS[name]()) for name in ("marked-reversal", "dyck"))
    comparison = None if equal is None else compare(marked, marked if equal else dyck, "01#", 3)
    causal = CausalCheck(0.0, of_letters, of_transitions, disabled=1.0)
    assert verdict_of(causal, THRESHOLD, agreement, comparison).kind == kind


@pytest.mark.parametrize(("of_disabled", "needed"), [(0.0006, False), (-0.03, False), (0.02, True), (1.2, True)])
def test_verdict_says_where_the_model_does_not_need_the_stack(of_disabled, needed):
    dyck = Recognizer(GRAMMARS["dyck"]())
    causal = CausalCheck(0.0, 0.0, 0.0, of_disabled)
    verdict = verdict_of(causal, THRESHOLD, 1.0, compare(dyck, dyck, SYMBOLS[3:], 3))
    assert verdict.kind == "exact"
    remark = f"the model does not need this stack: disabling it costs {of_disabled:+.4f} nats per token"
    assert verdict.reasons[1:] == (() if needed else (remark,))


def test_counterexamples_show_invisible_symbols():
    found = Comparison(3, 2, 1, Difference((" ",), frozenset(), None), (" ", "\u200b", "a" * 20), True)
    shown = f"␣ \\u200b {'a' * 20}"
    assert described(found) == f"only the automaton has {shown}"
    assert described(replace(found, counterexample=None)) == "other symbols can follow ␣"


def test_verdict_is_not_another_language_where_the_model_sides_with_the_true_one():
    """The automaton lacks ( ) ( ), which the model has: it is not what the model has learned."""
    dyck = Recognizer(GRAMMARS["dyck"]())
    rules = [rule(*each, 1) for each in (("S", "( S )"), ("S", "[ S ]"), ("S", "( )"), ("S", "[ ]"))]
    nested = Recognizer(Grammar("S", SYMBOLS[3:], normalized(rules)))
    pairs = [each for layer in prefix_pairs(nested, dyck, SYMBOLS[3:], 4, 100) for each in layer]
    modelled = Modelled(SYMBOLS, np.log(0.01))

    def sides(model):
        found = [following(model, each.string) for each in pairs]
        names = (END, *SYMBOLS[3:])
        rows = [np.log([0.5 if x in all_[-1] and len(all_) > len(pair.string) else 1e-4 for x in names])
                for pair, all_ in zip(pairs, found, strict=True)]  # fmt: skip
        return sides_with_extracted(pairs, rows, modelled, min_length=0)

    comparison = compare(nested, dyck, SYMBOLS[3:], 4)
    causal = CausalCheck(0.0, 0.0, 0.0, disabled=1.0)
    assert verdict_of(causal, THRESHOLD, 1.0, comparison, sides(nested)).kind == "other language"
    half = [verdict_of(causal, THRESHOLD, 1.0, comparison, MIN_SIDES - less) for less in (0, 0.01)]
    assert [each.kind for each in half] == ["other language", "no automaton agrees"]
    verdict = verdict_of(causal, THRESHOLD, 1.0, comparison, sides(dyck))
    assert verdict.kind == "no automaton agrees"
    assert "sides with the language in 100%" in verdict.reasons[0]
    assert sides_with_extracted(pairs[:1], [np.zeros(5)], modelled, min_length=0) is None


def test_the_end_of_strings_below_the_least_length_is_not_judged():
    one_or_two, two = (
        Recognizer(Grammar("S", ("a",), normalized([rule("S", each, 1) for each in strings])))
        for strings in (["a", "a a"], ["a a"])
    )
    pairs = [each for layer in prefix_pairs(one_or_two, two, ("a",), 2, 9) for each in layer]
    rows = [np.log([0.5, 0.5])] * len(pairs)
    modelled = Modelled((*SYMBOLS[:3], "a"), np.log(0.01))
    assert sides_with_extracted(pairs, rows, modelled, min_length=2) is None
    assert sides_with_extracted(pairs, rows, modelled, min_length=0) == 1


def test_fitted_threshold_separates_most_prefixes():
    lowest, highest = [0.02, 0.03, 0.05, 0.004], [0.001, 0.01, 0.019, 0.003]
    found = best_threshold(lowest, highest)
    assert sum(high < found < low for low, high in zip(lowest, highest, strict=True)) == 3
    assert 0.019 < found < 0.02


def test_drawing_of_ten_controls_has_each_edge_once_and_no_number_upon_another():
    transitions = {
        Transition(source, symbol, 0, "replace", (source * step) % 10, 0): 1
        for source in range(10)
        for symbol, step in (("a", 1), ("b", 3), ("c", 7))
    }
    finals = frozenset([Configuration(3, 0)])
    automaton = PushdownAutomaton(("a", "b", "c"), frozenset([Start(0, (0,))]), transitions, finals)
    root = ElementTree.fromstring(automaton_svg(automaton))
    name = "{http://www.w3.org/2000/svg}"
    edges = [each for each in root.iter(f"{name}path") if each.get("class") == "edge"]
    assert len(edges) == len({(each.source, each.target) for each in transitions})
    width = float(root.get("width"))
    numbers = [each for each in root.iter(f"{name}circle") if each.get("class") == "number"]
    assert all(float(each.get("cx")) < width for each in numbers)
    places = [complex(float(each.get("cx")), float(each.get("cy"))) for each in numbers]
    assert min(abs(a - b) for i, a in enumerate(places) for b in places[:i]) >= 16
    assert "prefers-color-scheme: dark" in root.find(f"{name}style").text


def test_drawing_is_as_wide_as_its_longest_line():
    transitions = {Transition(0, "verylongsymbolname1", top, "replace", 1, 9): 1 for top in range(12)}
    finals = frozenset([Configuration(1, 9)])
    automaton = PushdownAutomaton(("verylongsymbolname1",), frozenset([Start(0, (0,))]), transitions, finals)
    root = ElementTree.fromstring(automaton_svg(automaton))
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(each.get("x")) + 7 * len(each.text) < float(root.get("width"))


def test_a_threshold_without_the_gap_keeps_its_measured_factor():
    """Automata are also judged without the gap, which can be another one than that below what can follow."""
    threshold = Threshold(0.001, 34.0, 2e-4, 7e-3)
    judge = pipeline._Judge(None, ExtractionSettings(), threshold, Modelled(SYMBOLS, np.log(0.001)), None).without_gap()
    assert judge.threshold.factor == 34
    assert not judge.threshold.separates
    assert judge.modelled.log_threshold == np.log(judge.threshold.value)
