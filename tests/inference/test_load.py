"""Loading runs of every kind: settings, metadata, the model in evaluation mode, and explanations of texts."""

import shutil

import numpy as np
import pytest
import torch

from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language
from structattn.data.language_modeling import TextSettings, prepare_language_modeling
from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.evaluation.run_evaluation import evaluate_run
from structattn.inference import explain_texts, load
from structattn.inference.checkpoints import checkpoints_of, mean_weights
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, DataError, StructattnError, UsageError
from structattn.training.learner import weights_of
from structattn.training.run_training import train

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
ENCODER_DECODER = {"kind": "encoder_decoder", "encoder": {"layers": 1}, "decoder": {"layers": 1}, **SIZES}
LEARNED = {"positions": {"kind": "learned", "max_positions": 12}}
PAIRS, TOKEN_MEAN = {"batches": {"kind": "pairs", "max_tokens": 100}}, {"loss": "token_mean"}
STREAM = {"batches": {"kind": "stream", "sequence_length": 4, "batch_size": 2}}
SIZED = {"batches": {"batch_size": 4}, **TOKEN_MEAN}
RUNS = {
    "sentences": ("language_modeling", "sentences", {"layers": "1.superposition-4", **SIZES}, TOKEN_MEAN),
    "stream": ("language_modeling", "stream", {"layers": 1, **SIZES}, TOKEN_MEAN | STREAM),
    "formal language": ("formal_language", "dyck", {"layers": "nondeterministic-1-2-3.stack_pointer", **SIZES}, {}),
    "two streams": ("formal_language", "dyck", {"kind": "two_stream", "num_layers": 1, **SIZES}, {}),
    "recurrent": ("formal_language", "dyck", {"kind": "lstm", "hidden_size": 6, "stack": "nondeterministic-1-2-3"}, {}),
    "masked": ("masked_transduction", "reversal", {"kind": "masked", "layers": 2, **SIZES, **LEARNED}, SIZED),
    "autoregressive": ("autoregressive_transduction", "reversal", {"layers": 1, **SIZES}, SIZED),
    "recurrent autoregressive": ("autoregressive_transduction", "reversal", {"kind": "lstm", "hidden_size": 6,
                                 "stack": "superposition-4"}, SIZED),
    "translation": ("translation", "parallel", ENCODER_DECODER, PAIRS),
    "two-stream translation": (
        "translation", "parallel", {"kind": "two_stream_encoder_decoder", "num_layers": 1, **SIZES}, PAIRS),
}  # fmt: skip
TEXTS = {
         "sentences": "a b", "stream": "a b\nb", "masked": "a b b", "autoregressive": "a b b",
         "recurrent autoregressive": "a b b", "translation": "eins zwei", "two-stream translation": "eins zwei",
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared_data(tmp_path_factory, parallel_data):
    """One prepared folder for each kind of data."""
    folder = tmp_path_factory.mktemp("data")
    prepare_formal_language(folder / "dyck", "dyck", sizes=FormalLanguageSizes(8, 4, 1, (4, 6), (4, 6)))
    sizes = TransductionSizes((2, 5), (6, 7), valid_per_length=2, test_per_length=1)
    prepare_transduction(folder / "reversal", "reverse-string", sizes=sizes)
    (folder / "text").write_text("a b c\nb a\n" * 4)
    for mode in ("sentences", "stream"):
        prepare_language_modeling(folder / mode, folder / "text", folder / "text", settings=TextSettings(mode=mode))
    shutil.copytree(parallel_data, folder / "parallel")
    return folder


@pytest.fixture(scope="module")
def run_dir(prepared_data, tmp_path_factory):
    """run_dir(kind) is the folder of a run with one update."""
    made = {}

    def make(kind):
        if kind not in made:
            task, data, model, training = RUNS[kind]
            tree = {"task": task, "data": str(prepared_data / data), "model": model}
            tree["training"] = {"max_updates": 1, "max_epochs": None, **training}
            made[kind] = tmp_path_factory.mktemp("runs") / "run"
            train(resolve_settings(tree), made[kind])
        return made[kind]

    return make


def text_for(run, kind):
    """A text that the run can explain."""
    first = run.prepared.vocabulary.symbols[3]
    return TEXTS.get(kind, first + first)


@pytest.mark.parametrize("kind", RUNS)
def test_runs_of_every_kind_are_loaded_and_explained(run_dir, kind):
    run = load(run_dir(kind), "last")
    assert run.settings.task == RUNS[kind][0]
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


def tokens_of(run, kind, **more):
    (records,) = run.explain([TEXTS[kind]], **more)
    return {record.tokens for record in records}


def test_tokens_are_the_inputs_of_the_model(run_dir):
    assert tokens_of(load(run_dir("sentences")), "sentences") == {("<bos>", "a", "b")}
    assert tokens_of(load(run_dir("stream")), "stream") == {("<eos>", "a", "b", "<eos>", "b")}
    assert tokens_of(load(run_dir("masked")), "masked") == {("<bos>", "a", "b", "b", *["<empty>"] * 3)}


def test_answers_are_given_or_found_by_greedy_search(run_dir):
    run = load(run_dir("autoregressive"))
    asked = ("<bos>", "a", "b", "b", "<to>")
    assert tokens_of(run, "autoregressive", targets=["b b a"]) == {(*asked, "b", "b")}
    (found,) = tokens_of(run, "autoregressive")
    assert found[: len(asked)] == asked
    assert len(found) <= len(asked) + 2


def test_translations_are_given_or_found_by_greedy_search(run_dir):
    run = load(run_dir("translation"))
    assert tokens_of(run, "translation", targets=["one two"]) == {("eins", "zwei", "<eos>"), ("<bos>", "one", "two")}
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
        ("translation", {"texts": ["eins"], "targets": []}, UsageError, "0 targets for 1 texts"),
        ("translation", {"texts": ["eins", "<bos>"]}, DataError, "texts:2: '<bos>'"),
        (
            "masked",
            {"texts": ["a", "a b a b a a"]},
            DataError,
            "texts:2: the inputs have 13 tokens; .* 12 positions",
        ),
        ("autoregressive", {"texts": [""]}, DataError, "0 symbols: 'reverse-string' has no inputs of that length"),
    ],
)
def test_invalid_texts_are_rejected(run_dir, kind, arguments, error, message):
    with pytest.raises(error, match=message):
        load(run_dir(kind)).explain(**arguments)


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


