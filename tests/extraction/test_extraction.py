"""Extraction from runs: what a stack with chosen weights shows, letters, thresholds, verdicts, files, the command."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from structattn.attention import NondeterministicStackAttention, SuperpositionStackAttention
from structattn.cli.app import app
from structattn.cli.extract import _print as print_extraction
from structattn.extraction import pipeline, to_grammar
from structattn.extraction.agreement import Modelled, sides_with_extracted
from structattn.extraction.automaton import Configuration, PushdownAutomaton, Start, Transition
from structattn.extraction.causal import disabled
from structattn.extraction.comparison import Comparison, Difference, compare, pairs_along, prefix_pairs, with_strings
from structattn.extraction.configurations import Simulator
from structattn.extraction.drawing import automaton_svg
from structattn.extraction.files import require_folder, write_extraction
from structattn.extraction.letters import covering, find_letters
from structattn.extraction.minimization import Minimal, minimized
from structattn.extraction.page import extraction_page
from structattn.extraction.pipeline import ExtractionSettings, extract
from structattn.extraction.stacks import (
    Allowed,
    NondeterministicReader,
    Observation,
    Step,
    SuperpositionReader,
    projection_hook,
    stack_reader,
)
from structattn.extraction.threshold import FALLBACK, Threshold, best_threshold, find_threshold
from structattn.extraction.transitions import Evidence, automaton_of
from structattn.extraction.verdict import Checks, described, verdict_of
from structattn.loading.runs import open_run
from structattn.settings.run import resolve_settings
from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.grammar import Grammar, normalized, pruned, rule
from structattn.tasks.formal_languages.language_files import draft
from structattn.tasks.formal_languages.language_files.language_file import read_language_file
from structattn.tasks.formal_languages.next_symbols import END, Recognizer, contains, following
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import GRAMMARS
from structattn.training.run_training import train

BRACKETS = {"(": ("push", 1), "[": ("push", 2), ")": ("pop", 1), "]": ("pop", 2)}
SYMBOLS = ("<pad>", "<bos>", "<eos>", "(", ")", "[", "]")


def reader_of_brackets():
    """Return a nondeterministic reader with 1 state and 3 symbols, and its output for an id."""
    reader = NondeterministicReader(NondeterministicStackAttention(4, 1, 3, 2, pop_offset=1.5))
    rows = {}
    for index, symbol in enumerate(SYMBOLS[1:], start=1):
        action, item = BRACKETS.get(symbol, ("replace", 0))
        tops = [0] if action == "replace" else [item] if action == "pop" else [0, 1, 2]
        steps = [Allowed(0, top, Step(action, 0, 0 if action == "pop" else item)) for top in tops]
        weights = reader.only(steps).clamp(min=-20)
        rows[index] = torch.cat([weights, torch.full((2,), float(index))])
    return reader, rows


def observations_of(reader, rows, strings):
    """Observe strings with these outputs of the projection."""
    found = []
    for string in strings:
        ids = [1, *(SYMBOLS.index(symbol) for symbol in string)]
        output = torch.stack([rows[each] for each in ids])[None]
        runs = reader.runs(output, torch.tensor([len(ids)]))[0]
        features = reader.features(output)[0].double().numpy()
        values = output[0, :, reader.sizes[0] :].double().numpy()
        found.append(Observation(np.array(ids), features, values, np.zeros((len(ids), 5)), tuple(runs)))
    return found


def extracted(reader, observations):
    letters, evidence = find_letters(reader, observations), Evidence()
    for each in observations:
        evidence.add(letters.read(each.ids, each.features), each.runs, letters.vectors)
    return automaton_of(evidence, letters, SYMBOLS)


def test_a_stack_with_the_transitions_of_brackets_shows_their_language():
    dyck = Recognizer(GRAMMARS["dyck"]())
    strings = [string for length in (2, 4, 6) for string in product(BRACKETS, repeat=length) if contains(dyck, string)]
    reader, rows = reader_of_brackets()
    minimal = minimized(extracted(reader, observations_of(reader, rows, strings)))
    assert compare(Simulator(minimal.automaton), dyck, tuple(BRACKETS), 8).is_equal
    assert minimal.automaton.is_deterministic
    assert len(minimal.automaton.items) == 3


def test_a_symbol_may_be_named_like_a_special_token():
    reader, rows = reader_of_brackets()
    (observed,) = observations_of(reader, rows, ["()[]"])
    letters, evidence = find_letters(reader, [observed]), Evidence()
    evidence.add(letters.read(observed.ids, observed.features), observed.runs, letters.vectors)
    automaton = automaton_of(evidence, letters, (*SYMBOLS[:3], "<bos1>", *SYMBOLS[4:]))
    assert automaton.alphabet == ("<bos1>", ")", "[", "]")


def test_symbols_of_samples_alone_are_read_as_themselves():
    """Validation strings need not have all symbols of a large alphabet."""
    reader, rows = reader_of_brackets()
    valid, sampled = (observations_of(reader, rows, strings) for strings in (["()"], ["()()", "[]()"]))
    letters = find_letters(reader, covering(valid, sampled))
    read = letters.read(sampled[1].ids, sampled[1].features)
    assert [SYMBOLS[letters.symbol_of(each)] for each in read[1:]] == list("[]()")
    with pytest.raises(KeyError):
        find_letters(reader, valid).read(sampled[1].ids, sampled[1].features)
    padded = find_letters(reader, valid).read(np.array([0]), valid[0].features[:1])
    assert len(padded) == 1


def test_transitions_are_kept_in_the_order_of_the_steps():
    """The numbers of controls, and so what is merged first, are the same in every process."""
    reader, rows = reader_of_brackets()
    (observed,) = observations_of(reader, rows, ["[(([]))][([])]"])
    letters, evidence = find_letters(reader, [observed]), Evidence()
    read = letters.read(observed.ids, observed.features)
    evidence.add(read, observed.runs, letters.vectors)
    pairs = dict.fromkeys((each.before, each.letter) for each in evidence.transitions)
    assert list(pairs) == list(dict.fromkeys(pairwise(read)))


def test_runs_are_those_of_each_prefix():
    """The run of a prefix pushes what is probable so far; the whole string, which pops 2, needs a push of 2."""
    reader, rows = reader_of_brackets()
    moves = 3
    guess = torch.full((1, moves, 2 * moves + 1), -20.0)
    guess[0, 0, 1], guess[0, 0, 2] = 0.0, -1.0  # push 1 rather than 2, on the bottom
    rows[3] = torch.cat([guess.flatten() - reader._offset(), torch.zeros(2)])
    (observed,) = observations_of(reader, rows, ["(]"])
    assert [each[1].symbol for each in observed.runs[1:]] == [1, 2]
    assert [each.action for each in observed.runs[-1]] == ["replace", "push", "pop"]


def test_projections_are_read_and_replaced_in_one_thread():
    reader, x, seen = SuperpositionReader(SuperpositionStackAttention(4, 2)), torch.ones(1, 3, 4), []
    with ThreadPoolExecutor(1) as other:
        expected = reader.layer(x)
        with projection_hook(reader, lambda output: seen.append(output) or -output):
            assert torch.equal(other.submit(reader.layer, x).result(), expected)
            assert not torch.allclose(reader.layer(x), expected)
    assert len(seen) == 1


def test_a_superposition_stack_shows_its_most_probable_actions():
    reader = SuperpositionReader(SuperpositionStackAttention(4, 2))
    output = torch.tensor([[[0.0, 9, 0, 0, 0], [9, 0, 0, 1, 1], [0, 0, 9, 0, 0], [0, 0, 9, 0, 0]]])
    (runs,) = reader.runs(output, torch.tensor([4]))
    assert [each.action for each in runs[-1]] == ["replace", "push", "pop", "replace"]  # a pop of nothing keeps it
    only = reader.only([Allowed(0, 0, Step("pop", 0, 0))])
    assert torch.softmax(only, -1).tolist() == [0, 0, 1]


def test_features_and_weights_are_inverse_up_to_a_constant():
    reader, _ = reader_of_brackets()
    output = torch.randn(2, 3, sum(reader.sizes))
    again = reader.features(reader.weights(reader.features(output)))
    torch.testing.assert_close(again, reader.features(output))


def test_letters_split_what_differs_and_merge_vectors_that_are_close():
    reader = SuperpositionReader(SuperpositionStackAttention(4, 2))
    draw = np.random.default_rng(0)
    ids = np.array([3, 4] * 50)
    features = np.where(np.arange(100)[:, None] % 4 == 0, [0.0, -9, -9], [-9, 0.0, -9]) + draw.normal(0, 0.1, (100, 3))
    values = np.where(ids[:, None] == 3, 5.0, 4.8) + np.zeros((100, 2))
    letters = find_letters(reader, [Observation(ids, features, values, np.zeros((100, 3)))])
    assert [len(each) for each in letters.of_symbol.values()] == [2, 1]
    assert letters.num_vectors == 1
    read = letters.read(ids, features)
    assert read == letters.read_batch(torch.from_numpy(ids)[None], torch.from_numpy(features)[None])[0].tolist()
    assert len(set(read[::4])) == 1
    assert set(read[::4]).isdisjoint(read[2::4])


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
        (0.0, 0.0, 0.9, True, "no automaton agrees"),
        (0.0, 0.0, None, None, "no automaton agrees"),
    ],
)
def test_verdict(of_letters, of_transitions, agreement, equal, kind):
    marked, dyck = (Recognizer(GRAMMARS[name]()) for name in ("marked-reversal", "dyck"))
    comparison = None if equal is None else compare(marked, marked if equal else dyck, "01#", 3)
    checks = Checks(of_letters, of_transitions, Threshold(1e-3, 20.0, 2e-4, 4e-3))
    assert verdict_of(checks, agreement, comparison, has_truth=True).kind == kind


@pytest.mark.parametrize(("of_disabled", "needed"), [(0.0006, False), (-0.03, False), (0.02, True), (1.2, True)])
def test_verdict_says_where_the_model_does_not_need_the_stack(of_disabled, needed):
    dyck = Recognizer(GRAMMARS["dyck"]())
    checks = Checks(0.0, 0.0, Threshold(1e-3, 20.0, 2e-4, 4e-3), of_disabled)
    verdict = verdict_of(checks, 1.0, compare(dyck, dyck, SYMBOLS[3:], 3), has_truth=True)
    assert verdict.kind == "exact"
    remark = f"the model does not need this stack: disabling it costs {of_disabled:+.4f} nats per token"
    assert verdict.reasons[1:] == (() if needed else (remark,))


@pytest.mark.parametrize("name", ["nondeterministic", "superposition"])
def test_a_disabled_stack_does_not_read_the_string(run_dirs, name):
    run = open_run(run_dirs[name])
    reader = stack_reader(run)
    outputs = torch.randn(2, 5, sum(reader.sizes), dtype=torch.double)
    features, values = reader.features(outputs), outputs[..., reader.sizes[0] :]
    both = zip(features.numpy(), values.numpy(), strict=True)
    observed = [Observation(np.arange(5), *rows, np.zeros((5, 1))) for rows in both]
    for replacement in disabled(reader, observed):
        new = replacement(torch.zeros(2, 5), outputs.float())
        assert new.shape == outputs.shape
        assert (new == new[:1, :1]).all()
    still = next(iter(disabled(reader, observed)))(torch.zeros(2, 5), outputs.float())
    (runs,) = reader.runs(still[:1], torch.tensor([5]))
    assert set(runs[-1]) == {Step("replace", 0, 0)}


def bounded_dyck(depth):
    """Return the non-empty strings of brackets that are nested at most this deep."""
    rules = [rule("S0", "", 1)]
    for d in range(1, depth + 1):
        nested = [f"{a} S{d - 1} {b} S{d}" for a, b in ("()", "[]")]
        rules += [rule(left, right, 1) for left, right in product([f"S{d}", f"T{d}"], nested)] + [rule(f"S{d}", "", 1)]
    return Recognizer(pruned(f"T{depth}", SYMBOLS[3:], rules))


def test_an_automaton_that_differs_on_validation_strings_is_not_exact():
    """Nesting deeper than the exhaustive comparison reaches."""
    bounded, dyck, deep = bounded_dyck(6), Recognizer(GRAMMARS["dyck"]()), "(" * 7 + ")" * 7
    along = [pairs_along(bounded, dyck, string) for string in ("()", deep)]
    short = compare(bounded, dyck, SYMBOLS[3:], 5)
    assert short.is_equal
    assert with_strings(short, along[:1]) == short
    found = with_strings(short, along)
    assert found.difference.prefix == tuple("(" * 6)
    assert found.counterexample == tuple(deep)
    assert not found.in_first
    checks = Checks(0.0, 0.0, Threshold(1e-3, 20.0, 2e-4, 4e-3))
    verdict = verdict_of(checks, 1.0, found, None, has_truth=True)
    assert verdict.kind == "other language"
    assert f"only the language has {' '.join(deep)}" in verdict.reasons[0]


def test_extraction_compares_validation_strings_beyond_the_short_ones(read_one, monkeypatch):
    """The automaton has what the language has up to the length of the exhaustive comparison, and no longer strings."""
    run, _ = read_one
    monkeypatch.setattr(pipeline, "Simulator", lambda automaton: bounded_dyck(3))
    monkeypatch.setattr(pipeline, "true_grammar", lambda run: GRAMMARS["dyck"]())
    again = extract(run, ExtractionSettings(strings=20, max_length=2))
    assert again.comparison.max_length == 2
    assert again.trained.extracted_truth.value < 1
    assert not again.comparison.is_equal
    assert len(again.comparison.difference.prefix) > 2


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
    checks = Checks(0.0, 0.0, Threshold(1e-3, 20.0, 2e-4, 4e-3))
    assert verdict_of(checks, 1.0, comparison, sides(nested), has_truth=True).kind == "other language"
    verdict = verdict_of(checks, 1.0, comparison, sides(dyck), has_truth=True)
    assert verdict.kind == "no automaton agrees"
    assert "sides with the language in 100%" in verdict.reasons[0]
    assert sides_with_extracted(pairs[:1], [np.zeros(5)], modelled, min_length=0) is None


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


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extraction")
    prepare_formal_language(folder / "dyck", "dyck", sizes=FormalLanguageSizes(16, 4, 2, (6, 12), (8, 12)))
    found = {}
    for name, layers in (("nondeterministic", "1.nondeterministic-2-3-4.1"), ("superposition", "superposition-4"),
                         ("two", "superposition-4.superposition-4"), ("none", "1")):  # fmt: skip
        tree = {"task": "formal_language", "data": str(folder / "dyck"), "training": {"max_updates": 2}}
        tree["model"] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": layers}
        train(resolve_settings(tree, source="test"), folder / name)
        found[name] = folder / name
    return found


@pytest.mark.parametrize("name", ["nondeterministic", "superposition"])
def test_command_of_an_untrained_model_says_that_no_automaton_agrees(run_dirs, tmp_path, name):
    words = ["extract", str(run_dirs[name]), "-o", str(tmp_path), "--strings", "5", "--max-length", "4"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "no automaton agrees: " in result.output
    content = json.loads((tmp_path / "automaton.json").read_text())
    assert content["verdict"] == "no automaton agrees"
    stored = json.loads((run_dirs[name] / "analyses" / "extraction.json").read_text())
    assert stored["scores"]["exact"] == 0
    causal = content["causal_check"]
    assert causal["disabled_difference"] == pytest.approx(causal["disabled"] - causal["model"])
    assert f"{causal['disabled']:.4f} ({causal['disabled_difference']:+.4f})" in result.output
    assert "No automaton agrees" in (tmp_path / "extract.html").read_text()
    assert (
        (tmp_path / "grammar.cfg").exists()
        == (content["automaton"] is not None)
        == (tmp_path / "automaton.svg").exists()
    )
    if content["automaton"] is not None:
        assert read_language_file(tmp_path / "grammar.cfg").language.alphabet


def test_an_automaton_of_the_empty_string_alone_has_no_grammar(run_dirs, monkeypatch):
    """Which no file could have."""
    only_empty = Grammar("S", ("(", ")"), normalized([rule("S", "", 1)]))
    monkeypatch.setattr(pipeline, "minimized", lambda automaton: Minimal(automaton, only_empty, 4))
    found = extract(open_run(run_dirs["nondeterministic"]), ExtractionSettings(strings=5, max_length=4))
    assert found.minimal is None
    assert "the transitions accept no string with symbols" in found.verdict.reasons


def test_merges_that_lower_the_agreement_are_not_kept(run_dirs, monkeypatch):
    def spoiled(automaton):
        only = Transition(0, automaton.alphabet[0], 0, "replace", 1, 0)
        starts, finals = frozenset([Start(0, (0,))]), frozenset([Configuration(1, 0)])
        return minimized(PushdownAutomaton(automaton.alphabet, starts, {only: 1}, finals))

    monkeypatch.setattr(pipeline, "minimized", spoiled)
    found = extract(open_run(run_dirs["nondeterministic"]), ExtractionSettings(strings=20, max_length=4))
    assert found.minimal.max_length == 0
    whole = Simulator(found.automaton)
    assert compare(Simulator(found.minimal.automaton), whole, found.automaton.alphabet, 5).is_equal


@pytest.fixture
def read_one(run_dirs, monkeypatch):
    """Return a run and its extraction, without the second algorithm."""
    monkeypatch.setattr(pipeline, "learned_automata", lambda *arguments: ())
    run = open_run(run_dirs["superposition"])
    return run, extract(run, ExtractionSettings(strings=20, max_length=4))


def test_a_grammar_too_large_for_a_file_is_left_out_of_the_files(read_one, tmp_path, monkeypatch, capsys):
    run, found = read_one
    assert tmp_path / "grammar.cfg" in write_extraction(run, found, tmp_path)
    monkeypatch.setattr(draft, "MAX_SIZE", 3)
    found = replace(found, minimal=replace(found.minimal))
    assert tmp_path / "grammar.cfg" not in write_extraction(run, found, tmp_path)
    assert not (tmp_path / "grammar.cfg").exists()
    assert (tmp_path / "automaton.svg").exists()
    print_extraction(found)
    for text in (capsys.readouterr().out, (tmp_path / "extract.html").read_text()):
        assert "symbols in all rules; expected at most 3." in text
    content = json.loads((tmp_path / "automaton.json").read_text())
    assert content["grammar"] is None
    assert content["automaton"] is not None


def test_page_says_where_the_threshold_is_from(read_one):
    run, found = read_one
    assert found.threshold.origin == "fitted"
    assert "where model and automaton agree most" in extraction_page(run, found).decode()
    given = extract(run, ExtractionSettings(strings=20, max_length=4, threshold=0.02))
    page = extraction_page(run, given).decode()
    assert "2.00e-02, as given" in page
    assert "too narrow as prefixes of one string are not independent" in page
    assert "agree most" not in page


def test_a_threshold_without_the_gap_keeps_its_measured_factor():
    """Automata are also judged without the gap, which can be another one than that below what can follow."""
    threshold = Threshold(0.001, 34.0, 2e-4, 7e-3)
    judge = pipeline._Judge(None, ExtractionSettings(), threshold, Modelled(SYMBOLS, np.log(0.001)), None).without_gap()
    assert judge.threshold.factor == 34
    assert not judge.threshold.separates
    assert judge.modelled.log_threshold == np.log(judge.threshold.value)


def test_an_automaton_too_large_for_a_grammar_is_named(run_dirs, monkeypatch):
    monkeypatch.setattr(to_grammar, "MAX_RULES", 1)
    found = extract(open_run(run_dirs["nondeterministic"]), ExtractionSettings(strings=20, max_length=4))
    assert found.minimal is None
    assert any(each.startswith("the automaton is too large: ") for each in found.verdict.reasons)


def test_where_no_sampled_string_passes_the_threshold_the_verdict_says_so(run_dirs):
    found = extract(open_run(run_dirs["nondeterministic"]), ExtractionSettings(strings=20, max_length=4, threshold=0.9))
    assert "no sampled string has symbols above τ = 0.9 alone" in found.verdict.reasons


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.1, float("nan")])
def test_a_threshold_is_a_probability(threshold):
    with pytest.raises(UsageError, match="expected a probability above 0 and below 1"):
        ExtractionSettings(threshold=threshold)


@pytest.mark.parametrize(
    ("name", "value"),
    [("strings", 0), ("strings", -3), ("max_length", 0), ("max_length", -1), ("short_length", -1), ("layer", -1)],
)
def test_numbers_of_settings_have_bounds(name, value):
    with pytest.raises(UsageError, match=f"{name}={value}; expected at least"):
        ExtractionSettings(**{name: value})


def test_page_of_unknown_language_does_not_speak_of_another(read_one):
    run, found = read_one
    checks = Checks(0.0, 0.0, Threshold(1e-3, 20.0, 2e-4, 4e-3))
    verdict = verdict_of(checks, 1.0, None, has_truth=False)
    page = extraction_page(run, replace(found, verdict=verdict, comparison=None)).decode()
    assert "An automaton of another language" not in page
    assert "An automaton agrees with the model" in page


def test_files_that_no_extraction_has_written_are_kept(run_dirs, tmp_path):
    def extract_to(folder):
        words = ["extract", str(run_dirs["superposition"]), "-o", str(folder), "--strings", "5", "--max-length", "3"]
        return CliRunner().invoke(app, words)

    own = tmp_path / "grammar.cfg"
    own.write_text("S -> a S | a\n")
    refused = extract_to(tmp_path)
    assert refused.exit_code == 1
    assert "grammar.cfg: is not of an earlier extraction" in refused.stderr
    assert "is not a folder" in extract_to(own).stderr
    with pytest.raises(NotADirectoryError, match=r"grammar\.cfg"):  # before strings are sampled
        require_folder(own / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["grammar.cfg"]
    assert own.read_text() == "S -> a S | a\n"
    assert [extract_to(tmp_path / "new").exit_code for _ in range(2)] == [0, 0]


def test_a_run_without_one_stack_is_refused(run_dirs):
    with pytest.raises(UsageError, match="0 stacks; expected a nondeterministic"):
        stack_reader(open_run(run_dirs["none"]))
    with pytest.raises(UsageError, match="2 stacks; expected one of the layers with stacks: 0, 1"):
        stack_reader(open_run(run_dirs["two"]))
    with pytest.raises(UsageError, match="0 stacks in layer 9; expected one of the layers with stacks: 1"):
        stack_reader(open_run(run_dirs["nondeterministic"]), 9)
    assert isinstance(stack_reader(open_run(run_dirs["two"]), 1), SuperpositionReader)


def test_a_model_of_another_kind_is_named():
    model = SimpleNamespace(kind="lstm")
    run = SimpleNamespace(run_dir=Path("runs/lstm"), model=None, settings=SimpleNamespace(model=model))
    with pytest.raises(UsageError, match="runs/lstm: is a model of kind 'lstm'; expected a transformer language model"):
        stack_reader(run)


def test_a_run_on_other_data_is_refused():
    recognizer = SimpleNamespace(run_dir=Path("runs/copy"), prepared=SimpleNamespace(kind="recognition"))
    with pytest.raises(UsageError, match="runs/copy: its data are of kind 'recognition'; expected 'formal_language'"):
        extract(recognizer)


def test_report_links_the_page_of_the_automaton(run_dirs, tmp_path):
    words = ["extract", str(run_dirs["superposition"]), "-o", str(tmp_path / "automaton"), "--strings", "5"]
    assert CliRunner().invoke(app, [*words, "--max-length", "3"]).exit_code == 0
    assert (
        CliRunner().invoke(app, ["report", str(run_dirs["superposition"]), "-o", str(tmp_path / "report")]).exit_code
        == 0
    )
    page = (tmp_path / "report" / "index.html").read_text()
    assert "What the stacks have learned" in page
    assert 'href="../automaton/extract.html"' in page
    assert "no automaton agrees" in page
