"""Comparison of results with published numbers and claims."""

import json

import pytest
from typer.testing import CliRunner

from structattn.cli.main import app
from structattn.settings.sweep import SweepSettings, load_sweep
from structattn.support.errors import SettingsError, StructattnError
from structattn.sweeps.comparison import check_claims, compare_with_published
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.table import TableRow, sample_statistics
from structattn.sweeps.trials import make_trials


def row(cell, validation, accuracy=()):
    accuracies = {"test": {"accuracy": sample_statistics(accuracy)}} if accuracy else {}
    selected = {"test": {"accuracy": accuracy[0]}} if accuracy else {}
    return TableRow(cell, min(validation), "x", sample_statistics(validation), {}, selected, accuracies)


@pytest.fixture
def expectations(tree):
    """A sweep of two languages and two models with published numbers in percent."""

    def make(published=(), claims=()):
        return SweepSettings.model_validate(
            {**tree, "evaluate": {"test": "all"}, "published": published, "claims": claims}
        )

    return make


MARKED, DYCK = (
    ({"language": "w#w^R", "model": model} for model in ("Tf", "Tf+Sup")),
    {"language": "Dyck", "model": "Tf"},
)
TF, SUP = MARKED


@pytest.mark.parametrize(
    ("published", "accuracies", "inside"),
    [
        (99.0, (0.98, 0.99, 1.0), True),
        (92.0, (0.98, 0.99, 1.0), False),
        (100.0, (0.9997, 0.9997), True),  # as printed to one digit
        (99.9, (0.9984, 0.9984), False),
        (99.0, (0.99,), None),  # one trial has no interval
    ],
)
def test_published_numbers_are_inside_or_outside_the_interval(expectations, published, accuracies, inside):
    table = {"source": "Table 1", "score": "test.accuracy", "statistic": "mean", "unit": 0.01, "rounding": 0.05}
    sweep = expectations([{**table, "values": [{"cell": TF, "value": published, "deviation": 0.4}]}])
    (found,) = compare_with_published(sweep.published, [row(TF, (0.1,), accuracies)])
    assert (found.source, found.cell, found.published, found.deviation) == ("Table 1", TF, published, 0.4)
    assert found.ours == pytest.approx(100 * sum(accuracies) / len(accuracies))
    assert (found.trials, found.inside) == (len(accuracies), inside)


def test_cells_without_results_are_not_compared(expectations):
    sweep = expectations([{"source": "s", "values": [{"cell": SUP, "value": 0.1}]}])
    (found,) = compare_with_published(sweep.published, [row(TF, (0.2, 0.3))])
    assert (found.ours, found.interval, found.trials, found.inside) == (None, None, 0, None)


def test_claims_are_checked_for_every_matching_cell(expectations):
    sweep = expectations(
        claims=[
            {"description": "small", "cell": {"model": ["Tf", "Tf+Sup"], "language": "w#w^R"}, "at_most": 0.1},
            {"description": "better", "cell": {"model": "Tf+Sup"}, "below": {"model": "Tf"}},
            {"description": "right", "cell": TF, "score": "test.accuracy", "statistic": "max", "at_least": 0.9},
        ]
    )
    rows = [row(TF, (0.2, 0.3), (0.85, 0.9)), row(SUP, (0.1, 0.4)), row(DYCK, (0.1,))]
    cells = [TF, SUP, DYCK, {**DYCK, "model": "Tf+Sup"}]
    found = [
        (v.description, v.cell["language"], v.ours, v.bound, v.holds) for v in check_claims(sweep.claims, cells, rows)
    ]
    assert found == [
        ("small", "w#w^R", 0.2, 0.1, False),
        ("small", "w#w^R", 0.1, 0.1, True),
        ("better", "w#w^R", 0.1, 0.2, True),
        ("better", "Dyck", None, 0.1, None),
        ("right", "w#w^R", 0.9, 0.9, True),
    ]


