"""Models on the meta device, under torch's default device and dtype, and in other precisions."""

from contextlib import contextmanager

import pytest
import torch

from structattn.models import EncoderDecoder, MaskedLanguageModel
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings

SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2}
MIXED = "softmax.hard.superposition-3.nondeterministic-1-2-3.gaussian.delta_product-1.softmax+stack_pointer"
TAKE_POSITIONS = "softmax.hard.gaussian"
POSITIONS = dict.fromkeys(("none", "sinusoidal", "learned", "rotary", "alibi"), TAKE_POSITIONS) | {"relative": MIXED}
MODELS = {
    f"{kind}, {positions}": {"kind": kind, "layers": layers, "positions": positions}
    for kind in ("transformer", "masked")
    for positions, layers in POSITIONS.items()
} | {
    "looped": {"kind": "transformer", "layers": "2.superposition-3", "loops": "log"},
    "two streams": {"kind": "two_stream", "num_layers": 1, "positions": "alibi"},
    "translator": {
        "kind": "encoder_decoder",
        "decoder": {"layers": "softmax.hard.gaussian", "cross_attention": "softmax.hard.gaussian"},
    },
    "lstm": {"kind": "lstm", "hidden_size": 8, "stack": "superposition-3"},
    "lstm, nondeterministic": {"kind": "lstm", "hidden_size": 8, "stack": "nondeterministic-1-2-3"},
    "rnn": {"kind": "rnn", "hidden_size": 8, "embedding_size": 4},
}
TOKENS, LENGTHS = torch.tensor([[1, 4, 5, 6], [1, 5, 0, 0]]), torch.tensor([4, 2])
TOLERANCE = {torch.float64: 1e-5, torch.bfloat16: 0.1, torch.float16: 0.03}

each_model = pytest.mark.parametrize("name", MODELS)


def built(name):
    sizes = {} if "hidden_size" in MODELS[name] else SIZES
    task = {"masked": "masked_language_modeling", "encoder_decoder": "translation"}.get(MODELS[name]["kind"])
    batches = "pairs" if task == "translation" else "sequences"
    tree = {"task": task or "language_modeling", "data": "unused", "training": {"batches": batches}}
    return build_model(resolve_settings(tree | {"model": MODELS[name] | sizes}).model, 11).eval()


def logits_of(model, device="cpu"):
    tokens, lengths = TOKENS.to(device), LENGTHS.to(device)
    logits = model(tokens, tokens, lengths, lengths) if isinstance(model, EncoderDecoder) else model(tokens, lengths)
    return logits, LENGTHS[:, None] > torch.arange(4, device="cpu")


def stepped(model):
    """The logits of all steps but for masked models, which take none."""
    if isinstance(model, MaskedLanguageModel):
        return None
    state, steps = model.initial_state(TOKENS if isinstance(model, EncoderDecoder) else 2), []
    for tokens in TOKENS.clamp(min=1).unbind(1):
        logits, state = model.step(tokens, state.select(torch.tensor([0, 1], device="cpu")))
        steps.append(logits)
    return torch.stack(steps, 1)


def reference(name):
    torch.manual_seed(0)
    model = built(name)
    return model, logits_of(model)[0]


@contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@each_model
def test_meta_device(name):
    """Shapes alone; what is not stored is there again once the weights are."""
    model, expected = reference(name)
    with torch.device("meta"):
        shapes = built(name)
    assert logits_of(shapes, "meta")[0].shape == expected.shape
    loaded = shapes.to_empty(device="cpu")
    loaded.load_state_dict(model.state_dict())
    found, inside = logits_of(loaded)
    torch.testing.assert_close(found[inside], expected[inside])


@each_model
def test_another_default_device(name):
    model, expected = reference(name)
    with default_device("meta"):
        found, inside = logits_of(model.train())
        found.sum().backward()
        steps = stepped(model.eval())
    assert found.device.type == "cpu"
    assert steps is None or steps.device.type == "cpu"
    torch.testing.assert_close(logits_of(model)[0][inside], expected[inside])


@pytest.mark.covering(1)
@each_model
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_default_dtype(name, dtype):
    model, expected = reference(name)
    with default_dtype(dtype):
        other = built(name)
        other.load_state_dict(model.state_dict())
        found, inside = logits_of(other)
        found.sum().backward()
        steps = stepped(other)
    assert found.dtype == dtype
    assert steps is None or steps.dtype == dtype
    error = (found.float() - expected)[inside].norm() / expected[inside].norm()
    assert error < TOLERANCE[dtype]


@pytest.mark.covering(1)
@each_model
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_cast_model(name, dtype):
    model, expected = reference(name)
    found, inside = logits_of(model.to(dtype))
    assert found.dtype == dtype
    assert (found.float() - expected)[inside].norm() / expected[inside].norm() < TOLERANCE[dtype]
    torch.testing.assert_close(logits_of(model.float())[0][inside], expected[inside], rtol=0.1, atol=0.1)
