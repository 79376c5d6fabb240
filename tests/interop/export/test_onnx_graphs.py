"""ONNX graphs: as torch modules and in onnxruntime they give the logits of the run; other layers are refused."""

import json
import logging

import numpy as np
import pytest
import torch

from structattn.interop.export.formats import export_run
from structattn.interop.export.onnx_graphs import (
    CrossDecoderGraph,
    DecoderGraph,
    EncoderGraph,
    MaskedGraph,
    tensor_shapes,
)
from structattn.support.errors import UsageError
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
MIXED = [
    {"attention": "gaussian", "num_heads": 4, "num_learned_heads": 2},
    {"attention": "hard"},
    {"attention": "none"},
]
WINDOW = [{"attention": "gaussian", "kernel": "window", "window": 3, "offsets": [0.5, -1.2]}, {"attention": "softmax"}]
INDEX = [{"attention": "gaussian", "kernel": "index", "sigma": 0.5}]
MODELS = {
    "softmax": {"layers": 2},
    "tied, post, learned": {"layers": 1, "tied_embeddings": True, "norm": "post",
                            "positions": {"kind": "learned", "max_positions": 20}},
    "mixed": {"layers": MIXED},
    "rotary": {"layers": MIXED, "positions": "rotary"},
    "rotary, halves": {"layers": 1, "positions": {"kind": "rotary", "layout": "halves"}, "bias": False},
    "alibi": {"layers": MIXED, "positions": "alibi"},
    "alibi, shifted": {"layers": 1, "positions": {"kind": "alibi", "variant": "shifted"}},
    "no positions": {"layers": "hard.softmax", "positions": "none", "d_ff": None},
    "window": {"layers": WINDOW},
    "index": {"layers": INDEX},
}  # fmt: skip
CROSS = [{"attention": "gaussian", "num_heads": 4, "num_learned_heads": 1, "length_ratio": 0.7}, {"attention": "hard"},
         {"attention": "softmax"}]  # fmt: skip
TRANSLATORS = {
    "softmax": {"encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "mixed": {"encoder": {"layers": MIXED}, "decoder": {"layers": MIXED, "cross_attention": CROSS}},
}


def close(found, expected):
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-5, atol=1e-5)


def empty(blocks, batch):
    shapes = [shape for block in blocks for shape in tensor_shapes(block.attention)]
    return [torch.zeros(batch, heads, 0, size) for heads, size in shapes]


