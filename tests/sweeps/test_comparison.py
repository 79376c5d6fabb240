"""Comparison of results with published numbers and claims."""

import json
from dataclasses import replace

import pytest
from tests.program import succeed

from structattn.cli.sweep_view import print_claims
from structattn.metrics.statistics import sample_statistics
from structattn.settings.sweep import SweepSettings, load_sweep
from structattn.support.errors import SettingsError, StructattnError
from structattn.support.json_files import write_json
from structattn.sweeps import worker as work
from structattn.sweeps.comparison import ClaimResult, check_claims, compare_with_published
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.table import TableRow
from structattn.sweeps.trials import make_trials, require_published


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


SAME = {"model.d_model": 4}  # a published setting that our cells have, too
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
    table = {"source": "Table 1", "score": "test.accuracy", "statistic": "mean", "settings": SAME}
    table |= {"unit": 0.01, "rounding": 0.05}
    sweep = expectations([{**table, "values": [{"cell": TF, "value": published, "deviation": 0.4}]}])
    (found,) = compare_with_published(sweep, [row(TF, (0.1,), accuracies)])
    assert (found.source, found.cell, found.published, found.deviation) == ("Table 1", TF, published, 0.4)
    assert found.ours == pytest.approx(100 * sum(accuracies) / len(accuracies))
    assert (found.trials, found.inside) == (len(accuracies), inside)


PUBLISHED = {"source": "s", "score": "test.accuracy", "statistic": "mean", "values": [{"cell": SUP, "value": 0.5}]}


@pytest.mark.parametrize(
    ("settings", "differences"),
    [
        ({"model.d_model": 4, "model.layers": "1xsuperposition-2"}, ()),  # another way to write what the cell has
        ({"model.d_model": 32, "model.num_heads": 1}, ("model.d_model is 4, published 32",)),
        (
            {"model.layers": [{"attention": "superposition", "stack_embedding_size": 2, "pushed_activation": "none"}]},
            ("model.layers.pushed_activation is sigmoid, published none",),
        ),
        ({"prepare.test_lengths": [2, 9]}, ("prepare.test_lengths is [2, 8], published [2, 9]",)),
        ({"training.optimizer.learning_rate": 0.1}, ()),  # sampled here
        ({"training.max_grad_norm": None}, ("training.max_grad_norm is 5.0, published null",)),
    ],
)
def test_differences_of_configuration_are_computed(expectations, settings, differences):
    sweep = expectations([{**PUBLISHED, "settings": settings}])
    (found,) = compare_with_published(sweep, [row(SUP, (0.1,), (0.4, 0.6))])
    assert found.differences == differences
    assert found.inside is (None if differences else True)


def test_stated_differences_are_added(expectations):
    values = [{"cell": SUP, "value": 0.5, "settings": {"model.d_ff": 8}, "differences": ["published in base 3"]}]
    table = {**PUBLISHED, "settings": {"model.d_ff": 4}, "differences": ["published without padding"], "values": values}
    (found,) = compare_with_published(expectations([table]), [row(SUP, (0.1,), (0.4, 0.6))])
    assert found.differences == (
        "model.d_ff is 4, published 8",
        "published without padding",
        "published in base 3",
    )
    assert (found.ours, found.inside) == (0.5, None)


def test_equal_differences_of_several_layers_appear_once(expectations):
    sweep = expectations([{**PUBLISHED, "settings": {"model.layers": "2xsuperposition-3"}}])
    (found,) = compare_with_published(sweep, [])
    assert len(found.differences) == len(set(found.differences))
    assert "model.layers.stack_embedding_size is 2, published 3" in found.differences


def test_layers_that_one_configuration_lacks_are_counted(expectations):
    """Ours has one layer; the other's first layer is compared with it, the second with nothing."""
    sweep = expectations([{**PUBLISHED, "settings": {"model.layers": "1xsuperposition-3.1"}}])
    (found,) = compare_with_published(sweep, [])
    assert found.differences == (
        "the number of model.layers is 1, published 2",
        "model.layers.stack_embedding_size is 2, published 3",
    )


def test_invalid_published_settings_are_refused(expectations):
    sweep = expectations([{**PUBLISHED, "settings": {"model.layer": 2}}])
    for check in (require_published, lambda sweep: compare_with_published(sweep, [])):
        with pytest.raises(SettingsError, match=r"published settings of w#w\^R Tf\+Sup: model.layer: "):
            check(sweep)


def test_cells_without_results_are_not_compared(expectations):
    sweep = expectations([{"source": "s", "settings": SAME, "values": [{"cell": SUP, "value": 0.1}]}])
    (found,) = compare_with_published(sweep, [row(TF, (0.2, 0.3))])
    assert (found.ours, found.interval, found.trials, found.inside) == (None, None, 0, None)


