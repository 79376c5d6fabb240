"""What every cross-attention layer must do. A new mechanism is one line in CROSS_LAYERS."""

import copy
import dataclasses

import pytest
import torch
from tests.contracts.transforms import check_under_transforms

from structattn.attention import (
    CrossAttentionLayer,
    CrossGaussianAttention,
    CrossHardAttention,
    CrossSoftmaxAttention,
)
from structattn.attention.cache import CrossAttentionCache
from structattn.attention.contract import CROSS_CHECKS, by_steps, check_gradients, output_and_gradients, require_close

WIDTH, TIME, SOURCE = 6, 5, 7
CROSS_LAYERS = {
    "gaussian": lambda: CrossGaussianAttention(WIDTH, [-1.0, 0.0, 1.0], ratio=1.4),
    "gaussian, learned head": lambda: CrossGaussianAttention(
        WIDTH, [-1.0, 1.0], num_learned_heads=1, ratio=0.7, floor=False, kernel="window"
    ),
    "hard": lambda: CrossHardAttention(WIDTH, num_heads=3),
    "hard, no bias": lambda: CrossHardAttention(WIDTH, num_heads=2, bias=False),
    "softmax": lambda: CrossSoftmaxAttention(WIDTH, num_heads=3),
    "softmax, no bias": lambda: CrossSoftmaxAttention(WIDTH, num_heads=1, bias=False),
}
CROSS_DETAILS = {"gaussian": set(), "hard": {"probabilities"}, "softmax": set()}
CHOOSING = CrossHardAttention  # layers that read few positions: what decides on them has no gradient
LENGTHS, MEMORY_LENGTHS = torch.tensor([5, 3, 0]), torch.tensor([4, 7, 6])


@pytest.fixture(params=CROSS_LAYERS.values(), ids=CROSS_LAYERS.keys())
def layer(request):
    """Without randomness, as in evaluation; where a layer chooses, what it chooses from gets zeros for gradients."""
    torch.manual_seed(5)
    made = request.param().double().eval()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def examples(batch=3, time=TIME, source=SOURCE, dtype=torch.float64):
    """A sequence and a memory."""
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64) for count in (time, source)]
    return [tensor.to(dtype) for tensor in drawn]


def test_the_protocol(layer):
    assert isinstance(layer, CrossAttentionLayer)


@pytest.mark.shapes
@pytest.mark.parametrize("check", CROSS_CHECKS)
def test_contract(layer, check):
    if check == "gradients" and isinstance(layer, CHOOSING):
        check_gradients(layer, *examples(), fast=True)
    else:
        CROSS_CHECKS[check](layer, *examples())


@pytest.mark.parametrize("with_gradients", [True, False])
def test_a_step_refuses_a_batch_that_is_not_that_of_the_state(layer, with_gradients):
    x, memory = examples()
    with torch.set_grad_enabled(with_gradients):
        state = layer.initial_state(memory[:2])
        for each in (state, state.select(torch.tensor([1, 0]))):
            for batch in (1, 3):
                with pytest.raises(ValueError, match=f"the step has batch size {batch}; expected 2"):
                    layer.step(x[:batch, 0], each)


def test_a_step_refuses_a_sequence(layer):
    x, memory = examples()
    with pytest.raises(ValueError, match=r"the step has shape \(3, 1, .*\); expected \(B, d\)"):
        layer.step(x[:, :1], layer.initial_state(memory))


def test_another_width_is_refused_with_shapes(layer):
    x, memory = examples()
    for call in (
        lambda: layer(x[..., :-1], memory),
        lambda: layer(x, memory[..., :-1]),
        lambda: layer.attend(x[..., :-1], memory),
        lambda: layer.explain(x[..., :-1], memory),
        lambda: layer.initial_state(memory[..., :-1]),
        lambda: layer.step(x[:, 0, :-1], layer.initial_state(memory)),
    ):
        with pytest.raises(ValueError, match=r"the input has shape \(3, .*\); expected \(3, .*\): d_model is"):
            call()


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_memory_of_another_batch_is_refused(layer, batch):
    x, memory = examples()
    for call in (layer, layer.attend, layer.explain):
        with pytest.raises(ValueError, match=f"the memory has batch size {batch}; expected 3, the input's"):
            call(x, memory[:batch])


