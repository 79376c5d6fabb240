"""What every cross-attention layer must do. A new mechanism is one line in CROSS_LAYERS."""

import copy
import dataclasses

import pytest
import torch
from safetensors.torch import load, save
from torch.autograd import gradcheck

from structattn.attention import (
    CrossAttentionLayer,
    CrossGaussianAttention,
    CrossHardAttention,
    CrossSoftmaxAttention,
)
from structattn.attention.cache import CrossAttentionCache

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
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
CROSS_DETAILS = {"gaussian": set(), "hard": {"probabilities"}, "softmax": set()}
CHOOSING = CrossHardAttention  # layers that read few positions: what decides on them has no gradient
LENGTHS, MEMORY_LENGTHS = torch.tensor([5, 3, 0]), torch.tensor([4, 7, 6])


@pytest.fixture(params=CROSS_LAYERS.values(), ids=CROSS_LAYERS.keys())
def layer(request):
    """Without randomness, as in evaluation; where a layer chooses, what it chooses from gets zeros for gradients."""
    torch.manual_seed(5)
    made = request.param().double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-0.7, 0.7)
    return made


def examples(batch=3, time=TIME, source=SOURCE, dtype=torch.float64):
    """A sequence and a memory."""
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64) for count in (time, source)]
    return [tensor.to(dtype) for tensor in drawn]


def past(lengths, count):
    return (torch.arange(count) >= lengths[:, None])[..., None]


def assert_close(result, expected, tolerance=1e-12):
    assert (result - expected).norm() <= tolerance * max(expected.norm().item(), 1e-30)


def gradients(layer, x, memory, *lengths, weight=None):
    """The output, and the gradients of x, the memory and all parameters for a fixed cotangent."""
    leaves = [x.detach().requires_grad_(), memory.detach().requires_grad_()]
    y = layer(*leaves, *lengths)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape).sin() if weight is None else weight
    return y.detach(), *torch.autograd.grad(y, [*leaves, *layer.parameters()], weight, materialize_grads=True)


def by_steps(layer, x, memory, memory_lengths=None):
    state = layer.initial_state(memory, memory_lengths)
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


def test_the_protocol(layer):
    assert isinstance(layer, CrossAttentionLayer)


def test_positions_do_not_see_each_other(layer):
    x, memory = examples()
    changed = x.clone()
    changed[:, [0, 3]] = 2.0
    assert torch.equal(layer(x, memory)[:, [1, 2, 4]], layer(changed, memory)[:, [1, 2, 4]])


def test_every_position_sees_the_whole_memory(layer):
    x, memory = examples(batch=200)
    memory.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, memory)[:, 2].square().sum(), memory)
    seen = gradient.abs().amax(-1) > 0
    assert (seen.any(0) if isinstance(layer, CHOOSING) else seen).all()


@pytest.mark.parametrize("poison", [123.0, float("nan"), float("inf")])
def test_padding_on_either_side_does_not_leak(layer, poison):
    x, memory = examples()
    outside = [past(LENGTHS, TIME), past(MEMORY_LENGTHS, SOURCE)]
    weight = torch.ones_like(x)
    clean = gradients(layer, x, memory, LENGTHS, MEMORY_LENGTHS, weight=weight)
    poisoned = gradients(
        layer,
        x.masked_fill(outside[0], poison),
        memory.masked_fill(outside[1], poison),
        LENGTHS,
        MEMORY_LENGTHS,
        weight=weight.masked_fill(outside[0], poison),
    )
    for result, expected in zip(poisoned, clean, strict=True):
        assert torch.equal(result, expected)
    for result, where in zip(poisoned[:3], [outside[0], *outside], strict=True):
        assert (result.masked_select(where) == 0).all()


@pytest.mark.shapes
@pytest.mark.parametrize("which", ["both", "sequence", "memory"])
def test_a_padded_batch_equals_its_members_alone(layer, which):
    x, memory = examples()
    lengths = LENGTHS if which != "memory" else torch.full((3,), TIME)
    memory_lengths = MEMORY_LENGTHS if which != "sequence" else torch.full((3,), SOURCE)
    given = {"both": (lengths, memory_lengths), "sequence": (lengths, None), "memory": (None, memory_lengths)}[which]
    weight = torch.randn_like(x).masked_fill(past(lengths, TIME), 0)
    y, grad_x, grad_memory, *grads = gradients(layer, x, memory, *given, weight=weight)
    sums = [torch.zeros_like(grad) for grad in grads]
    for b, (end, full_memory_lengths) in enumerate(zip(lengths.tolist(), memory_lengths.tolist(), strict=True)):
        one = slice(b, b + 1)
        alone = gradients(layer, x[one, :end], memory[one, :full_memory_lengths], weight=weight[one, :end])
        assert_close(y[b, :end], alone[0][0])
        assert_close(grad_x[b, :end], alone[1][0])
        assert_close(grad_memory[b, :full_memory_lengths], alone[2][0])
        sums = [total + grad for total, grad in zip(sums, alone[3:], strict=True)]
    for result, expected in zip(grads, sums, strict=True):
        assert_close(result, expected, 1e-11)


def test_full_lengths_are_as_good_as_none(layer):
    x, memory = examples()
    full = torch.full((3,), TIME), torch.full((3,), SOURCE)
    assert torch.equal(layer(x, memory, *full), layer(x, memory))


