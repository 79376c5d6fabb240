"""Reading run folders: names, incomplete events, damaged files."""

import json

import pytest

from structattn.explorer.recording_files import read_recorded_run, read_recorded_runs
from structattn.report.runs import read_run
from structattn.support.errors import DataError, StructattnError
from structattn.support.json_files import read_json, write_json


def test_names_are_the_shortest_distinct_suffixes(make_run):
    folders = [make_run("a/run"), make_run("b/run"), make_run("c")]
    assert [run.name for run in read_recorded_runs(folders)] == ["a/run", "b/run", "runs/c"]
    assert [run.name for run in read_recorded_runs(folders[:1])] == ["run"]


def test_a_folder_given_twice_is_read_once(make_run):
    folder = make_run()
    assert len(read_recorded_runs([folder, folder / ".." / folder.name])) == 1


def test_no_folder_is_rejected():
    with pytest.raises(StructattnError, match="at least one"):
        read_recorded_runs([])


def test_an_incomplete_last_event_is_skipped(make_run):
    folder = make_run(epochs=1, per_epoch=3)
    whole = read_run(folder).events
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "tra')
    assert read_run(folder).events == whole
    assert len(whole) == 5


def test_a_damaged_event_is_named_with_its_line(make_run):
    folder = make_run(epochs=1, per_epoch=3)
    lines = (folder / "events.jsonl").read_text().split("\n")
    (folder / "events.jsonl").write_text("\n".join([lines[0], "{", *lines[2:]]))
    with pytest.raises(DataError, match=r"events.jsonl:2: not JSON"):
        read_run(folder)


@pytest.mark.parametrize("content", ["[1]", "{", "\x00"])
def test_a_record_that_is_not_an_object_is_rejected(make_run, content):
    folder = make_run(softmax_layers=())
    (folder / "records" / "x.json").write_text(content)
    with pytest.raises(DataError, match=r"x\.json"):
        read_recorded_run(folder)


def test_splits_are_ordered_train_valid_test(make_run):
    folder = make_run()
    write_json(folder / "scores" / "another.json", "scores", {"split": "another"})
    assert list(read_run(folder).scores) == ["valid", "test", "another"]


def test_the_data_is_named_by_its_language_or_by_its_folder(make_run):
    assert read_run(make_run("a")).data_name == "marked-reversal"
    text = {"kind": "sentences", "name": "wikitext"}
    assert read_run(make_run("b", data=text)).data_name == "wikitext"
    bare = make_run("c")
    for path in bare.glob("scores/*"):
        path.unlink()
    assert read_run(bare).data_name == "marked"


def test_scores_of_the_best_checkpoints_are_not_outdated(make_run, caplog):
    folder = make_run()
    scored = {each["update"]: each["cross_entropy"] for each in read_run(folder).of("validation")}
    best, *others = sorted(scored, key=scored.get)
    for checkpoints in (sorted([best, others[0]], reverse=True), sorted([best, others[1]], reverse=True)):
        for path in (folder / "scores").iterdir():
            content = read_json(path, "scores") | {"update": checkpoints[0], "checkpoints": checkpoints}
            write_json(path, "scores", content)
        caplog.clear()
        read_run(folder)
        assert ("run `structattn evaluate` again" in caplog.text) == (others[0] not in checkpoints), caplog.text


def test_outdated_scores_are_reported(make_run, caplog):
    folder = make_run()
    update = read_run(folder).of("validation")[-1]["update"]
    for path in (folder / "scores").iterdir():
        write_json(path, "scores", read_json(path, "scores") | {"update": update})
    caplog.clear()
    read_run(folder)
    assert "run `structattn evaluate` again" not in caplog.text
    later = {"event": "validation", "update": update + 50, "cross_entropy": 0.1, "perplexity": 1.1, "lower_bound": None,
             "cross_entropy_difference": None, "improved": True}  # fmt: skip
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(later) + "\n")
    read_run(folder)
    assert f"the scores on valid are from update {update}, but the best is now {update + 50}" in caplog.text
