"""Loading runs of every kind: settings, metadata, the model in evaluation mode, and explanations of texts."""

import json
import shutil

import numpy as np
import pytest
import torch

import structattn
from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate_run
from structattn.loading.records import explain_texts
from structattn.loading.runs import load
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.selection import check_weights, checkpoints_of, mean_weights, weights_of
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, DataError, StructattnError, UsageError
from structattn.tasks.model import expected_weights
from structattn.training.run_training import train

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}


@pytest.fixture
def text_for(kinds):
    """text_for(run, kind) is a text that the run can explain."""

    def text(run, kind):
        first = run.prepared.vocabulary.symbols[3]
        return kinds.texts.get(kind, first + first)

    return text


def test_runs_of_every_kind_are_loaded_and_explained(run_dir, kind, kinds, text_for):
    run = load(run_dir(kind), "last")
    assert run.settings.task == kinds.tasks[kind]
    assert run.metadata["task"] == run.settings.task
    assert run.metadata["parameters"] == sum(parameter.numel() for parameter in run.model.parameters())
    assert not any(module.training for module in run.model.modules())
    expected, _ = mean_weights(checkpoints_of(run_dir(kind), "last"))
    found = weights_of(run.model)
    assert all(torch.equal(found[name].cpu(), tensor) for name, tensor in expected.items())
    (records,) = run.explain([text_for(run, kind)])
    assert records
    for record in records:
        assert record.weights.shape == (len(record.tokens), len(record.sources))
        assert np.isfinite(record.weights).all()


def tokens_of(run, text, **more):
    (records,) = run.explain([text], **more)
    return {record.tokens for record in records}


def test_tokens_are_the_inputs_of_the_model(run_dir):
    assert tokens_of(load(run_dir("sentences")), "a b") == {("<bos>", "a", "b")}
    assert tokens_of(load(run_dir("stream")), "a b\nb") == {("<eos>", "a", "b", "<eos>", "b")}
    assert tokens_of(load(run_dir("masked")), "a b b") == {("<bos>", "a", "b", "b", *["<empty>"] * 3)}


def test_answers_are_given_or_found_by_greedy_search(run_dir):
    run = load(run_dir("autoregressive"))
    asked = ("<bos>", "a", "b", "b", "<to>")
    assert tokens_of(run, "a b b", targets=["b b a"]) == {(*asked, "b", "b")}
    (found,) = tokens_of(run, "a b b")
    assert found[: len(asked)] == asked
    assert len(found) <= len(asked) + 2


def test_translations_are_given_or_found_by_greedy_search(run_dir):
    run = load(run_dir("translation"))
    assert tokens_of(run, "eins zwei", targets=["one two"]) == {("eins", "zwei", "<eos>"), ("<bos>", "one", "two")}
    (records,) = run.explain(["eins zwei"])
    assert {(record.side, record.sublayer) for record in records} == {
        ("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross")}  # fmt: skip
    assert all(record.sources == ("eins", "zwei", "<eos>") for record in records if record.sublayer == "cross")


def test_texts_do_not_influence_each_other(run_dir):
    run = load(run_dir("translation"))
    texts = ["eins zwei", "", "drei"]
    for text, together in zip(texts, run.explain(texts), strict=True):
        (alone,) = run.explain([text])
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one.weights, other.weights)
    assert run.explain([]) == []


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        ("sentences", {"texts": ["a", "a z"]}, DataError, "texts:2: 'a z': 'z' is not in the vocabulary"),
        ("sentences", {"texts": ["a"], "targets": ["b"]}, UsageError, "the task 'language_modeling' has no targets"),
        ("sentences", {"texts": "a b"}, UsageError, "got the text 'a b'; expected a list or an iterator of texts"),
        ("sentences", {"texts": ["a\n"]}, DataError, r"texts:1: 'a\\n': has a line feed; expected one line"),
        ("translation", {"texts": ["eins"], "targets": "one"}, UsageError, "got the text 'one'; expected a list"),
        ("translation", {"texts": ["eins"], "targets": []}, UsageError, "0 targets for 1 texts"),
        ("translation", {"texts": ["eins", "<bos>"]}, DataError, "texts:2: '<bos>'"),
        (
            "masked",
            {"texts": ["a", "a b a b a a"]},
            DataError,
            "texts:2: input and output have 13 tokens; .* 12 positions",
        ),
        ("autoregressive", {"texts": [""]}, DataError, "0 symbols: 'reverse-string' has no inputs of that length"),
        ("autoregressive", {"texts": ["a <to>"]}, DataError, "texts:1: '<to>' is not an input of 'reverse-string': a"),
        (
            "autoregressive",
            {"texts": ["a b"], "targets": ["a <to>"]},
            DataError,
            "targets:1: '<to>' is not an output of 'reverse-string'",
        ),
        (
            "masked",
            {"texts": ["a b"], "targets": [""]},
            DataError,
            "targets:1: 0 symbols; the answer of 'reverse-string' has 2",
        ),
    ],
)
def test_invalid_texts_are_rejected(run_dir, kind, arguments, error, message):
    with pytest.raises(error, match=message):
        load(run_dir(kind)).explain(**arguments)


