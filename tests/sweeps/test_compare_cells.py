"""Comparisons of the cells of a sweep, of which some trials have ended."""

import pytest
import yaml
from tests.program import invoke, succeed

from structattn.cli.compare_groups import compare_groups
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import StructattnError, UsageError
from structattn.support.json_files import write_json
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import SweepFolder


@pytest.fixture
def sweep_of(tree, write_log, tmp_path):
    """sweep_of(scores, **changes) writes the folder of a sweep in which the trials with these titles have ended."""

    def write(scores, **changes):
        folder = SweepFolder(tmp_path / "sweep")
        sweep = SweepSettings.model_validate(tree | {"random": {}, "evaluate": {"test": "all"}} | changes)
        folder.path.mkdir()
        folder.settings.write_text(yaml.safe_dump(sweep.model_dump(mode="json", exclude_unset=True), sort_keys=False))
        for trial in make_trials(sweep, folder.path):
            if trial.title in scores:
                run_dir = folder.run_dir(trial)
                write_log(run_dir, [1.0])
                (run_dir / "scores").mkdir()
                content = {"split": "test", "cross_entropy": scores[trial.title]}
                write_json(run_dir / "scores/test.json", "scores", content)
        return folder.path

    return write


def test_the_base_is_the_first_cell_of_the_grid(sweep_of):
    folder = sweep_of({"Dyck Tf #0": 1.0, "w#w^R Tf #1": 2.0, "w#w^R Tf+Sup #0": 3.0})
    _, groups = compare_groups([folder], None, None, "test")
    assert [each.name for each in groups] == ["w#w^R, Tf", "w#w^R, Tf+Sup", "Dyck, Tf"]
    _, groups = compare_groups([folder], "language", None, "test")
    assert [each.name for each in groups] == ["w#w^R", "Dyck"]


def test_a_base_is_asked_for_where_the_first_cell_has_no_results(sweep_of):
    folder = sweep_of({"Dyck Tf #0": 1.0, "w#w^R Tf+Sup #0": 3.0})
    with pytest.raises(UsageError, match="no trial of the first group, 'w#w\\^R, Tf', has ended; expected --base"):
        compare_groups([folder], None, None, "test")
    _, groups = compare_groups([folder], None, "Dyck, Tf", "test")
    assert [each.name for each in groups] == ["Dyck, Tf", "w#w^R, Tf+Sup"]


def test_cells_without_trials_have_no_base(sweep_of):
    where = [{"match": {"model": "Tf"}, "restarts": 0}]
    folder = sweep_of({"w#w^R Tf+Sup #0": 2.0, "Dyck Tf+Sup #0": 3.0}, where=where)
    _, groups = compare_groups([folder], None, None, "test")
    assert [each.name for each in groups] == ["w#w^R, Tf+Sup", "Dyck, Tf+Sup"]


def test_a_sweep_whose_results_are_in_a_file_is_refused_with_the_reason(sweep_of):
    with pytest.raises(StructattnError, match=r"none of the 8 trials .*report --trial-results FILE"):
        compare_groups([sweep_of({})], None, None, "test")


def scored(tf, sup):
    """Return scores of both models: language and trial -> score, for the titles of trials."""
    named = (("Tf", tf), ("Tf+Sup", sup))
    return {f"{language} {model} #{trial}": score for model, of in named for (language, trial), score in of.items()}


def test_models_are_compared_within_languages(sweep_of):
    """With one trial a cell, too: it has its pair in the other cell of its language."""
    folder = sweep_of(scored({("w#w^R", 0): 1.0, ("Dyck", 0): 5.0}, {("w#w^R", 0): 1.2, ("Dyck", 0): 5.4}), restarts=1)
    _, (base, other) = compare_groups([folder], "model", None, "test")
    assert (base.cells, other.cells, other.difference.pairs) == (2, 2, 2)
    assert other.difference.mean == pytest.approx(0.3)
    shown = invoke("compare", folder, "--by", "model")
    words = " ".join(shown.output.split())
    assert "half the interval over cells and seeds (Student's t), of the mean and of the difference" in words
    assert "differences are between runs of the same cell and seed, or without such pairs between the means" in words
    _, cells = compare_groups([folder], None, None, "test")
    assert {each.cells for each in cells} == {1}


def test_languages_that_only_one_model_has_are_left_out_of_the_difference(sweep_of):
    folder = sweep_of(scored({("w#w^R", 0): 1.0, ("w#w^R", 1): 1.1, ("Dyck", 0): 5.0}, {("w#w^R", 0): 2.0}))
    _, (base, other) = compare_groups([folder], "model", None, "test")
    assert (base.scores.count, other.difference.pairs, other.difference.interval) == (3, 0, None)
    assert other.difference.mean == pytest.approx(2.0 - 1.05)


def test_different_languages_have_no_difference(sweep_of, capsys):
    folder = sweep_of(scored({("w#w^R", 0): 1.0, ("w#w^R", 1): 1.1}, {("Dyck", 0): 2.0, ("Dyck", 1): 2.0}))
    assert compare_groups([folder], "model", None, "test")[1][1].difference is None
    assert "Tf+Sup and Tf have no values of the other axes in common" in capsys.readouterr().err
    succeed("compare", folder, "--by", "model")


def test_without_pairs_the_interval_is_not_over_languages(sweep_of, capsys):
    scores = scored({("w#w^R", 0): 1.0, ("Dyck", 0): 5.0}, {("w#w^R", 1): 1.5, ("Dyck", 1): 5.1})
    _, (_, other) = compare_groups([sweep_of(scores)], "model", None, "test")
    assert (other.difference.pairs, other.difference.interval) == (0, None)
    assert other.difference.mean == pytest.approx(0.3)
    assert "the difference of Tf+Sup and Tf has no interval" in capsys.readouterr().err


def test_one_language_without_pairs_is_compared_by_welch(sweep_of):
    scores = scored({("Dyck", 0): 1.0, ("Dyck", 1): 1.2}, {("Dyck", 2): 2.0, ("Dyck", 3): 2.2, ("w#w^R", 0): 9.0})
    _, (_, other) = compare_groups([sweep_of(scores, restarts=4)], "model", None, "test")
    assert (other.difference.pairs, other.difference.mean) == (0, pytest.approx(1.0))
    assert other.difference.interval > 0


def test_trials_without_scores_are_counted(sweep_of, capsys):
    """Of all cells, those without any included."""
    folder = sweep_of({"w#w^R Tf #0": 1.0, "w#w^R Tf #1": 2.0, "w#w^R Tf+Sup #0": 3.0, "Dyck Tf #1": 3.0})
    compare_groups([folder], "model", None, "test")
    assert capsys.readouterr().err.startswith(
        "warning: 4 of 8 trials have no score and are left out, since they failed, diverged or have not ended in this "
        "folder: 1 of Tf, 3 of Tf+Sup\n"
    )


def test_nothing_is_said_of_a_complete_sweep(sweep_of, capsys):
    every = {(language, trial): 1.0 for language in ("w#w^R", "Dyck") for trial in (0, 1)}
    compare_groups([sweep_of(scored(every, every))], "model", None, "test")
    assert not capsys.readouterr().err


def test_survivors_of_halving_are_not_compared(sweep_of):
    folder = sweep_of({"w#w^R Tf #0": 2.0, "Dyck Tf #0": 3.0}, halving={"after": [1], "unit": "epochs"})
    with pytest.raises(UsageError, match=r"mean of .* needs all trials, but `halving` stops some of them early"):
        compare_groups([folder], None, None, "test")
