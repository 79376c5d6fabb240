"""Receptive fields against the true dependencies of the stack language."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import open_run
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.dependencies import dependency_scores, true_dependencies
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import formal_language
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

SYMBOLS = {symbol: index for index, symbol in enumerate(formal_language("stack-language").alphabet)}


def indices(text):
    return np.array([SYMBOLS[symbol] for symbol in text.split()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 ( 1 ( ( 3", ["#.....", ".#....", ".##...", "...#..", "...##.", "...###"]),
        ("( ( 2 ) 1", ["#....", "##...", "###..", "...#.", "...##"]),
        ("4", ["#"]),
    ],
)
def test_a_prediction_depends_on_the_last_digit_and_later_symbols(text, expected):
    """Rows: predictions of the symbols; columns: <bos>, which has level 0 before the first digit, and the symbols."""
    found = ["".join("#" if needed else "." for needed in row) for row in true_dependencies(indices(text))]
    assert found == expected


class Copies(torch.nn.Module):
    """A model of one layer with one head whose weights are given."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.Parameter(weights)

    def attend(self, tokens, lengths):
        return None, [self.weights.expand(len(tokens), 1, -1, -1)]


@pytest.fixture
def run_folder(tmp_path):
    prepare_formal_language(tmp_path / "data", "stack-language", sizes=FormalLanguageSizes(40, 10, 4, (8, 8), (8, 8)))
    tree = {
        "task": "formal_language",
        "data": str(tmp_path / "data"),
        "model": {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": [{"attention": "hard"}] * 2},
        "training": {"loss": "token_mean", "receptive_field_weight": 0.1, "max_updates": 3, "max_epochs": None},
    }
    train(resolve_settings(tree), tmp_path / "run")
    return tmp_path / "run"


def test_scores_equal_manual_counts(run_folder):
    run = open_run(run_folder, "best")
    weights = torch.zeros(9, 9)
    weights[torch.arange(1, 9), torch.arange(8)] = 1  # each position looks at the one before
    strings = [np.asarray(sequence) - 3 for sequence in run.prepared.split("test")]
    found = dependency_scores(replace(run, model=Copies(weights)), "test")
    field = np.eye(8) + np.eye(8, k=-1)
    truths = [true_dependencies(string) for string in strings]
    both = sum((truth * field).sum() for truth in truths)
    assert found.predictions == 8 * len(strings)
    assert found.precision == pytest.approx(both / (15 * len(strings)))
    assert found.recall == pytest.approx(both / sum(truth.sum() for truth in truths))
    assert found.mean_field_size == pytest.approx(15 / 8)
    own = [(truth * field).sum(1) / truth.sum(1) for truth in truths]
    assert found.mean_recall == pytest.approx(np.mean(own))
    inner = sum((truth * field)[:, 1:].sum() for truth in truths)
    assert found.precision_of_symbols == pytest.approx(inner / (13 * len(strings)))


def test_evaluation_writes_dependency_scores_deterministically(run_folder):
    scores = evaluate(run_folder, "test")
    assert 0 < scores.dependencies.precision <= 1
    assert 0 < scores.dependencies.recall <= 1
    stored = json.loads((run_folder / "scores/test.json").read_text())
    assert stored["dependencies"]["precision"] == scores.dependencies.precision
    assert evaluate(run_folder, "test").dependencies == scores.dependencies


def test_short_strings_have_dependencies_if_any(run_folder, tmp_path):
    run = open_run(run_folder, "last")
    for name, lengths in (("empty too", (0, 3)), ("none", (0, 1))):
        prepare_formal_language(tmp_path / name, "stack-language", sizes=FormalLanguageSizes(4, 4, 9, (8, 8), lengths))
        found = dependency_scores(replace(run, prepared=open_prepared(tmp_path / name)), "test")
        assert (found is None) == (name == "none")


def test_records_have_the_predicted_and_the_true_receptive_field(run_folder):
    (example,) = read_recording(analyze(run_folder, "test")).examples
    (record,) = (each for each in example.records if each.mechanism == "receptive_field")
    assert record.layer == 1
    field, truth = record.weights, record.truth
    assert field.shape == truth.shape == (9, 9)
    assert set(np.unique(field)) <= {0, 1}
    assert (np.diag(field) == 1).all()
    assert not np.triu(field, 1).any()
    string = np.asarray(open_run(run_folder, "best").prepared.split("test")[0]) - 3
    np.testing.assert_array_equal(truth[:8, :8], true_dependencies(string))