def test_claims_are_checked_for_every_matching_cell(expectations):
    sweep = expectations(
        claims=[
            {"description": "small", "cell": {"model": ["Tf", "Tf+Sup"], "language": "w#w^R"}, "at_most": 0.1},
            {"description": "better", "cell": {"model": "Tf+Sup"}, "below": {"model": "Tf"}},
            {"description": "right", "cell": TF, "score": "test.accuracy", "at_least": 0.8},
        ]
    )
    rows = [row(TF, (0.2, 0.205, 0.21), (0.85, 0.86, 0.87)), row(SUP, (0.1, 0.106, 0.11)), row(DYCK, (0.1,))]
    cells = [TF, SUP, DYCK, {**DYCK, "model": "Tf+Sup"}]
    found = [
        (v.description, v.cell["language"], v.ours, v.bound, v.judgement and v.judgement.verdict)
        for v in check_claims(sweep.claims, cells, rows)
    ]
    assert found == [
        ("small", "w#w^R", pytest.approx(0.205), 0.1, "fails"),
        ("small", "w#w^R", pytest.approx(0.316 / 3), 0.1, "undecided"),
        ("better", "w#w^R", pytest.approx(0.316 / 3), pytest.approx(0.205), "holds"),
        ("better", "Dyck", None, 0.1, None),
        ("right", "w#w^R", pytest.approx(0.86), 0.8, "undecided"),  # without seed 3: 0.855 ± 0.064
    ]


@pytest.mark.parametrize(("seeds", "verdict"), [((1, 2, 3, 4), "holds"), ((5, 6, 7, 8), "undecided")])
def test_shared_seeds_are_compared_in_pairs(expectations, seeds, verdict):
    sweep = expectations(claims=[{"description": "better", "cell": SUP, "below": {"model": "Tf"}}])
    first = replace(row(TF, (1.0, 2.0, 3.0, 4.0)), seeds={"validation": (1, 2, 3, 4)})
    second = replace(row(SUP, (0.9, 1.89, 2.91, 3.9)), seeds={"validation": seeds})
    (found,) = check_claims(sweep.claims, [SUP], [first, second])
    assert (found.judgement.verdict, found.judgement.difference.pairs) == (verdict, 4 if verdict == "holds" else 0)
    assert found.judgement.difference.value == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("relation", "margin", "verdict"),
    [("below", 0.2, "fails"), ("below", 0.1, "holds"), ("below", -0.1, "holds"), ("above", 0.0, "fails"),
     ("above", -0.1, "fails"), ("above", -0.2, "holds")],
)  # fmt: skip
def test_claims_can_have_a_margin(expectations, relation, margin, verdict):
    claim = {"description": "c", "cell": SUP, relation: {"model": "Tf"}, "margin": margin}
    rows = [row(TF, (0.65, 0.65, 0.65)), row(SUP, (0.5, 0.5, 0.5))]
    (result,) = check_claims(expectations(claims=[claim]).claims, [SUP], rows)
    assert (result.ours, result.bound, result.judgement.verdict) == (0.5, 0.65, verdict)


def test_claims_on_types_of_errors_whose_names_have_dots(expectations):
    claim = {"description": "c", "cell": SUP, "score": "contrastive.np_agreement.mt", "at_least": 0.5}
    scores = {"np_agreement.mt": sample_statistics([0.6, 0.6, 0.6]), "np_agreement": sample_statistics([0.4])}
    found = replace(row(SUP, (0.5,)), over_trials={"contrastive": scores})
    (result,) = check_claims(expectations(claims=[claim]).claims, [SUP], [found])
    assert (result.ours, result.judgement.verdict) == (pytest.approx(0.6), "holds")


@pytest.mark.parametrize("statistic", ["selected", "min", "max"])
def test_one_number_decides_no_claim(expectations, statistic):
    claim = {"description": "c", "cell": SUP, "below": {"model": "Tf"}, "statistic": statistic}
    rows = [row(TF, (2.0, 2.1, 2.2)), row(SUP, (1.0, 1.1, 1.2))]
    (result,) = check_claims(expectations(claims=[claim]).claims, [SUP], rows)
    assert (result.judgement.verdict, result.judgement.reason) == ("undecided", "one number")
    assert result.judgement.difference.value == pytest.approx(-1.0)


def test_failed_trials_are_not_among_a_share(expectations):
    sweep = expectations(
        claims=[{"description": "found", "cell": SUP, "statistic": "share", "within": 0.2, "at_least": 0.5}]
    )
    found = replace(row(SUP, (0.1, 0.15, 0.3)), trials=5)
    (result,) = check_claims(sweep.claims, [SUP], [found])
    assert (result.ours, result.judgement.verdict) == (0.4, "undecided")
    assert (found.ended, replace(found, trials=3).ended) == ("3 of 5", "3")


