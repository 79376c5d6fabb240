"""Recordings of runs of every kind: what is in them, and their files."""

import base64
import json
import os
import shutil
import zlib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from tests.program import invoke, succeed

from structattn.explorer import packed_arrays
from structattn.explorer.recording import record
from structattn.explorer.recording_files import read_recorded_run, read_recording, write_recording
from structattn.loading.runs import load
from structattn.settings.mechanisms import MECHANISMS
from structattn.support.errors import DataError, UsageError
from structattn.support.json_files import write_json

DEPTHS = 3


@pytest.fixture
def recorded(run_dir, kinds):
    """recorded(kind) is a recording of the first test example and of a text, and the run."""

    def make(kind):
        run = load(run_dir(kind), "last")
        first = run.prepared.vocabulary.symbols[3]
        return run, record(run, [kinds.texts.get(kind, first + first)], examples=[0], split="valid", depths=DEPTHS)

    return make


def alike(one, other):
    """Whether two dataclasses hold the same, arrays as float32 or integers."""
    if hasattr(one, "__dataclass_fields__"):
        return all(alike(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, np.ndarray):
        exact = np.issubdtype(one.dtype, np.integer)
        return np.array_equal(one if exact else one.astype(np.float32), other, equal_nan=not exact)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(alike(*pair) for pair in zip(one, other, strict=True))
    return one == other


def test_runs_of_every_kind_are_recorded_and_read_back(recorded, kind, tmp_path):
    run, found = recorded(kind)
    assert found.run == {"name": "run", "task": run.settings.task, "model": run.settings.model.kind, "update": 1}
    for example, place in zip(found.examples, [("valid", 0), (None, None)], strict=True):
        assert (example.split, example.example) == place
        time = len(example.tokens)
        assert len(example.predicted) == len(example.surprisal) == time
        nothing = [token is None for token in example.predicted]
        assert (np.isnan(example.surprisal) == nothing).all()
        assert (example.surprisal[~np.array(nothing)] > 0).all()
        for each in example.records:
            actions = MECHANISMS[each.mechanism].actions if each.mechanism in MECHANISMS else ()
            assert (each.contents is not None) == bool(actions)
            if each.contents is not None:
                assert each.contents.positions.shape == (len(each.tokens), DEPTHS, len(each.sources))
                np.testing.assert_allclose(each.contents.positions.sum(-1), each.contents.at_least, atol=1e-6)
    write_recording(tmp_path / "x.json", found)
    assert alike(found, read_recording(tmp_path / "x.json"))


def test_details_are_kept_and_files_without_them_stay_as_they_were(recorded, tmp_path):
    _, found = recorded("formal language")
    (example, *_), path = found.examples, tmp_path / "x.json"
    time = len(example.tokens)
    details = {"gate": np.linspace(0, 1, time, dtype=np.float32), "choice": np.arange(2 * time).reshape(time, 2)}
    detailed = replace(example, records=(replace(example.records[0], details=details), *example.records[1:]))
    write_recording(path, replace(found, examples=(example,)))
    plain, content = path.read_bytes(), json.loads(path.read_text())
    assert all("details" not in each for each in content["examples"][0]["records"])
    write_recording(path, replace(found, examples=(detailed,)))
    (again,) = read_recording(path).examples
    assert alike(detailed, again)
    cleared = replace(again, records=tuple(replace(each, details={}) for each in again.records))
    write_recording(path, replace(found, examples=(cleared,)))
    assert path.read_bytes() == plain
    wrong = replace(example.records[0], details={"gate": np.zeros(time + 1)})
    write_recording(path, replace(found, examples=(replace(example, records=(wrong,)),)))
    with pytest.raises(DataError, match="gate has shape"):
        read_recording(path)


def test_explanations_and_scores_say_the_same(recorded):
    run, found = recorded("formal language")
    text = "".join(found.examples[1].tokens[1:])
    (records,), (score,) = run.explain([text]), run.score([text], per_token=True)
    for one, other in zip(records, found.examples[1].records, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    nondeterministic = found.examples[1].records[0]
    assert nondeterministic.mechanism == "nondeterministic"
    np.testing.assert_allclose(nondeterministic.contents.positions[:, 0], nondeterministic.weights, atol=1e-6)
    assert found.examples[1].predicted == tuple(each.token for each in score.tokens)
    np.testing.assert_allclose(found.examples[1].surprisal, [-each.log_probability for each in score.tokens], rtol=1e-6)


def test_surprisals_of_pairs_and_of_masked_text_are_those_of_scores(recorded):
    run, found = recorded("translation")
    translation = " ".join(found.examples[1].tokens[1:])
    (score,) = run.score([("eins zwei", translation)])
    assert -found.examples[1].surprisal.sum() == pytest.approx(score.log_probability, rel=1e-5)
    assert found.examples[1].source == ("eins", "zwei", "<eos>")
    run, found = recorded("masked text")
    assert found.examples[1].predicted == (None, "a", "b", None)
    assert -np.nansum(found.examples[1].surprisal) == pytest.approx(run.score(["a b"])[0].log_probability, rel=1e-6)


@pytest.mark.parametrize("kind", ["translation", "two-stream translation"])
def test_translations_are_recorded_with_their_beam_search(run_dir, tmp_path, kind):
    run = load(run_dir(kind))
    write_recording(tmp_path / "x.json", record(run, ["eins zwei", "", "drei"]))
    searched, empty, _ = read_recording(tmp_path / "x.json").examples
    assert (empty.beam_search, empty.tokens) == (None, ("<bos>",))
    ((translation,),) = run.translate(["eins zwei"])
    tree = searched.beam_search
    assert tree.text == translation.text
    assert tree.log_probabilities[tree.best] == np.float32(translation.log_probability)
    assert tree.scores[tree.best] == np.float32(translation.score)
    assert searched.tokens == tuple(tree.tokens[node] for node in tree.path if not tree.finished[node])
    surprisal = searched.surprisal[: tree.steps[tree.best]]  # <eos> is predicted after a translation that was cut, too
    np.testing.assert_allclose(np.cumsum(surprisal), -tree.log_probabilities[list(tree.path[1:])], rtol=1e-5)
    for node in range(1, len(tree.tokens)):
        parent = tree.parents[node]
        assert parent < node
        assert (tree.steps[parent], bool(tree.finished[parent])) == (tree.steps[node] - 1, False)
    assert (np.bincount(tree.steps, weights=~tree.finished) <= run.settings.evaluation.beam_size).all()


@pytest.mark.covering(1)
def test_continuations_are_recorded_with_their_beam_search(run_dir, generating_kind, kinds):
    run, text = load(run_dir(generating_kind)), kinds.texts.get(generating_kind)
    text = run.prepared.vocabulary.symbols[3] if text is None else text
    (found,) = record(run, [text], beam=3).examples
    ((generated,),) = run.generate([text], beam=3)
    tree = found.beam_search
    assert (tree.text, tree.log_probabilities[tree.best]) == (generated.text, generated.log_probability)
    steps = tree.steps[tree.best]
    assert found.predicted[-steps:] == tuple(tree.tokens[node] for node in tree.path[1:])
    surprisal, expected = found.surprisal[-steps:], -tree.log_probabilities[list(tree.path[1:])]
    np.testing.assert_allclose(np.cumsum(surprisal), expected, rtol=1e-5)


def test_answers_are_predicted_where_they_are_given(run_dir):
    run = load(run_dir("masked"))
    (given,) = record(run, ["a b b"], ["b b a"]).examples
    assert given.predicted[-3:] == ("b", "b", "a")
    (asked,) = record(run, ["a b b"]).examples
    assert set(asked.predicted) == {None}


def test_hard_heads_have_a_receptive_field(recorded):
    _, found = recorded("hard")
    assert {each.sublayer for each in found.examples[0].records} == {"attention", "receptive-field"}


def test_the_command_records_and_the_report_reads(run_dir):
    folder = run_dir("sentences")
    path = folder / "records" / "mine.json"
    path.parent.mkdir(exist_ok=True)
    succeed("explore", folder, "--save", path, "--example", "0", "--split", "valid", "--text", "a b", "--depths", "2")
    assert [each.example for each in read_recording(path).examples] == [0, None]
    assert [(each.split, each.example) for each in read_recorded_run(folder).examples] == [("valid", 0), (None, None)]
    succeed("explore", folder, "--save", path, input="a\nb a\n")
    assert [each.tokens for each in read_recording(path).examples] == [("<bos>", "a"), ("<bos>", "b", "a")]
    path.unlink()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"examples": [8]}, UsageError, "valid has no example 8; expected 0 to 7"),
        ({"texts": ["a"], "targets": ["b"]}, UsageError, "has no targets"),
        ({"texts": ["a " * 1024]}, UsageError, "text 1 has 1025 tokens; expected at most 1024"),
        ({"texts": ["a"], "beam": 0}, UsageError, "beam is 0"),
        ({"texts": ["a"], "targets": ["a"], "beam": 2}, UsageError, "beam continues texts"),
        ({"depths": -1}, UsageError, "depths is -1; expected at least 0"),
    ],
)
def test_what_cannot_be_recorded_is_refused(run_dir, arguments, error, message):
    with pytest.raises(error, match=message):
        record(load(run_dir("sentences")), split="valid", **arguments)


