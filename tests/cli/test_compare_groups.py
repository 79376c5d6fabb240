"""Comparisons of groups of runs over their seeds: by a field of their settings, and the cells of a sweep."""

import json

import pytest
from tests.program import invoke, succeed

from structattn.cli.compare_groups import compare_groups
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.errors import UsageError
from structattn.support.json_files import write_json
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.text.folders.header import read_header

SCORES = {("16", 1): 0.2, ("16", 2): 0.4, ("16", 3): 0.3, ("28", 1): 0.1, ("28", 2): 0.2, ("28", 3): 0.3}


@pytest.fixture
def write_scored(tmp_path):
    """write_scored(name, d_model, seed, score, **others) writes a run folder with scores, and returns its path."""

    def write(name, width, seed, score, split="test", described=True, data="data", digest="d", training=None):
        folder = tmp_path / name
        (folder / "scores").mkdir(parents=True)
        settings = {"task": "formal_language", "data": str(data), "model": {"d_model": int(width)}, "seed": seed,
                    "training": training or {}}  # fmt: skip
        RunFolder(folder).write_settings(resolve_settings(settings))
        card = {"format_version": 1, "version": "0", "task": "formal_language", "seed": seed, "parameters": 1,
                "vocabulary_size": 3, "settings_digest": "s", "environment": {}, "result": None, "command": ["x"],
                "data": {"path": str(data), "kind": "formal_language", "digest": digest},
                "hardware": {"processor": "x", "threads": 2}}  # fmt: skip
        RunFolder(folder).write_card(card)
        (folder / "events.jsonl").touch()
        content = {"split": split, "cross_entropy": 1.0, "cross_entropy_difference": score}
        write_json(folder / f"scores/{split}.json", "scores", content | ({"model": f"d {width}"} if described else {}))
        return folder

    return write


@pytest.fixture
def write_on_data(write_scored, tmp_path):
    """write_on_data(name, d_model, seed, language, **sizes) writes a run on data that are drawn with its seed."""

    def write(name, width, seed, language, **sizes):
        data = tmp_path / f"data-{name}"
        small = {"train": 10, "valid": 10, "test_per_length": 1, "train_lengths": (2, 6), "test_lengths": (2, 8)}
        prepare_formal_language(data, language, seed=seed, sizes=FormalLanguageSizes(**(small | sizes)))
        return write_scored(name, width, seed, 0.1 * seed, data=data, digest=read_header(data)[1])

    return write


@pytest.fixture
def folders(write_scored):
    return [write_scored(f"{width}-{seed}", width, seed, score) for (width, seed), score in SCORES.items()]


def test_models_are_compared_over_seeds(folders):
    score, (base, other) = compare_groups(folders, "model", None, "test")
    assert score.path == ("cross_entropy_difference",)
    assert (base.name, base.scores.count, base.difference) == ("d 16", 3, None)
    assert base.scores.mean == pytest.approx(0.3)
    assert (other.name, other.difference.pairs) == ("d 28", 3)
    assert other.difference.mean == pytest.approx(-0.1)
    assert other.difference.interval == pytest.approx(4.302652729911275 * 0.1 / 3**0.5, rel=1e-9)


def test_another_base(folders):
    _, (base, other) = compare_groups(folders, "model", "d 28", "test")
    assert (base.name, other.difference.mean) == ("d 28", pytest.approx(0.1))


@pytest.mark.parametrize("by", ["model", "model.d_model"])
def test_groups_are_named_by_what_differs(write_scored, by):
    folders = [write_scored(f"{width}-1", width, 1, 0.1, described=False) for width in ("16", "28")]
    _, groups = compare_groups(folders, by, None, "test")
    assert [each.name for each in groups] == (["d_model=16", "d_model=28"] if by == "model" else ["16", "28"])