@pytest.mark.parametrize(
    ("within", "pending", "judged"),
    [(3, 17, ("undecided", "17 trials have not ended")), (3, 0, ("fails", "")), (18, 2, ("holds", "")),
     (0, 2, ("fails", "")), (9, 1, ("undecided", "the interval contains 0"))],
)  # fmt: skip
def test_trials_that_have_not_ended_may_be_within_the_bound(expectations, within, pending, judged):
    claim = {"description": "found", "cell": SUP, "statistic": "share", "within": 0.2, "at_least": 0.5}
    found = replace(row(SUP, [0.1] * within + [0.3] * (not within)), trials=20, pending=pending)
    (result,) = check_claims(expectations(claims=[claim]).claims, [SUP], [found])
    assert (result.ours, result.judgement.verdict, result.judgement.reason) == (within / 20, *judged)


@pytest.mark.parametrize(("pending", "verdict"), [(0, "holds"), (1, "holds"), (20, "undecided")])
def test_both_cells_may_have_trials_that_have_not_ended(expectations, pending, verdict):
    claim = {"description": "more", "cell": SUP, "statistic": "share", "within": 0.2, "above": {"model": "Tf"}}
    ours = replace(row(SUP, [0.1] * 9), trials=10, pending=1)
    other = replace(row(TF, [0.3] * 9), trials=9 + pending, pending=pending)
    (result,) = check_claims(expectations(claims=[claim]).claims, [SUP], [ours, other])
    assert result.judgement.verdict == verdict
    assert result.judgement.reason == ("" if verdict == "holds" else "21 trials have not ended")


def test_failed_trials_have_ended_when_the_sweep_has(tree, run_here, tmp_path, write_log, monkeypatch):
    claim = {"description": "c", "cell": TF, "statistic": "share", "within": 9.0, "at_least": 0.01}
    tree |= {"grid": {**tree["grid"], "language": {"w#w^R": tree["grid"]["language"]["w#w^R"]}}, "restarts": 3}
    sweep = SweepSettings.model_validate({**tree, "claims": [claim]})
    trained = work.train

    def train(settings, *arguments, **more):
        if settings.seed == 3:
            raise StructattnError("diverged")
        return trained(settings, *arguments, **more)

    monkeypatch.setattr(work, "train", train)
    write_log(tmp_path / "begun/runs" / make_trials(sweep, tmp_path / "begun")[0].name, [1.0])
    with pytest.raises(StructattnError, match="2 of 6 trials failed"):
        run_here(tree, tmp_path / "ended")
    pending = {name: read_sweep_results(sweep, tmp_path / name).rows[0].pending for name in ("begun", "ended")}
    assert pending == {"begun": 2, "ended": 0}
    (result,) = read_sweep_results(sweep, tmp_path / "begun").claims
    assert result.judgement.texts[1] == "undecided: 2 trials have not ended"
    monkeypatch.undo()
    run_here(tree, tmp_path / "ended")
    assert not (tmp_path / "ended/failed.json").exists()


def test_claims_on_means_name_the_trials_without_a_score(expectations):
    better = {"description": "better", "cell": SUP, "below": {"model": "Tf"}}
    sweep = expectations(claims=[{"description": "small", "cell": SUP, "at_most": 0.2}, better])
    rows = [replace(row(TF, (0.3, 0.3, 0.3)), trials=5), replace(row(SUP, (0.1, 0.1, 0.1)), trials=4)]
    assert [each.judgement.texts[1] for each in check_claims(sweep.claims, [SUP], rows)] == [
        "holds; 1 of 4 trials has no score",
        "holds; 1 of 4 trials and 2 of 5 trials of the other cell have no score",
    ]


def test_share_of_trials_has_an_interval(expectations):
    claim = {"description": "found", "cell": SUP, "statistic": "share", "within": 0.2, "at_least": 0.5}
    sweep = expectations(claims=[claim, {**claim, "score": "test.accuracy"}])
    found, missing = check_claims(sweep.claims, [SUP], [row(SUP, (0.1, 0.2, 0.3, 0.15))])
    assert (found.ours, found.bound, found.judgement.reason) == (0.75, 0.5, "the interval contains 0")
    limits = found.judgement.difference.limits
    assert limits == pytest.approx((0.30064 - 0.5, 0.95441 - 0.5), abs=1e-5)  # 0.62753 ∓ 0.32689, by hand
    assert (missing.ours, missing.judgement) == (None, None)


