"""Arguments of a run's methods that cannot be meant: each is refused in one line that names it."""

import copy
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.runs.selection import weights_of
from structattn.support.errors import CheckpointError, DataError, UsageError


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        ("translation", lambda run: run.translate([None]), "texts:1: got None; expected a string"),
        ("translation", lambda run: run.translate(["eins", b"zwei"]), "texts:2: got b'zwei'; expected a string"),
        ("translation", lambda run: run.score([("eins", None)]), "texts:1: got .'eins', None.; expected pairs of"),
        ("translation", lambda run: run.score([None]), "texts:1: got None; expected pairs of a source line"),
        ("translation", lambda run: run.score(["ab"]), "texts:1: got 'ab'; expected pairs of a source line"),
        ("translation", lambda run: run.explain(["eins"], [None]), "targets:1: got None; expected a string"),
        ("sentences", lambda run: run.score([("a", "b")]), "texts:1: got .'a', 'b'.; expected a string"),
        ("sentences", lambda run: run.generate([1]), "texts:1: got 1; expected a string"),
        ("sentences", lambda run: run.generate(stop=[None]), "stop:1: got None; expected a string"),
        ("sentences", lambda run: run.explain([None]), "texts:1: got None; expected a string"),
        ("sentences", lambda run: run.embed([None]), "words:1: got None; expected a string"),
        ("autoregressive", lambda run: run.predict([None]), "texts:1: got None; expected a string"),
    ],
)
def test_what_is_no_text_is_refused(run_dir, kind, call, message):
    with pytest.raises(UsageError, match=message):
        call(load(run_dir(kind)))


def test_words_and_texts_of_any_kind_are_taken(run_dir):
    """Of iterators, whose check must not use them up, of tuples and of arrays."""
    run, words = load(run_dir("sentences")), ["a", "a"]
    prompts = {"n": 20, "max_length": 8}
    for kind in (iter, tuple, np.array):
        assert np.array_equal(run.embed(kind(words)), run.embed(words))
        assert len(run.explain(kind(words))) == 2
        assert run.generate(["a"], stop=kind(["a"]), **prompts) == run.generate(["a"], stop=["a"], **prompts)
    assert run.generate(["a"], stop=["a"], **prompts) != run.generate(["a"], **prompts)


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, True, "8", None, float("nan")])
def test_numbers_that_are_not_whole_and_positive_are_refused(run_dir, value):
    translation, sentences, transduction = (load(run_dir(kind)) for kind in ("translation", "sentences", "masked"))
    expected = "at least 1" if type(value) is int else "a whole number"
    for name, call in {
        "batch_size": lambda: translation.translate(["eins"], batch_size=value),
        "batch_size ": lambda: translation.score([("eins", "one")], batch_size=value),
        "batch_size  ": lambda: sentences.generate(batch_size=value),
        "batch_size   ": lambda: sentences.score(["a"], batch_size=value),
        "batch_size    ": lambda: transduction.predict(["a"], batch_size=value),
        "n": lambda: sentences.generate(n=value),
        "max_length": lambda: sentences.generate(max_length=value),
    }.items():
        with pytest.raises(UsageError, match=rf"{name.strip()} is .*; expected {expected}"):
            call()


def test_whole_numbers_of_numpy_are_numbers(run_dir):
    run = load(run_dir("translation"))
    assert run.translate(["eins"], batch_size=np.int64(2)) == run.translate(["eins"])


@pytest.mark.parametrize("precision", ["fp16", ""])
def test_unknown_precisions_are_refused(run_dir, precision):
    with pytest.raises(UsageError, match=f"precision {precision!r} is unknown; expected one of float32, bf16"):
        load(run_dir("translation")).translate(["eins"], precision=precision)


@pytest.mark.parametrize("device", ["gpu", "", "cuda:x", 1.5, None])
def test_unknown_devices_are_refused(run_dir, device):
    with pytest.raises(UsageError, match=r"device .*; expected 'auto', 'cpu' or 'cuda'") as caught:
        load(run_dir("sentences"), device=device)
    assert repr(device) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [evaluate, analyze])