def test_order_within_the_batch_is_irrelevant(layer):
    (x, memory), order = examples(), torch.tensor([2, 0, 1])
    reordered = layer(x[order], memory[order], LENGTHS[order], MEMORY_LENGTHS[order])
    assert_close(reordered, layer(x, memory, LENGTHS, MEMORY_LENGTHS)[order], 1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory_lengths", [None, MEMORY_LENGTHS])
def test_step_by_step_equals_the_whole(layer, dtype, memory_lengths):
    layer, (x, memory) = layer.to(dtype), examples(dtype=dtype)
    leaves = [x.requires_grad_(), memory.requires_grad_(), *layer.parameters()]
    whole, steps = layer(x, memory, None, memory_lengths), by_steps(layer, x, memory, memory_lengths)
    assert steps.dtype == dtype
    assert_close(steps, whole, TOLERANCE[dtype])
    with torch.no_grad():
        assert_close(by_steps(layer, x, memory, memory_lengths), whole, TOLERANCE[dtype])
    wanted = torch.autograd.grad(whole.square().sum(), leaves, materialize_grads=True)
    found = torch.autograd.grad(steps.square().sum(), leaves, materialize_grads=True)
    for result, expected in zip(found, wanted, strict=True):
        assert_close(result, expected, 10 * TOLERANCE[dtype])


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
def test_a_state_is_a_value_and_can_be_selected(layer, memory_lengths):
    (x, memory), chosen = examples(), torch.tensor([2, 0, 0, 1])
    _, state = layer.step(x[:, 0], layer.initial_state(memory, memory_lengths))
    kept = copy.deepcopy(state)
    first, _ = layer.step(x[:, 1], state)
    layer.step(x[:, 2], state)
    again, _ = layer.step(x[:, 1], state)
    assert torch.equal(first, again)
    pairs = zip(taken_apart(state), taken_apart(kept), strict=True)
    assert all(torch.equal(now, before) for now, before in pairs)
    assert torch.equal(first, layer.step(x[:, 1], kept)[0])
    selected, _ = layer.step(x[chosen, 1], state.select(chosen))
    assert_close(selected, first[chosen], 1e-14)


def test_gradcheck(layer):
    (x, memory), ends = examples(2, 2, 3), (torch.tensor([2, 1]), torch.tensor([1, 3]))
    leaves = [x.requires_grad_(), memory.requires_grad_(), *layer.parameters()]
    assert gradcheck(lambda x, memory, *_: layer(x, memory, *ends), leaves, fast_mode=isinstance(layer, CHOOSING))


def test_saved_and_loaded_is_the_same(layer):
    (x, memory), other = examples(), copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(float("nan"))
    other.load_state_dict(load(save(layer.state_dict())))
    assert torch.equal(other(x, memory), layer(x, memory))


@pytest.mark.shapes
@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 3, 4)])
def test_short_and_empty(layer, sizes):
    x, memory = examples(*sizes)
    y, *grads = gradients(layer, x, memory)
    assert y.shape == x.shape
    assert all(grad.isfinite().all() for grad in grads)
    empty = torch.zeros(sizes[0], dtype=torch.int64)
    assert (layer(x, memory, empty, empty) == 0).all()


@pytest.mark.parametrize("source", [0, SOURCE])
def test_without_a_memory_only_a_bias_is_left(layer, source):
    x, memory = examples(source=source)
    nothing = layer(x, memory, None, torch.zeros(3, dtype=torch.int64))
    bias = layer.output.bias if layer.output.bias is not None else torch.zeros(WIDTH, dtype=torch.float64)
    assert torch.equal(nothing, bias.expand_as(nothing))
    _, grad_x, grad_memory, *_ = gradients(layer, x, memory, None, torch.zeros(3, dtype=torch.int64))
    assert (grad_x == 0).all()
    assert (grad_memory == 0).all()


@pytest.mark.shapes
def test_explanation_is_complete(layer):
    x, memory = examples()
    record = layer.explain(x, memory, LENGTHS, MEMORY_LENGTHS)
    batch, _, time, sources = record.weights.shape
    assert (batch, time, sources) == (3, TIME, SOURCE)
    assert set(record.details) == CROSS_DETAILS[record.mechanism]
    outside, hidden = past(LENGTHS, TIME)[..., 0], past(MEMORY_LENGTHS, SOURCE)[..., 0]
    for tensor in [record.weights.transpose(1, 2), *record.details.values()]:
        assert (tensor[outside] == 0).all()
        assert (tensor.movedim(3, 1)[hidden] == 0).all()
        assert not tensor.requires_grad
        sums = tensor.sum(-1)[~outside]
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


@pytest.mark.shapes
def test_attending_gives_the_output_and_its_weights(layer):
    x, memory = examples()
    y, weights = layer.attend(x, memory, LENGTHS, MEMORY_LENGTHS)
    torch.testing.assert_close(y, layer(x, memory, LENGTHS, MEMORY_LENGTHS), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(weights, layer.explain(x, memory, LENGTHS, MEMORY_LENGTHS).weights)


@pytest.mark.quick("gaussian, learned head", "hard", "softmax")
def test_survives_compilation(layer):
    x, memory = examples()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = gradients(compiled, x, memory, LENGTHS, MEMORY_LENGTHS)
    wanted = gradients(layer, x, memory, LENGTHS, MEMORY_LENGTHS)
    for result, expected in zip(found, wanted, strict=True):
        assert_close(result, expected, 1e-12)
