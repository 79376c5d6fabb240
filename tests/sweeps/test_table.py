"""The results table of a sweep."""

import math
import statistics
from dataclasses import replace

import pytest

from structattn.cli.sweep_view import print_rows
from structattn.metrics.statistics import SampleStatistics, central_probability, critical_value, sample_statistics
from structattn.metrics.translation import METRICS
from structattn.settings.published import SCORES, Claim
from structattn.support.json_files import write_json
from structattn.sweeps.comparison import check_claims
from structattn.sweeps.outcome import analysis_scores
from structattn.sweeps.plan import Plan
from structattn.sweeps.sweep import read_results
from structattn.sweeps.table import table_rows
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import Job, SweepFolder, result_of


def test_the_score_is_that_of_the_best_validation(sweep, tmp_path, write_log):
    trial = make_trials(sweep, tmp_path)[0]
    write_log(tmp_path / "run", [3.0, 1.5, 2.0], bound=1.0)
    result = result_of(Job(trial, tmp_path / "run"))
    assert (result.score, result.update) == (0.5, 2)
    write_log(tmp_path / "text", [3.0, 1.5, 2.0])
    assert result_of(Job(trial, tmp_path / "text")).score == 1.5


def test_a_run_that_has_not_ended_has_no_result(sweep, tmp_path, write_log):
    trial = make_trials(sweep, tmp_path)[0]
    assert result_of(Job(trial, tmp_path / "nowhere")) is None
    write_log(tmp_path / "run", [3.0], end=False)
    assert result_of(Job(trial, tmp_path / "run")) is None


def test_rows_select_the_lowest_score_and_give_statistics(tree, tmp_path, write_log):
    tree["restarts"] = 3
    trials = make_trials(type(sweep_of(tree)).model_validate(tree), tmp_path)
    scores = {trial.name: 1 + index * 0.1 for index, trial in enumerate(trials)}
    for trial in trials:
        write_log(tmp_path / trial.name, [scores[trial.name]])
    (tmp_path / trials[0].name / "scores").mkdir()
    write_json(tmp_path / trials[0].name / "scores" / "test.json", "scores", {"cross_entropy": 2.0, "split": "test"})
    results = [result_of(Job(trial, tmp_path / trial.name)) for trial in trials]
    rows = table_rows(results)
    assert len(rows) == 4
    of_cell = [scores[trial.name] for trial in trials if trial.cell == trials[0].cell]
    row = rows[0]
    assert (row.cell, row.selected, row.best, row.validation.count) == (trials[0].cell, trials[0].name, min(of_cell), 3)
    assert row.validation.mean == pytest.approx(statistics.fmean(of_cell))
    assert row.validation.deviation == pytest.approx(statistics.stdev(of_cell))
    assert row.validation.interval == pytest.approx(4.302653 * statistics.stdev(of_cell) / math.sqrt(3), rel=1e-6)
    assert row.splits == {"test": {"cross_entropy": 2.0}}
    assert row.over_trials == {"test": {"cross_entropy": sample_statistics([2.0])}}
    assert sample_statistics([2.0]) == SampleStatistics(1, 2.0, None, None, 2.0, 2.0, (2.0,))
    assert row.sampled == trials[0].sampled


def test_a_score_that_one_trial_lacks_is_kept_of_the_others(tree, tmp_path, write_log):
    tree["restarts"] = 3
    trials = [each for each in make_trials(sweep_of(tree), tmp_path) if each.cell["language"] == "Dyck"]
    for trial in trials:
        model, scores = trial.cell["model"], {"exact": 0.0}
        if (model, trial.restart) != ("Tf", 1):
            scores["extracted_model"] = 0.1 * trial.restart + 0.3 * (model == "Tf+Sup")
        write_log(tmp_path / trial.name, [1.0])
        (tmp_path / trial.name / "analyses").mkdir()
        write_json(tmp_path / trial.name / "analyses/extraction.json", "analysis", {"scores": scores})
    first, second = table_rows([result_of(Job(trial, tmp_path / trial.name)) for trial in trials])
    assert first.over_trials["extraction"]["exact"].count == 3
    assert first.over_trials["extraction"]["extracted_model"] == sample_statistics([0.0, 0.2])
    seeds = tuple(trial.settings.seed for trial in trials if trial.cell["model"] == "Tf")
    assert first.seeds["extraction"] == seeds
    assert first.seeds["extraction.extracted_model"] == (seeds[0], seeds[2])
    assert set(second.seeds) == {"validation", "extraction"}
    rows = [replace(row, trials=3) for row in (first, second)]
    claim = {"description": "c", "cell": first.cell, "score": "extraction.extracted_model"}
    less, share = check_claims(
        [
            Claim.model_validate({**claim, "below": {"model": "Tf+Sup"}}),
            Claim.model_validate({**claim, "statistic": "share", "within": 0.25, "at_least": 0.5}),
        ],
        [first.cell],
        rows,
    )
    assert less.judgement.remark == "1 of 3 trials has no score"
    assert less.judgement.difference.value == pytest.approx(-0.3)  # of the pairs, 0.0 to 0.3 and 0.2 to 0.5
    assert share.ours == pytest.approx(2 / 3)