def test_the_functions_of_a_run_folder_take_a_device(run_dir, tmp_path, function, monkeypatch):
    folder = shutil.copytree(run_dir("sentences"), tmp_path / "run")
    with pytest.raises(UsageError, match="device 'gpu' cannot be used"):
        function(folder, "valid", device="gpu")
    monkeypatch.setattr("structattn.support.devices.default_device", lambda: pytest.fail("another device was named"))
    function(folder, "valid", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(run_dir):
    with pytest.raises(UsageError, match=r"device 'cuda' cannot be used: .*; expected 'auto', 'cpu' or 'cuda'"):
        load(run_dir("sentences"), device="cuda")


def test_a_run_is_printed_in_a_line(run_dir):
    run = load(run_dir("sentences"))
    size = f"{sum(parameter.numel() for parameter in run.model.parameters()):,} parameters"
    shown = f"{str(run.run_dir)!r}: transformer of {size}, language_modeling, update {run.update}"
    assert repr(run) == f"TrainedRun({shown})"


def test_a_run_is_pickled_by_its_folder_and_digests(run_dir, tmp_path):
    shutil.copytree(run_dir("sentences"), tmp_path / "run")
    run = load(tmp_path / "run", "last")
    run.accelerated  # noqa: B018  # which is not pickled
    content = pickle.dumps(run)
    again = pickle.loads(content)
    assert (again.settings, again.update, again.averaged_updates) == (run.settings, run.update, run.averaged_updates)
    assert again.score(["a b"]) == run.score(["a b"])
    weights = tmp_path / "run/checkpoints/1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="SHA-256"):
        pickle.loads(content)


def test_a_run_that_was_not_loaded_is_not_pickled(run_dir):
    run = load(run_dir("sentences"))
    with pytest.raises(UsageError, match="was not loaded from a checkpoint; pickle the weights of its model instead"):
        pickle.dumps(replace(run, digests=()))


def test_a_pickled_run_that_was_trained_again_is_refused(run_dir, tmp_path):
    shutil.copytree(run_dir("sentences"), tmp_path / "run")
    content = pickle.dumps(load(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(run_dir("stream"), tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"run/checkpoints/1: is another checkpoint than the one that was pickled"
    ):
        pickle.loads(content)


def test_a_copy_has_a_model_of_its_own(run_dir):
    run = load(run_dir("translation"))
    deep, shallow = copy.deepcopy(run), copy.copy(run)
    assert shallow.model is run.model
    expected = run.translate(["eins zwei"])
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    assert deep.translate(["eins zwei"]) == expected
    assert weights_of(deep.model).keys() == weights_of(run.model).keys()


@pytest.mark.parametrize(("text", "place"), [("a \ud800 b", 3), ("\udfff", 1)])
@pytest.mark.parametrize("kind", ["sentences", "stream", "masked text"])
def test_lone_surrogates_are_refused_by_position_at_every_entry(run_dir, kind, text, place):
    run = load(run_dir(kind))
    calls = [lambda: run.score(["a", text]), lambda: run.explain(["a", text])]
    if kind != "masked text":
        calls.append(lambda: run.generate(["a", text]))
    for call in calls:
        with pytest.raises(DataError, match=f"texts:2: .*: character {place} is U[+]D.*, half of a surrogate pair"):
            call()


@pytest.mark.parametrize("kind", ["sentences", "stream", "masked text", "autoregressive", "translation"])
def test_lines_that_no_memory_holds_are_refused_by_number(run_dir, monkeypatch, kind):
    monkeypatch.setattr("structattn.text.lines.MAX_CHARACTERS", 3)
    run, text = load(run_dir(kind)), "a b b"
    pairs = [("a", "a"), (text, "a")]
    call = run.predict if kind == "autoregressive" else run.score
    with pytest.raises(DataError, match=":2: has 5 characters; expected at most 3 in a line"):
        call(pairs if kind == "translation" else ["a", text])


def test_lone_surrogates_are_refused_in_translations(run_dir):
    run, text = load(run_dir("translation")), "eins \ud83d"
    for call in (
        lambda: run.translate([text]),
        lambda: run.score([(text, "one")]),
        lambda: run.score([("eins", text)]),
        lambda: run.explain([text]),
        lambda: run.explain(["eins"], [text]),
        lambda: load(run_dir("parser")).predict([text]),
        lambda: load(run_dir("question")).predict([f"{text} quest"]),
        lambda: load(run_dir("autoregressive")).predict([text]),
    ):
        with pytest.raises(DataError, match=r"character 6 is U[+]D83D, half of a surrogate pair"):
            call()
