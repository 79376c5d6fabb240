"""Extraction from runs: pipeline, files, page and the command."""

import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.program import invoke, succeed

from structattn.cli.extract import _print as print_extraction
from structattn.extraction import pipeline, to_grammar
from structattn.extraction.agreement import Modelled
from structattn.extraction.automaton import Configuration, PushdownAutomaton, Start, Transition
from structattn.extraction.calls import Oracle
from structattn.extraction.causal import disabled
from structattn.extraction.comparison import compare, pairs_along, with_strings
from structattn.extraction.configurations import Simulator
from structattn.extraction.files import require_folder, write_extraction
from structattn.extraction.minimization import Minimal, minimized
from structattn.extraction.observations import observe
from structattn.extraction.page import extraction_page
from structattn.extraction.pipeline import ExtractionSettings, extract
from structattn.extraction.reading import CausalCheck, Strings, Subject, best_reading, short_strings, validation_strings
from structattn.extraction.stacks import (
    Observation,
    Step,
    SuperpositionReader,
    stack_reader,
)
from structattn.extraction.threshold import Threshold
from structattn.extraction.verdict import verdict_of
from structattn.extraction.visibly_pushdown import Letter
from structattn.loading.runs import open_run
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.grammar import Grammar, normalized, pruned, rule
from structattn.tasks.formal_languages.language_files import draft
from structattn.tasks.formal_languages.language_files.language_file import read_language_file
from structattn.tasks.formal_languages.next_symbols import Recognizer
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import GRAMMARS
from structattn.training.run_training import train

SYMBOLS = ("<pad>", "<bos>", "<eos>", "(", ")", "[", "]")
THRESHOLD = Threshold(1e-3, 20.0, 2e-4, 4e-3)


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
    causal = CausalCheck(0.0, 0.0, 0.0, disabled=1.0)
    verdict = verdict_of(causal, THRESHOLD, 1.0, found, None)
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
    result = succeed("extract", run_dirs[name], "-o", tmp_path, "--strings", "5", "--max-length", "4")
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


def test_strings_are_no_longer_than_the_positions_of_the_model(tmp_path):
    prepare_formal_language(tmp_path / "dyck", "dyck", sizes=FormalLanguageSizes(16, 4, 2, (2, 2), (2, 2)))
    tree = {"task": "formal_language", "data": str(tmp_path / "dyck"), "training": {"max_updates": 2}}
    tree["model"] = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "superposition-4",
                     "positions": {"kind": "learned", "max_positions": 4}}  # fmt: skip
    train(resolve_settings(tree, source="test"), tmp_path / "run")
    run = open_run(tmp_path / "run")
    subject = Subject(run, stack_reader(run), [], [])
    modelled = Modelled(run.prepared.vocabulary.symbols, -np.inf)
    assert {len(each.ids) - 1 for each in short_strings(subject, modelled, 12, with_runs=False)} == {0, 1, 2, 3}
    oracle = Oracle(subject, SimpleNamespace(first=False, symbols=modelled.symbols), modelled, (0, 9))
    assert not oracle._accepted([4 * (Letter("(", "call"),)], ends=False).any()
    assert subject.readable(12) == 3


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
    assert tmp_path / "grammar.cfg" in write_extraction(run, found, str(tmp_path))
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
    [
        ("strings", 0),
        ("strings", -3),
        ("strings", 2.5),
        ("max_length", 0),
        ("max_length", -1),
        ("max_length", "9"),
        ("short_length", -1),
        ("layer", -1),
        ("seed", -1),
    ],
)
def test_numbers_of_settings_have_bounds(name, value):
    with pytest.raises(UsageError, match=f"{name}={value!r}; expected a whole number of at least"):
        ExtractionSettings(**{name: value})


def test_page_of_unknown_language_does_not_speak_of_another(read_one):
    run, found = read_one
    causal = CausalCheck(0.0, 0.0, 0.0, disabled=1.0)
    verdict = verdict_of(causal, THRESHOLD, 1.0, None)
    page = extraction_page(run, replace(found, verdict=verdict, comparison=None)).decode()
    assert "An automaton of another language" not in page
    assert "An automaton agrees with the model" in page


def test_files_that_no_extraction_has_written_are_kept(run_dirs, tmp_path):
    def extract_to(folder):
        return invoke("extract", run_dirs["superposition"], "-o", folder, "--strings", "5", "--max-length", "3")

    own = tmp_path / "grammar.cfg"
    own.write_text("S -> a S | a\n")
    refused = extract_to(tmp_path)
    assert refused.exit_code == 1
    assert "expected a new folder, or that of an earlier extraction; found 'grammar.cfg'" in refused.stderr
    assert "is a file; expected a new folder" in extract_to(own).stderr
    with pytest.raises(NotADirectoryError, match=r"grammar\.cfg"):  # before strings are sampled
        require_folder(own / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["grammar.cfg"]
    assert own.read_text() == "S -> a S | a\n"
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".automaton.json.0123abcd").touch()  # of one that was killed
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


def test_a_looped_model_is_refused():
    settings = LanguageModelSettings(d_model=4, num_heads=2, d_ff=4, layers="1.superposition-3", loops=2)
    run = SimpleNamespace(run_dir=Path("runs/looped"), model=build_model(settings, 5))
    with pytest.raises(UsageError, match="runs/looped: has loops, in which a stack runs several times"):
        stack_reader(run)


def test_a_run_on_other_data_is_refused():
    recognizer = SimpleNamespace(run_dir=Path("runs/copy"), prepared=SimpleNamespace(kind="recognition"))
    with pytest.raises(UsageError, match="runs/copy: its data are of kind 'recognition'; expected 'formal_language'"):
        extract(recognizer)


def test_report_links_the_page_of_the_automaton(run_dirs, tmp_path):
    folder = tmp_path / os.fsdecode(b"automaton #1 \xff")
    run = open_run(run_dirs["superposition"])
    write_extraction(run, extract(run, ExtractionSettings(strings=5, max_length=3)), folder)
    assert invoke("report", run_dirs["superposition"], "-o", tmp_path / "report").exit_code == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "What the stacks have learned" in page
    assert "best runs of prefixes" not in page  # it may have been learned
    assert 'href="../automaton%20%231%20%FF/extract.html"' in page
    assert "no automaton agrees" in page


def test_the_causal_check_takes_first_steps_from_short_strings_too(run_dirs):
    run = open_run(run_dirs["nondeterministic"])
    reader, strings = stack_reader(run), validation_strings(run)
    observed = observe(run, reader, strings, with_runs=True)
    subject = Subject(run, reader, strings, observed)
    alike = [Strings(observed, observed, 1), Strings(observed, [], 1), Strings([], observed, 1)]
    assert len({best_reading(subject, each).causal.extracted for each in alike}) == 1