def test_a_recording_may_be_renamed(recorded, tmp_path):
    write_recording(tmp_path / "x.json", recorded("sentences")[1])
    renamed = (tmp_path / "x.json").rename(tmp_path / "y.json")
    assert read_recording(renamed).run == recorded("sentences")[1].run


def test_an_array_is_unpacked_once_and_all_have_a_limit(recorded, tmp_path, monkeypatch):
    path, recording = tmp_path / "recording.json", recorded("sentences")[1]
    write_recording(path, recording)
    monkeypatch.setattr(packed_arrays, "MAX_UNPACKED", 16)
    with pytest.raises(UsageError, match=r"an array has 0 MiB, all have 0; .*: record fewer or shorter examples"):
        write_recording(tmp_path / "other.json", recording)
    with pytest.raises(DataError, match="an array has 0 MiB, all have 0; expected at most 256, and 0"):
        read_recording(path)
    assert not (tmp_path / "other.json").exists()
    reader = packed_arrays.ArrayReader([base64.b64encode(zlib.compress(bytes(9))).decode()])
    assert reader.numbers(0, 9) is reader.numbers(0, 9)


def test_a_file_that_is_no_recording_is_refused(recorded, tmp_path):
    path = tmp_path / "recording.json"
    write_recording(path, recorded("sentences")[1])
    content = json.loads(path.read_text())
    content.pop("sha256")
    (example, other), (stack,) = content["examples"], [content["examples"][0]["records"][-1]]

    def with_record(**changes):
        return {"examples": [example | {"records": [stack | changes]}, other]}

    for change, message in [
        ({"arrays": []}, "examples.0.surprisal: there are 0 arrays; expected array 0"),
        ({"arrays": ["AAAA"] * len(content["arrays"])}, "array 0: Error -3 while decompressing data"),
        ({"examples": [{}]}, "examples.0.tokens: missing"),
        ({"examples": [example | {"predicted": []}]}, "expected predicted and surprisal for each"),
        (with_record(weights=stack["actions"]), "weights has shape"),
        (with_record(mechanism="softmax"), r"actions has shape \(4, 3\); expected \(4, 0\)"),
        (with_record(mechanism="mine"), "actions of 'mine', which is not registered; expected its plugin: --plugin"),
        (with_record(mechanism="receptive_field"), "mechanism 'receptive_field' in sublayer 'attention'"),
        (with_record(queries="source"), "a source that the example does not have"),
        (with_record(layer=-1), "layer: expected at least 0"),
        (with_record(weights=stack["weights"] | {"shape": [1 << 15, 1 << 15]}), "has 4096 MiB"),
    ]:
        write_json(path, "recording", content | change)
        with pytest.raises(DataError, match=message):
            read_recording(path)
    path.write_text(path.read_text().replace("layer", "layeR"))
    with pytest.raises(DataError, match="changed since it was written"):
        read_recording(path)


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_file_of_another_version_is_refused_with_what_to_do(run_dir, version):
    folder = run_dir("sentences")
    path = folder / "records" / "test-0-layer-1.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, "record", {"format_version": version, "tokens": ["a"], "weights": [[1.0]]})
    message = (
        rf"has format_version {version}; expected 2: delete the file, and write records anew with `structattn eval"
    )
    for read in (lambda: read_recording(path), lambda: read_recorded_run(folder)):
        with pytest.raises(DataError, match=message):
            read()
    path.unlink()