def test_every_position_sees_the_whole_memory(layer):
    x, memory = examples(batch=200)
    memory.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, memory)[:, 2].square().sum(), memory)
    seen = gradient.abs().amax(-1) > 0
    assert (seen.any(0) if isinstance(layer, CHOOSING) else seen).all()


def taken_apart(state):
    """All tensors and numbers of a state, as tensors."""
    if isinstance(state, CrossAttentionCache):
        return [*state.rows, *state.tensors, *([] if state.lengths is None else [state.lengths])]
    if dataclasses.is_dataclass(state):
        return [tensor for value in vars(state).values() for tensor in taken_apart(value)]
    return [] if state is None else [torch.as_tensor(state)]


@pytest.mark.shapes
@torch.no_grad()
@pytest.mark.parametrize("memory_lengths", [None, MEMORY_LENGTHS])
def test_a_step_leaves_the_tensors_of_a_state(layer, memory_lengths):
    x, memory = examples()
    _, state = layer.step(x[:, 0], layer.initial_state(memory, memory_lengths))
    kept = copy.deepcopy(state)
    first, _ = layer.step(x[:, 1], state)
    pairs = zip(taken_apart(state), taken_apart(kept), strict=True)
    assert all(torch.equal(now, before) for now, before in pairs)
    assert torch.equal(first, layer.step(x[:, 1], kept)[0])


@pytest.mark.parametrize("source", [0, SOURCE])
def test_without_a_memory_only_a_bias_is_left(layer, source):
    x, memory = examples(source=source)
    nothing = layer(x, memory, None, torch.zeros(3, dtype=torch.int64))
    bias = layer.output.bias if layer.output.bias is not None else torch.zeros(WIDTH, dtype=torch.float64)
    assert torch.equal(nothing, bias.expand_as(nothing))
    nowhere = [None, torch.zeros(3, dtype=torch.int64)]
    _, (grad_x, grad_memory, *_) = output_and_gradients(layer, x, memory, lengths=nowhere)
    assert (grad_x == 0).all()
    assert (grad_memory == 0).all()


@pytest.mark.shapes
def test_explanation_is_complete(layer):
    x, memory = examples()
    record = layer.explain(x, memory, LENGTHS, MEMORY_LENGTHS)
    assert set(record.details) == CROSS_DETAILS[record.mechanism]
    here = torch.arange(TIME) < LENGTHS[:, None]
    for tensor in [record.weights.transpose(1, 2), *record.details.values()]:
        sums = tensor.sum(-1)[here]
        if record.mechanism != "gaussian":  # which is cut where the memory ends
            torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.shapes
def test_autocast_keeps_the_result_close(layer):
    layer, (x, memory) = layer.float(), examples(dtype=torch.float32)
    expected, weights = layer.attend(x, memory)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, weights_found = layer.attend(x, memory)
    alike = torch.ones(x.shape[:2], dtype=torch.bool)
    if isinstance(layer, CHOOSING):
        alike = (weights_found == weights).all(-1).all(1)
        assert alike.double().mean() > 0.8
    assert (result - expected)[alike].norm() <= 0.05 * expected[alike].norm()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
def test_steps_under_transforms(layer):
    x, memory = examples()

    def steps(x):
        return by_steps(layer, layer.initial_state(memory), x)

    forward_mode = not isinstance(layer, CrossGaussianAttention)
    check_under_transforms(steps, lambda x: layer(x, memory), x, forward_mode=forward_mode)


@pytest.mark.shapes
def test_attending_gives_the_output_and_its_weights(layer):
    x, memory = examples()
    y, weights = layer.attend(x, memory, LENGTHS, MEMORY_LENGTHS)
    torch.testing.assert_close(y, layer(x, memory, LENGTHS, MEMORY_LENGTHS), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(weights, layer.explain(x, memory, LENGTHS, MEMORY_LENGTHS).weights)


@pytest.mark.quick("gaussian, learned head", "softmax")
def test_survives_compilation(layer):
    x, memory = examples()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    lengths = LENGTHS, MEMORY_LENGTHS
    found, wanted = (output_and_gradients(each, x, memory, lengths=lengths) for each in (compiled, layer))
    for result, expected in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        require_close("the compiled layer", result, "the layer", expected, 1e-12)