def texts(run, count=3, time=6):
    ids = torch.randint(3, run.prepared.vocabulary.size, (count, time), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = BOS
    return ids


@torch.no_grad()
@pytest.mark.parametrize("kind", MODELS)
def test_a_graph_has_the_logits_of_a_language_model_in_one_call_and_step_by_step(trained, kind):
    run = trained("sentences", {**SIZES, **MODELS[kind]})
    model, ids = run.model, texts(run)
    graph, expected = DecoderGraph(model.embedding, model.layers, model._logits, 20), model(ids)
    close(graph(ids, empty(graph.blocks, 3))[0][..., CLASS_OFFSET:], expected)
    past = empty(graph.blocks, 3)
    for t in range(ids.shape[1]):
        logits, *past = graph(ids[:, t : t + 1], past)
        close(logits[:, 0, CLASS_OFFSET:], expected[:, t])
        assert bool((logits[..., :CLASS_OFFSET] == -torch.inf).all())


@torch.no_grad()
def test_a_graph_has_the_logits_of_a_masked_model(trained):
    run = trained("masked", {"kind": "masked", **SIZES, "layers": MIXED})
    ids, lengths = texts(run), torch.tensor([6, 4, 5])
    (found,) = MaskedGraph(run.model, 20)(ids, lengths)
    for row, length in enumerate(lengths):
        close(found[row, :length, CLASS_OFFSET:], run.model(ids, lengths)[row, :length])


def sources(run):
    ids = torch.tensor([[3, 4, 5, EOS], [4, 3, EOS, 0]])
    return ids, torch.tensor([4, 3]), torch.tensor([[BOS, 3, 4, 5, 3], [BOS, 5, 5, 3, 4]])


@torch.no_grad()
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_graphs_have_the_logits_of_a_translator(trained, kind):
    run = trained("joint", {"kind": "encoder_decoder", **SIZES, **TRANSLATORS[kind]})
    model, (source, lengths, target) = run.model, sources(run)
    decoder = CrossDecoderGraph(model.target, model.decoder, model.logits, 20)
    encoder = EncoderGraph(model.source, model.encoder, list(decoder.blocks), 20)
    memory, *cross = encoder(source, lengths)
    close(memory[0], model.encode(source, lengths)[0])
    expected, past = model(source, target, lengths), empty(decoder.blocks, 2)
    for t in range(target.shape[1]):
        logits, *past = decoder(target[:, t : t + 1], lengths, cross, past)
        close(logits[:, 0, CLASS_OFFSET:], expected[:, t])


@pytest.fixture
def runtime():
    pytest.importorskip("onnxscript", reason="onnxscript is not installed; pip install 'structattn[onnx]'")
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; pip install onnxruntime")


@pytest.fixture
def session(runtime, tmp_path):
    """session(name) runs a graph: a dict of inputs gives a dict of outputs."""

    def load(name):
        opened = runtime.InferenceSession(tmp_path / "exported" / f"{name}.onnx", providers=["CPUExecutionProvider"])
        graph = json.loads((tmp_path / "exported/config.json").read_text())["graphs"][f"{name}.onnx"]
        assert [each.name for each in opened.get_inputs()] == graph["inputs"]
        shapes = {each.name: each.shape for each in opened.get_inputs()}
        assert shapes["tokens"][0] == "batch"

        def run(**inputs):
            feed = {name: np.asarray(value) for name, value in inputs.items()}
            return dict(zip(graph["outputs"], opened.run(None, feed), strict=True))

        return run, shapes

    return load


@pytest.fixture
def past_of():
    def make(shapes, batch):
        past = {name: shape for name, shape in shapes.items() if name.startswith("past.")}
        return {name: np.zeros((batch, shape[1], 0, shape[3]), np.float32) for name, shape in past.items()}

    return make


@torch.no_grad()
@pytest.mark.parametrize("layers", ["hard.gaussian", pytest.param([*MIXED, {}], marks=pytest.mark.slow, id="mixed")])
def test_onnxruntime_gives_the_logits_of_a_language_model(
    trained, session, past_of, tmp_path, caplog, monkeypatch, layers
):
    monkeypatch.setattr(logging.getLogger("torch.onnx"), "handlers", [caplog.handler])
    run = trained("sentences", {**SIZES, "layers": layers, "positions": "rotary"})
    export_run(run, "onnx", tmp_path / "exported")
    assert "torchvision" not in caplog.text
    step, shapes = session("decoder_step")
    ids = texts(run)
    expected, past = run.model(ids), past_of(shapes, len(ids))
    close(step(tokens=ids, **past)["logits"][..., CLASS_OFFSET:], expected)
    for t in range(ids.shape[1]):
        found = step(tokens=ids[:, t : t + 1], **past)
        past = {name.replace("present.", "past."): value for name, value in found.items() if name != "logits"}
        close(found["logits"][:, 0, CLASS_OFFSET:], expected[:, t])


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_onnxruntime_gives_the_logits_of_a_translator(trained, session, past_of, tmp_path, kind):
    run = trained("joint", {"kind": "encoder_decoder", **SIZES, **TRANSLATORS[kind]})
    export_run(run, "onnx", tmp_path / "exported")
    (encode, _), (step, shapes) = session("encoder"), session("decoder_step")
    source, lengths, target = sources(run)
    cross = encode(tokens=source, lengths=lengths)
    close(cross.pop("memory")[0], run.model.encode(source, lengths)[0])
    expected, past = run.model(source, target, lengths), past_of(shapes, 2)
    for t in range(target.shape[1]):
        found = step(tokens=target[:, t : t + 1], lengths=lengths, **cross, **past)
        past = {name.replace("present.", "past."): value for name, value in found.items() if name != "logits"}
        close(found["logits"][:, 0, CLASS_OFFSET:], expected[:, t])


@pytest.mark.slow
@torch.no_grad()
def test_onnxruntime_gives_the_logits_of_a_masked_model(trained, session, tmp_path):
    run = trained("masked", {"kind": "masked", **SIZES, "layers": MIXED})
    export_run(run, "onnx", tmp_path / "exported")
    encode, _ = session("encoder")
    ids, lengths = texts(run), torch.tensor([6, 4, 5])
    found = encode(tokens=ids, lengths=lengths)["logits"]
    for row, length in enumerate(lengths):
        close(found[row, :length, CLASS_OFFSET:], run.model(ids, lengths)[row, :length])


REFUSED = {
    "model.layers.1: superposition": ("sentences", {**SIZES, "layers": "1.superposition-4"}),
    "model.layers.0.stack: stack_pointer": ("sentences", {**SIZES, "layers": "1+stack_pointer"}),
    "model.positions: relative": ("sentences", {**SIZES, "layers": 1, "positions": "relative"}),
    "model: lstm": ("sentences", {"kind": "lstm", "hidden_size": 6}),
    "model: gpt2": ("sentences", {"kind": "gpt2", **SIZES, "num_layers": 1, "max_positions": 20}),
}


@pytest.mark.parametrize("part", REFUSED)
def test_other_layers_are_refused_by_name(runtime, trained, tmp_path, part):
    with pytest.raises(UsageError, match=f"{part} cannot be exported to onnx"):
        export_run(trained(*REFUSED[part]), "onnx", tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.support.imports.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="onnx is not installed; pip install '"):
        export_run(trained("sentences", {**SIZES, "layers": 2}), "onnx", tmp_path / "exported")