def test_the_device_may_be_named(run_dir):
    run = load(str(run_dir("sentences")), device="cpu")
    assert {parameter.device for parameter in run.model.parameters()} == {torch.device("cpu")}
    records = explain_texts(run.model, run.prepared, run.settings, ["a b"])
    assert [record.layer for record in records[0]] == [record.layer for record in run.explain(["a b"])[0]]


@pytest.mark.parametrize("reason", [None, "Old CPU has no bfloat16 instructions"])
def test_a_bf16_run_computes_in_float32_and_says_so(prepared_data, tmp_path, monkeypatch, caplog, reason):
    monkeypatch.setattr("structattn.support.precision.slow_bf16", lambda device: None)
    tree = {"task": "language_modeling", "data": str(prepared_data / "sentences"), "model": {"layers": 1, **SIZES}}
    tree["training"] = {"max_updates": 1, "precision": "bf16"}
    train(resolve_settings(tree), tmp_path / "run")
    monkeypatch.setattr("structattn.support.precision.slow_bf16", lambda device: reason)
    run = load(tmp_path / "run", device="cpu")
    assert caplog.messages == [f"{tmp_path / 'run'}: trained in bf16, computes in float32"]
    dtypes = set()
    run.model.output.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    evaluate_run(run, "valid")
    assert dtypes == {torch.float32}


def test_a_float32_run_says_nothing(run_dir, caplog):
    load(run_dir("sentences"))
    assert caplog.messages == []
