"""Comparisons of the cells of a sweep, of which some trials have ended."""

import pytest
import yaml

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


def test_survivors_of_halving_are_not_compared(sweep_of):
    folder = sweep_of({"w#w^R Tf #0": 2.0, "Dyck Tf #0": 3.0}, halving={"after": [1], "unit": "epochs"})
    with pytest.raises(UsageError, match=r"mean of .* needs all trials, but `halving` stops some of them early"):
        compare_groups([folder], None, None, "test")