def test_lines_with_their_ends_are_rejected(run_dir):
    with pytest.raises(DataError, match=r"texts:2: 'a\\n': has a line feed; expected one line without its end"):
        load(run_dir("sentences")).score(["a", "a\n"])
    with pytest.raises(DataError, match=r"'eins\\n': has a line feed"):
        load(run_dir("translation")).translate(["eins\n"])
    with pytest.raises(DataError, match=r"'one\\n': has a line feed"):
        load(run_dir("translation")).score([("eins", "one\n")])


def test_strings_in_place_of_lists_and_unknown_sides(run_dir):
    run = load(run_dir("sentences"))
    for call in (lambda: run.generate(["a"], stop="abc"), lambda: run.embed("ab")):
        with pytest.raises(UsageError, match="expected a list or an iterator of texts"):
            call()
    with pytest.raises(UsageError, match="side 'Target' is not one of source, target"):
        load(run_dir("translation")).embed(["eins"], side="Target")


def test_damaged_runs_are_rejected_by_path(run_dir, prepared_data, tmp_path):
    with pytest.raises(StructattnError, match=r"is not a run folder: settings\.yaml is missing"):
        load(tmp_path)
    shutil.copytree(run_dir("sentences"), tmp_path / "run")
    with pytest.raises(UsageError, match="not one of best, last, best-K, last-K"):
        load(tmp_path / "run", "newest")
    with pytest.raises(
        CheckpointError, match=r"checkpoints/1: was trained on data with digest \w+; that of .*dyck is \w+"
    ):
        load(tmp_path / "run", data=prepared_data / "dyck")
    weights = tmp_path / "run/checkpoints/1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"1/model.safetensors: SHA-256 is \w+, but its manifest has \w+"):
        load(tmp_path / "run")


def test_data_that_have_moved_are_named_with_the_run(run_dir, tmp_path):
    shutil.copytree(run_dir("sentences"), tmp_path / "run")
    folder, settings = RunFolder(tmp_path / "run"), load(tmp_path / "run").settings
    folder.write_settings(settings.model_copy(update={"data": tmp_path / "gone"}))
    with pytest.raises(DataError, match=r"gone: the data of .*run: no such folder; .* as data=FOLDER"):
        load(tmp_path / "run")
    assert load(tmp_path / "run", data=settings.data).prepared.kind == "sentences"
    for function in (structattn.evaluate, analyze):
        with pytest.raises(DataError, match="as data=FOLDER, a keyword in Python"):
            function(tmp_path / "run", "valid")
    assert structattn.evaluate(tmp_path / "run", "valid", data=str(settings.data)).split == "valid"
    assert analyze(str(tmp_path / "run"), "valid", data=settings.data).exists()


def test_the_device_may_be_named(run_dir):
    run = load(str(run_dir("sentences")), device="cpu")
    assert {parameter.device for parameter in run.model.parameters()} == {torch.device("cpu")}
    records = explain_texts(run, ["a b"])
    assert [record.layer for record in records[0]] == [record.layer for record in run.explain(["a b"])[0]]


@pytest.mark.parametrize("reason", [None, "Old CPU has no bfloat16 instructions"])
def test_a_bf16_run_computes_in_float32_and_says_so_on_request(prepared_data, tmp_path, monkeypatch, caplog, reason):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: None)
    tree = {"task": "language_modeling", "data": str(prepared_data / "sentences"), "model": {"layers": 1, **SIZES}}
    tree["training"] = {"max_updates": 1, "precision": "bf16"}
    train(resolve_settings(tree), tmp_path / "run")
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: reason)
    run = load(tmp_path / "run", device="cpu")
    assert caplog.messages == []  # not at every call
    with caplog.at_level("INFO", "structattn"):
        load(tmp_path / "run", device="cpu")
    assert f"{tmp_path / 'run'}: trained in bf16, computes in float32" in caplog.messages
    dtypes = set()
    run.model.output.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    evaluate_run(run, "valid")
    assert dtypes == {torch.float32}


def test_a_float32_run_says_nothing(run_dir, caplog):
    load(run_dir("sentences"))
    assert caplog.messages == []


def test_a_model_without_memory_has_the_weights_of_the_model(run_dir, kind):
    run = load(run_dir(kind), device="cpu")
    expected = expected_weights(run.settings.model, run.prepared)
    assert all(tensor.is_meta for tensor in expected.values())
    check_weights(weights_of(run.model), expected)


@pytest.mark.parametrize("kind", ["formal language", "recurrent", "translation"])
def test_settings_of_another_model_are_refused_before_memory_is_taken(run_dir, kind, tmp_path):
    """Settings, run card and manifests agree on a model of terabytes, of which the weights are not."""
    folder = RunFolder(shutil.copytree(run_dir(kind), tmp_path / "run"))
    size = {"hidden_size": 1_000_000} if kind == "recurrent" else {"d_model": 1_000_000}
    settings = folder.read_settings()
    forged = settings.model_copy(update={"model": settings.model.model_copy(update=size)})
    folder.write_settings(forged)
    folder.write_card(folder.read_card() | {"settings_digest": settings_digest(forged), "result": None})
    for path in folder.checkpoints.glob("*/MANIFEST.json"):
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps(manifest | {"settings_digest": settings_digest(forged)}))
    folder.events.write_text("".join(folder.events.read_text().splitlines(keepends=True)[:-1]))  # without its end
    with pytest.raises(CheckpointError, match=r"model\.safetensors: .*has shape .*, expected"):
        load(folder.path, device="cpu")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: .*has shape .*, expected"):
        train(None, folder.path, resume=True)