def test_beam_searches_that_are_no_trees_are_refused(run_dir, tmp_path):
    write_recording(tmp_path / "recording.json", record(load(run_dir("translation")), ["eins"]))
    content = json.loads((tmp_path / "recording.json").read_text())
    content.pop("sha256")
    (example,) = content["examples"]
    search = example["beam_search"]
    for change, message in [
        ({"parents": search["steps"]}, "are no tree"),
        ({"best": len(search["tokens"])}, "best is node"),
        ({"tokens": search["tokens"][1:]}, "parents has shape"),
    ]:
        write_json(
            tmp_path / "recording.json",
            "recording",
            content | {"examples": [example | {"beam_search": search | change}]},
        )
        with pytest.raises(DataError, match=message):
            read_recording(tmp_path / "recording.json")


def test_runs_and_data_may_have_names_that_are_not_unicode(run_dir, tmp_path):
    """Evaluation, recordings and comparisons store the names of folders."""
    source = run_dir("sentences")
    folders = [tmp_path / os.fsdecode(b"r\xff"), tmp_path / "r\x1b"]
    for folder in folders:
        shutil.copytree(source, folder)
    data = Path(os.fsdecode(b"d\xff"))
    shutil.copytree(load(source).prepared.path, tmp_path / data)
    assert invoke("evaluate", *folders, f"data={tmp_path / data}", "--split", "valid").exit_code == 0
    assert read_recorded_run(folders[0]).name == r"r\udcff"
    assert json.loads((folders[0] / "scores/valid.json").read_text())["data"]["name"] == r"d\udcff"
    succeed("compare", *folders, "--samples", "40", "--split", "valid")
    (kept,) = folders[1].glob("analyses/*against*")
    assert json.loads(kept.read_text())["base"] == r"r\udcff"