@pytest.mark.parametrize(
    ("published", "claims", "message"),
    [
        ([{"source": "s", "values": [{"cell": {"model": "Tf"}, "value": 1}]}], [], "no value for language"),
        (
            [{"source": "s", "values": [{"cell": {**TF, "model": "x"}, "value": 1}]}],
            [],
            "'x' is not a value of 'model'",
        ),
        ([], [{"description": "c", "cell": {"size": "big"}, "at_most": 1}], "'size' is not an axis"),
        ([], [{"description": "c", "at_most": 1, "at_least": 0}], "expected one of at_most.*found at_most, at_least"),
        ([], [{"description": "c"}], "expected one of at_most.*found none"),
    ],
)
def test_claims_without_a_matching_cell_are_rejected(expectations, published, claims, message):
    with pytest.raises(ValueError, match=message):
        expectations(published, claims)


def test_claims_and_published_numbers_do_not_rename_trials(tree, expectations, tmp_path):
    plain = make_trials(SweepSettings.model_validate(tree), tmp_path)
    held = make_trials(expectations(claims=[{"description": "c", "at_most": 1}]), tmp_path)
    assert [trial.name for trial in held] == [trial.name for trial in plain]


def write_run(folder, score, accuracy):
    (folder / "scores").mkdir(parents=True)
    events = [
        {"event": "validation", "update": 1, "cross_entropy": 1.0, "cross_entropy_difference": score},
        {"event": "end", "best_update": 1},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "scores" / "test.json").write_text(json.dumps({"split": "test", "accuracy": accuracy}))


def test_the_command_prints_and_writes_the_results(tree, tmp_path):
    tree["published"] = [
        {"source": "Table 7", "score": "test.accuracy", "statistic": "mean", "values": [{"cell": TF, "value": 0.5}]}
    ]
    tree["claims"] = [{"description": "close to the bound", "cell": TF, "at_most": 0.05}]
    tree["evaluate"] = {"test": "all"}
    recipe = tmp_path / "sweep.json"  # JSON is YAML
    recipe.write_text(json.dumps(tree))
    trials = [trial for trial in make_trials(load_sweep(recipe), tmp_path / "out") if trial.cell == TF]
    for trial, score in zip(trials, (0.04, 0.06), strict=True):
        write_run(tmp_path / "out/runs" / trial.name, score, 0.5 + score)
    kept = tmp_path / "kept.json"
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--recipe", str(recipe), "-o", str(kept)])
    assert shown.exit_code == 0, shown.output
    for words in ("Table 7", "inside", "close to the bound", "holds", "2 of 8 trials"):
        assert words in shown.output
    found = json.loads(kept.read_text())
    assert found["comparisons"][0]["ours"] == pytest.approx(0.55)
    assert found["claims"][0]["holds"] is True
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    assert SweepSettings.model_validate(found["settings"]) == SweepSettings.model_validate(
        {key: value for key, value in tree.items() if key not in ("published", "claims")}
    )


def test_a_folder_without_trials_of_the_sweep_is_rejected(sweep, tmp_path):
    with pytest.raises(StructattnError, match="none of the 8 trials of the sweep has ended in this folder"):
        read_sweep_results(sweep, tmp_path)


def test_an_invalid_recipe_is_rejected_with_its_path(tree, tmp_path):
    tree["claims"] = [{"description": "c", "at_most": 1, "cell": {"model": "GPT"}}]
    (tmp_path / "sweep.json").write_text(json.dumps(tree))
    with pytest.raises(SettingsError, match=r"claims.0: 'GPT' is not a value of 'model'"):
        load_sweep(tmp_path / "sweep.json")


def test_only_a_mean_has_an_interval_over_trials(expectations):
    table = {"source": "Table 1", "score": "validation", "statistic": "min"}
    sweep = expectations([{**table, "values": [{"cell": TF, "value": 0.15}]}])
    (found,) = compare_with_published(sweep.published, [row(TF, (0.1, 0.2))])
    assert (found.ours, found.interval, found.inside) == (0.1, None, None)