@pytest.mark.parametrize(
    ("published", "claims", "message"),
    [
        (
            [{"source": "s", "settings": SAME, "values": [{"cell": {"model": "Tf"}, "value": 1}]}],
            [],
            "no value for language",
        ),
        (
            [{"source": "s", "settings": SAME, "values": [{"cell": {**TF, "model": "x"}, "value": 1}]}],
            [],
            "'x' is not a value of 'model'",
        ),
        ([{"source": "s", "values": []}], [], "settings"),  # a table states its configuration
        ([{"source": "s", "settings": {}, "values": []}], [], "settings"),
        ([], [{"description": "c", "cell": {"size": "big"}, "at_most": 1}], "'size' is not an axis"),
        ([], [{"description": "c", "at_most": 1, "at_least": 0}], "expected one of at_most.*found at_most, at_least"),
        ([], [{"description": "c"}], "expected one of at_most.*found none"),
        ([], [{"description": "c", "at_most": 1, "statistic": "share"}], "`within` belongs to statistic: share"),
        ([], [{"description": "c", "at_most": 1, "margin": 0.1}], "`margin` belongs to below or above"),
        ([], [{"description": "c", "at_most": 1, "within": 0.1}], "`within` belongs to statistic: share"),
    ],
)
def test_claims_without_a_matching_cell_are_rejected(expectations, published, claims, message):
    with pytest.raises(ValueError, match=message):
        expectations(published, claims)


def test_claims_and_published_numbers_do_not_rename_trials(tree, expectations, tmp_path):
    plain = make_trials(SweepSettings.model_validate(tree), tmp_path)
    held = make_trials(expectations(claims=[{"description": "c", "at_most": 1}]), tmp_path)
    assert [trial.name for trial in held] == [trial.name for trial in plain]


def test_the_command_prints_and_writes_the_results(tree, tmp_path, write_log):
    tree["published"] = [
        {"source": "Table 7", "score": "test.accuracy", "statistic": "mean", "settings": SAME,
         "values": [{"cell": TF, "value": 0.5},
                    {"cell": {**TF, "model": "Tf+Sup"}, "value": 0.5, "differences": ["published in base 3"]}]}
    ]  # fmt: skip
    tree["claims"] = [{"description": "close to the bound", "cell": TF, "at_most": 0.05}]
    tree["evaluate"] = {"test": "all"}
    recipe = tmp_path / "sweep.json"  # JSON is YAML
    recipe.write_text(json.dumps(tree))
    trials = [trial for trial in make_trials(load_sweep(recipe), tmp_path / "out") if trial.cell == TF]
    for trial, score in zip(trials, (0.04, 0.06), strict=True):
        run = tmp_path / "out/runs" / trial.name
        (run / "scores").mkdir(parents=True)
        write_log(run, [1.0 + score], bound=1.0)
        write_json(run / "scores" / "test.json", "scores", {"split": "test", "accuracy": 0.5 + score})
    kept = tmp_path / "kept.json"
    shown = succeed("report", tmp_path / "out", "--recipe", recipe, "-o", kept)
    for words in (
        "Table 7",
        "inside",
        "close to the bound",
        "undecided",
        "2 of 8 trials",
        "different configuration (1)",
    ):
        assert words in shown.output
    found = json.loads(kept.read_text())
    assert "different configuration (1): published in base 3" in shown.output
    assert found["comparisons"][0]["ours"] == pytest.approx(0.55)
    assert [each["differences"] for each in found["comparisons"]] == [[], ["published in base 3"]]
    assert found["claims"][0]["judgement"]["verdict"] == "undecided"  # two seeds
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    assert SweepSettings.model_validate(found["settings"]) == SweepSettings.model_validate(
        {key: value for key, value in tree.items() if key not in ("published", "claims")}
    )


def test_names_of_cells_in_claims_are_no_markup(capsys):
    cell = {"model": "[/Tf]"}
    print_claims([ClaimResult("c", cell, None, 1.0, None, (cell,))])
    assert "no trial of [/Tf] has the score" in capsys.readouterr().out


def test_a_folder_without_trials_of_the_sweep_is_rejected(sweep, tmp_path):
    with pytest.raises(StructattnError, match="none of the 8 trials of the sweep has ended in this folder"):
        read_sweep_results(sweep, tmp_path)


def test_an_invalid_recipe_is_rejected_with_its_path(tree, tmp_path):
    tree["claims"] = [{"description": "c", "at_most": 1, "cell": {"model": "GPT"}}]
    (tmp_path / "sweep.json").write_text(json.dumps(tree))
    with pytest.raises(SettingsError, match=r"claims.0: 'GPT' is not a value of 'model'"):
        load_sweep(tmp_path / "sweep.json")


def test_only_a_mean_has_an_interval_over_trials(expectations):
    table = {"source": "Table 1", "score": "validation", "statistic": "min", "settings": SAME}
    sweep = expectations([{**table, "values": [{"cell": TF, "value": 0.15}]}])
    (found,) = compare_with_published(sweep, [row(TF, (0.1, 0.2))])
    assert (found.ours, found.interval, found.inside) == (0.1, None, None)