def test_the_command_prints_a_table_or_json(folders):
    words = ["compare", *map(str, folders), "--by", "model"]
    shown = succeed(*words)
    assert "-0.1000" in shown.output
    assert "0.2484" in shown.output
    assert "interval over seeds (Student's t), of the mean" in " ".join(shown.output.split())
    (document,) = [json.loads(invoke(*words, "--json").output)]
    assert document["groups"][1]["difference"]["pairs"] == 3
    repeated = invoke(*words, folders[0], "--json")
    assert json.loads(repeated.output) == document, "a folder given twice is read once"


@pytest.mark.parametrize(
    ("by", "base", "split", "message"),
    [
        ("seeds", None, "test", "--by seeds: the settings of .* have no such field"),
        ("task", None, "test", "the runs are of 'formal_language'; expected at least two groups"),
        ("model", "LSTM", "test", "expected one group named 'LSTM'"),
        ("model", None, "gen", "16-1: has no scores on gen; run structattn evaluate"),
    ],
)
def test_what_cannot_be_compared_is_refused(folders, by, base, split, message):
    with pytest.raises(UsageError, match=message):
        compare_groups(folders, by, base, split)


def test_two_runs_with_one_seed_are_refused(folders, write_scored):
    with pytest.raises(UsageError, match="again: a second run of d 16 with seed 1; expected one a seed"):
        compare_groups([*folders, write_scored("again", "16", 1, 0.2)], "model", None, "test")


def test_fewer_pairs_than_runs_are_reported(write_scored, capsys):
    seeds = {"16": (1, 2, 3, 4), "28": (3, 4, 5)}
    folders = [write_scored(f"{width}-{seed}", width, seed, 0.1 * seed) for width in seeds for seed in seeds[width]]
    _, (_, other) = compare_groups(folders, "model", None, "test")
    assert other.difference.pairs == 2
    warning = "the difference of d 28 and d 16 is of 2 pairs alone, and leaves other runs out"
    assert capsys.readouterr().err == f"warning: {warning}\n"


def test_pairs_of_all_runs_of_the_smaller_group_are_not_reported(folders, write_scored, capsys):
    compare_groups([*folders, write_scored("16-4", "16", 4, 0.1)], "model", None, "test")
    assert not capsys.readouterr().err


def test_runs_of_different_data_are_refused(write_on_data):
    languages = ("marked-reversal", "dyck", "marked-reversal", "marked-reversal")
    named = zip(("p1", "p2", "q1", "q2"), ("16", "16", "28", "28"), (1, 2, 1, 2), languages, strict=True)
    folders = [write_on_data(*each) for each in named]
    with pytest.raises(UsageError, match=r"p1 and .*p2 are of different data: language is .* and 'dyck'"):
        compare_groups(folders, "model", None, "test")


def test_runs_of_data_of_other_sizes_are_refused(write_on_data):
    folders = [write_on_data("few", "16", 1, "dyck"), write_on_data("many", "28", 1, "dyck", train=20)]
    with pytest.raises(UsageError, match="different data: number of train examples is 10 and 20; expected"):
        compare_groups(folders, "model", None, "test")


def test_each_seed_may_have_data_of_its_own(write_on_data, capsys):
    folders = [write_on_data(f"{width}-{seed}", width, seed, "dyck") for width in ("16", "28") for seed in (1, 2)]
    _, (_, other) = compare_groups(folders, "model", None, "test")
    assert other.difference.pairs == 2
    assert not capsys.readouterr().err


def test_moved_data_are_known_by_their_digest(write_scored):
    folders = [write_scored("one", "16", 1, 0.1), write_scored("other", "28", 1, 0.2, digest="e")]
    with pytest.raises(UsageError, match=r"one and .*other are of different data: digest is 'd' and 'e'"):
        compare_groups(folders, "model", None, "test")


def test_settings_that_differ_in_a_group_are_named(folders, write_scored, capsys):
    compare_groups(folders, "model", None, "test")
    assert not capsys.readouterr().err
    training = {"optimizer": {"learning_rate": 0.01}, "num_threads": 2}
    compare_groups([*folders, write_scored("16-4", "16", 4, 0.1, training=training)], "model", None, "test")
    differing = "runs of one group differ in training.optimizer.learning_rate"
    assert capsys.readouterr().err == f"warning: {differing}; means and intervals are over these, too\n"