def test_rows_are_in_the_order_of_the_grid(tree, tmp_path, write_log):
    tree["restarts"] = 2
    sweep = sweep_of(tree)
    trials = make_trials(sweep, tmp_path)
    cells = list(dict.fromkeys(tuple(trial.cell.values()) for trial in trials))
    folder = SweepFolder(tmp_path / "sweep")
    for trial in trials:
        if tuple(trial.cell.values()) in cells[1::2] or trial.restart == 1:
            write_log(folder.runs / trial.name, [1.0])
    brackets = Plan(sweep, folder).brackets()
    rows = table_rows(read_results(folder, brackets), brackets)
    assert [tuple(row.cell.values()) for row in rows] == cells


BRACKETS = {"precision": 0.1, "recall": 0.2, "f1": 0.3, "exact": 0.4, "correct": 1}
TAGGING = {"accuracy": 0.9, "overall": BRACKETS}
TREES = {"labelled": BRACKETS, "unlabelled": BRACKETS}
PAIRS = {"sentence": {"value": 0.75}}
PARSING = {"scores": TREES, "malformed": 0.0, "right_branching": TREES, "left_branching": TREES}


def test_a_row_has_every_score_that_recipes_can_use(sweep, tmp_path, write_log):
    trial = make_trials(sweep, tmp_path)[0]
    write_log(tmp_path / trial.name, [1.0])
    plain = {"split": "test", **{name: 0.5 for name in SCORES if name.islower() and "symbols" not in name}}
    metrics = {name: {"value": 30.0, "interval": 1.0, "signature": ""} for name in METRICS}
    agreement = {"precision_of_symbols": 0.25, "recall_of_symbols": 0.75}
    pairs = {"types": {"np_agreement": {"value": 0.9, "trials": 10, "right": 9, "least": 0.6, "most": 1.0}}}
    binned = [
        {"attribute": attribute, "binning": binning, "difference": difference}
        for attribute, binning, difference in (
            ("reference length", "equal count", -0.5),
            ("reference length", "equal count", -2.5),
            ("off-diagonality, encoder", "equal count", 1.5),
            ("off-diagonality, encoder", "equal width", 9.0),
        )
    ]
    for path, content in (
        ("analyses/test-against-base.json", {"bins": binned}),
        ("scores/test.json", plain | {"translation": metrics, "dependencies": agreement}),
        ("analyses/contrastive-lingeval97.json", pairs),
        ("analyses/chunking.json", {"streams": [{"stream": None, "scores": TAGGING}]}),
        ("analyses/parsing-test.json", PARSING),
        ("analyses/extraction.json", {"scores": {"exact": 1.0}}),
        ("analyses/blimp.json", {"overall": PAIRS, "fields": {}, "phenomena": {"binding": PAIRS}, "paradigms": {}}),
        ("analyses/syntaxgym-npi_orc_any.json", {"name": "NPI", "overall": {}}),
        ("analyses/syntaxgym.json", {"scores": {"mean_of_suites": 0.5, "licensing_strict": 0.25}}),
        ("analyses/neighbours-source.json", {"side": "source", "streams": [{"stream": "semantic", "value": 0.5}]}),
    ):
        (tmp_path / trial.name / path).parent.mkdir(exist_ok=True)
        write_json(tmp_path / trial.name / path, "analysis" if path.startswith("analyses") else "scores", content)
    (row,) = table_rows([result_of(Job(trial, tmp_path / trial.name))])
    assert set(row.splits["test"]) == {*SCORES, *(f"{name} ±" for name in METRICS)}
    assert row.splits["comparison"] == {
        "reference_length_1_of_2": -0.5,
        "reference_length_2_of_2": -2.5,
        "off_diagonality_encoder_1_of_1": 1.5,
    }
    assert row.splits["contrastive"] == {"np_agreement": 0.9}
    assert row.splits["chunking"] == {"accuracy": 0.9, "precision": 0.1, "recall": 0.2, "f1": 0.3}
    brackets = {"precision": 0.1, "recall": 0.2, "f1": 0.3, "exact": 0.4}
    assert row.splits["parsing"] == {**brackets, "unlabelled_f1": 0.3, "malformed": 0.0, "right_branching_f1": 0.3}
    assert row.splits["neighbours"] == {"source_semantic_agreement": 0.5}
    assert row.splits["blimp"] == {"all": 0.75, "binding": 0.75}
    assert row.splits["syntaxgym"] == {"mean_of_suites": 0.5, "licensing_strict": 0.25}
    assert row.splits["extraction"] == {"exact": 1.0}


def test_scores_of_transformations_are_those_of_all_pairs(sweep, tmp_path, write_log):
    trial = make_trials(sweep, tmp_path)[0]
    write_log(tmp_path / trial.name, [1.0])
    groups = {"all": {"full_match": {"value": 0.25}, "log_ratio": -1.5, "main_verb": None}, "ORC": {"log_ratio": 3.0}}
    (tmp_path / trial.name / "scores").mkdir(exist_ok=True)
    write_json(tmp_path / trial.name / "scores/gen.json", "scores", {"split": "gen", "transformation": groups})
    (row,) = table_rows([result_of(Job(trial, tmp_path / trial.name))])
    assert row.splits["gen"] == {"full_match": 0.25, "log_ratio": -1.5}


def test_each_stream_has_its_own_chunking_scores(tmp_path):
    (tmp_path / "analyses").mkdir()
    streams = [{"stream": stream, "scores": TAGGING} for stream in ("syntactic", "semantic")]
    write_json(tmp_path / "analyses/chunking.json", "analysis", {"streams": streams})
    scores = analysis_scores(tmp_path)["chunking"]
    assert (len(scores), scores["syntactic_f1"], scores["semantic_accuracy"]) == (8, 0.3, 0.9)


def test_a_suite_alone_gives_no_score_of_the_model(tmp_path):
    (tmp_path / "analyses").mkdir()
    write_json(tmp_path / "analyses/syntaxgym-npi_orc_any.json", "analysis", {"name": "NPI", "overall": {}})
    assert analysis_scores(tmp_path) == {}


def sweep_of(tree):
    from structattn.settings.sweep import SweepSettings

    return SweepSettings.model_validate(tree)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 30])
def test_the_t_distribution_is_the_integral_of_its_density(freedom):
    constant = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    steps, t = 20000, 1.7
    middles = [(i + 0.5) * t / steps for i in range(steps)]
    area = 2 * sum(constant * (1 + x * x / freedom) ** (-(freedom + 1) / 2) for x in middles) * t / steps
    assert central_probability(t, freedom) == pytest.approx(area, abs=1e-8)
    assert central_probability(critical_value(freedom + 1), freedom) == pytest.approx(0.95, abs=1e-12)


def test_a_single_number_has_no_interval():
    with pytest.raises(ValueError, match="count is 1"):
        critical_value(1)


@pytest.mark.parametrize("probability", [95, 1, 0, -1, math.nan])
def test_a_confidence_level_is_between_0_and_1(probability):
    with pytest.raises(ValueError, match="expected more than 0 and less than 1"):
        critical_value(10, probability)


def test_the_printed_table_has_the_main_score_of_each_split_and_analysis(
    sweep, tmp_path, write_log, capsys, monkeypatch
):
    trial = make_trials(sweep, tmp_path)[0]
    write_log(tmp_path / trial.name, [1.0])
    (row,) = table_rows([result_of(Job(trial, tmp_path / trial.name))])
    splits = {
        "valid": {"cross_entropy": 0.75, "cross_entropy_difference": 0.25},
        "test": {"cross_entropy": 0.75, "BLEU": 30.04},
        "gen": {"full_match": 0.5},
        "contrastive": {"np_agreement.mt": 0.5},
        "blimp": {"all": 0.625, "binding": 0.5},
        "parsing": {"precision": 0.5, "f1": 0.875},
    }
    monkeypatch.setenv("COLUMNS", "160")
    print_rows([replace(row, splits=splits, sampled={}), replace(row, splits={}, sampled={})])
    shown = capsys.readouterr().out
    header, first, second = (line for line in shown.splitlines() if line.count("┃") + line.count("│") > 5)
    assert "cross-entropy, in nats per token, on validation: best trial" in " ".join(shown.split())
    assert "further columns are of the best trial" in " ".join(shown.split())
    assert [column.strip() for column in header.split("┃")][-5:-1] == ["valid", "test", "blimp", "parsing"]
    assert [column.strip() for column in first.split("│")][-5:-1] == ["0.2500", "30.0 BLEU", "62.50%", "87.50% F1"]
    assert [column.strip() for column in second.split("│")][-5:-1] == ["—"] * 4


def test_the_validation_score_is_named(sweep, tmp_path, write_log):
    trial = make_trials(sweep, tmp_path)[0]
    names = []
    for bound in (None, 0.5):
        folder = tmp_path / str(bound) / trial.name
        write_log(folder, [1.0], bound=bound)
        (row,) = table_rows([result_of(Job(trial, folder))])
        names.append(row.score)
    assert names == ["cross-entropy, in nats per token", "difference from the lower bound, in nats per token"]
