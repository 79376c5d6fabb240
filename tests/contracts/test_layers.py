"""What every attention layer must do: each registered mechanism, and variants of them."""

import copy
import dataclasses
import inspect

import pytest
import torch
from safetensors.torch import load, save
from torch.autograd import gradcheck

from structattn.attention import (
    GaussianAttention,
    HardAttention,
    NondeterministicStackAttention,
    SoftmaxAttention,
    StackPointerAttention,
    SuperpositionStackAttention,
    XavierInitialized,
)
from structattn.attention.cache import KeyValueCache
from structattn.attention.positions import AlibiPositions, RelativePositions, RotaryPositions
from structattn.models.builders.mechanisms import build_attention
from structattn.settings.mechanisms import MECHANISMS, NoAttention
from structattn.settings.transformer import TransformerSettings

WIDTH = 6
POSITIONS = {
    "rotary": lambda: RotaryPositions(2),
    "rotary, halves": lambda: RotaryPositions(2, layout="halves"),
    "alibi": lambda: AlibiPositions(3),
    "alibi, shifted": lambda: AlibiPositions(3, variant="shifted"),
    "relative": lambda: RelativePositions(WIDTH, num_heads=3),
}


def registered_layer(mechanism):
    """The layer of a mechanism as settings build it, with small numbers for the sizes of its short form."""
    sizes = {field: size for size, field in enumerate(mechanism.sizes, start=2)}
    model = TransformerSettings(d_model=WIDTH, num_heads=3)
    return build_attention(model, mechanism.settings(attention=mechanism.name, **sizes), causal=True)


LAYERS = {
    **{
        name: lambda mechanism=mechanism: registered_layer(mechanism)
        for name, mechanism in MECHANISMS.items()
        if (mechanism.layer or mechanism.self_attention) and mechanism.settings is not NoAttention
    },
    "gaussian, three heads": lambda: GaussianAttention(WIDTH, [-1.0, 0.0, 0.5]),
    "gaussian, learned heads": lambda: GaussianAttention(
        WIDTH, [-1.0], num_learned_heads=2, kernel="window", positions=RotaryPositions(2)
    ),
    "gaussian, index": lambda: GaussianAttention(WIDTH, [-1.0, 1.0], num_learned_heads=1, kernel="index"),
    "hard, no bias": lambda: HardAttention(WIDTH, num_heads=3, bias=False),
    **{
        f"hard, {name}": lambda make=make: HardAttention(WIDTH, num_heads=3, positions=make())
        for name, make in POSITIONS.items()
    },
    "softmax, one head": lambda: SoftmaxAttention(WIDTH, num_heads=1),
    "softmax, no bias": lambda: SoftmaxAttention(WIDTH, num_heads=3, bias=False),
    **{
        f"softmax, {name}": lambda make=make: SoftmaxAttention(WIDTH, num_heads=3, positions=make())
        for name, make in POSITIONS.items()
    },
    "superposition, as its code": lambda: SuperpositionStackAttention(
        WIDTH, stack_embedding_size=5, pushed_activation="none"
    ),
    "stack pointer, learned bottom": lambda: StackPointerAttention(WIDTH, bottom="learned"),
    "nondeterministic, window": lambda: NondeterministicStackAttention(WIDTH, 2, 2, 3, window=3),
    "nondeterministic, pop offset": lambda: NondeterministicStackAttention(WIDTH, 2, 2, 3, pop_offset=3.0),
    "nondeterministic, as its code": lambda: NondeterministicStackAttention(WIDTH, 1, 2, 4, pushed_activation="exp"),
}
# Of each mechanism the variant that has the most in it: what compiles with these compiles with less.
REPRESENTATIVES = (
    *("gaussian, learned heads", "hard, relative", "softmax, rotary"),
    *("superposition", "stack_pointer", "nondeterministic"),
)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
DETAILS = {"hard": {"probabilities"}, "nondeterministic": {"best_run"}}  # beside the actions
CHOOSING = HardAttention  # layers that read few positions: what decides on them has no gradient


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def layer(request):
    """Without randomness, as in evaluation; where a layer chooses, what it chooses from gets zeros for gradients."""
    torch.manual_seed(5)
    made = request.param().double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-0.7, 0.7)
    return made


def examples(batch=3, time=7, dtype=torch.float64):
    return torch.randn(batch, time, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def assert_close(result, expected, tolerance=1e-12):
    assert (result - expected).norm() <= tolerance * max(expected.norm().item(), 1e-30)


def gradients(layer, x, lengths=None, weight=None):
    """The output, and the gradients of x and of all parameters for a fixed cotangent."""
    x = x.detach().requires_grad_()
    y = layer(x, lengths)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape).sin() if weight is None else weight
    return y.detach(), torch.autograd.grad(y, [x, *layer.parameters()], weight, materialize_grads=True)


def test_another_width_is_refused_with_shapes(layer):
    for call in (
        lambda: layer(examples()[..., :-1]),
        lambda: layer.step(examples()[:, 0, :-1], layer.initial_state(3)),
        lambda: layer.explain(examples()[..., :-1]),
    ):
        with pytest.raises(
            ValueError, match=rf"input has shape \(3, .*{WIDTH - 1}\); expected \(3, .*{WIDTH}\): d_model"
        ):
            call()


def test_later_positions_never_matter(layer):
    x = examples()
    changed = x.clone()
    changed[:, 4:] = 3 * torch.randn(3, 3, WIDTH, dtype=torch.float64)
    assert torch.equal(layer(x)[:, :4], layer(changed)[:, :4])
    x.requires_grad_()
    (early,) = torch.autograd.grad(layer(x)[:, :4].sum(), x)
    assert (early[:, 4:] == 0).all()


def test_every_position_sees_itself_and_the_first(layer):
    x = examples(batch=100).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, 5].square().sum(), x)
    seen = gradient[:, [0, 5]].abs().amax(-1) > 0
    assert (seen.any(0) if isinstance(layer, CHOOSING) else seen).all()


@pytest.mark.parametrize("poison", [123.0, float("nan"), float("inf")])
def test_padding_does_not_leak(layer, poison):
    lengths = torch.tensor([7, 3, 0])
    past = torch.arange(7) >= lengths[:, None]
    x = examples()
    weight = torch.ones_like(x)
    clean, clean_gradients = gradients(layer, x, lengths, weight)
    poisoned, poisoned_gradients = gradients(
        layer, x.masked_fill(past[..., None], poison), lengths, weight.masked_fill(past[..., None], poison)
    )
    assert (poisoned[past] == 0).all()
    assert torch.equal(poisoned, clean)
    assert (poisoned_gradients[0][past] == 0).all()
    for result, expected in zip(poisoned_gradients, clean_gradients, strict=True):
        assert torch.equal(result, expected)


@pytest.mark.shapes
def test_a_padded_batch_equals_its_members_alone(layer):
    lengths, x = torch.tensor([7, 1, 4]), examples()
    here = torch.arange(7) < lengths[:, None]
    weight = torch.randn(3, 7, WIDTH, dtype=torch.float64) * here[..., None]
    together, (grad_x, *grads) = gradients(layer, x, lengths, weight)
    sums = [torch.zeros_like(grad) for grad in grads]
    for b, length in enumerate(lengths.tolist()):
        alone, (grad_alone, *more) = gradients(layer, x[b : b + 1, :length], None, weight[b : b + 1, :length])
        assert_close(together[b, :length], alone[0])
        assert_close(grad_x[b, :length], grad_alone[0])
        sums = [total + grad for total, grad in zip(sums, more, strict=True)]
    for result, expected in zip(grads, sums, strict=True):
        assert_close(result, expected, 1e-11)


def test_full_lengths_are_as_good_as_none(layer):
    x = examples()
    assert torch.equal(layer(x, torch.tensor([7, 7, 7])), layer(x))


def test_order_within_the_batch_is_irrelevant(layer):
    x, order = examples(), torch.tensor([2, 0, 1])
    lengths = torch.tensor([7, 5, 2])
    assert_close(layer(x[order], lengths[order]), layer(x, lengths)[order], 1e-15)


def by_steps(layer, x):
    state = layer.initial_state(x.shape[0])
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 12])
def test_step_by_step_equals_the_whole(layer, dtype, time):
    layer = layer.to(dtype)
    x = examples(2, time, dtype).requires_grad_()
    whole, steps = layer(x), by_steps(layer, x)
    assert steps.dtype == dtype
    assert_close(steps, whole, TOLERANCE[dtype])
    with torch.no_grad():
        assert_close(by_steps(layer, x), whole, TOLERANCE[dtype])
    wanted = torch.autograd.grad(whole.square().sum(), [x, *layer.parameters()], materialize_grads=True)
    found = torch.autograd.grad(steps.square().sum(), [x, *layer.parameters()], materialize_grads=True)
    for result, expected in zip(found, wanted, strict=True):
        assert_close(result, expected, 10 * TOLERANCE[dtype])


@torch.no_grad()
def test_a_state_is_a_value(layer):
    x = examples()
    _, state = layer.step(x[:, 0], layer.initial_state(3))
    kept = copy.deepcopy(state)
    first, _ = layer.step(x[:, 1], state)
    layer.step(x[:, 2], state)
    again, _ = layer.step(x[:, 1], state)
    assert torch.equal(first, again)
    pairs = zip(taken_apart(state), taken_apart(kept), strict=True)
    assert all(torch.equal(now, before) for now, before in pairs)
    assert torch.equal(first, layer.step(x[:, 1], kept)[0])


@torch.no_grad()
def test_branches_do_not_meet(layer):
    x, other = examples(), examples().flip(0)
    _, trunk = layer.step(x[:, 0], layer.initial_state(3))
    one, two, chosen = trunk, trunk.select(torch.tensor([0, 2, 2, 1])), torch.tensor([0, 2, 2, 1])
    mixed = torch.cat([x[chosen, :1], other[chosen, 1:]], dim=1)
    for t in range(1, x.shape[1]):
        y, one = layer.step(x[:, t], one)
        z, two = layer.step(mixed[:, t], two)
    assert_close(y, layer(x)[:, -1], 1e-12)
    assert_close(z, layer(mixed)[:, -1], 1e-12)


@pytest.mark.shapes
def test_states_can_be_selected(layer):
    x, chosen = examples(), torch.tensor([2, 0, 0, 1])
    _, state = layer.step(x[:, 0], layer.initial_state(3))
    y, _ = layer.step(x[:, 1], state)
    selected, _ = layer.step(x[chosen, 1], state.select(chosen))
    assert_close(selected, y[chosen], 1e-14)
    with torch.no_grad():
        twice, after = layer.step(x[chosen[1:3], 1], state.select(chosen).select(torch.tensor([1, 2])))
        assert_close(twice, y[[0, 0]], 1e-14)
        further, _ = layer.step(x[[0, 0], 2], after.select(torch.tensor([1, 0])))
        assert_close(further, layer.step(x[:, 2], layer.step(x[:, 1], state)[1])[0][[0, 0]], 1e-14)


def test_gradcheck(layer):
    x = examples(2, 3).requires_grad_()
    parameters = list(layer.parameters())
    lengths = torch.tensor([3, 2])
    fast = isinstance(layer, CHOOSING)  # whose forward pass is long, for hundreds of small changes of it
    assert gradcheck(lambda x, *_: layer(x, lengths), (x, *parameters), fast_mode=fast)


def test_saved_and_loaded_is_the_same(layer):
    x, other = examples(), copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(float("nan"))
    other.load_state_dict(load(save(layer.state_dict())))
    assert torch.equal(other(x), layer(x))


@pytest.mark.shapes
@pytest.mark.parametrize("shape", [(2, 1), (2, 0), (0, 4), (0, 0)])
def test_short_and_empty(layer, shape):
    x = examples(*shape)
    y, grads = gradients(layer, x)
    assert y.shape == x.shape
    assert grads[0].shape == x.shape
    assert all(grad.isfinite().all() for grad in grads)
    assert (gradients(layer, x, torch.zeros(shape[0], dtype=torch.int64))[0] == 0).all()


@pytest.mark.shapes
def test_explanation_is_complete(layer):
    lengths, x = torch.tensor([7, 3, 0]), examples()
    record = layer.explain(x, lengths)
    batch, _, time, sources = record.weights.shape
    assert (batch, time, sources) == (3, 7, 7 + record.first_source)
    actions = {"actions"} if MECHANISMS[record.mechanism].actions else set()
    assert set(record.details) == actions | DETAILS.get(record.mechanism, set())
    past = torch.arange(7) >= lengths[:, None]
    for tensor in [record.weights.transpose(1, 2), *record.details.values()]:
        assert (tensor[past] == 0).all()
        assert not tensor.requires_grad
    assert (record.weights.triu(1 + record.first_source) == 0).all()
    sums = record.weights.sum(-1).transpose(1, 2)[~past]
    assert (sums <= 1 + (1e-8 if record.mechanism == "gaussian" else 1e-12)).all()  # an infinite sum of densities
    if record.mechanism not in ("gaussian", "superposition"):  # cut at borders; a stack that may be empty
        torch.testing.assert_close(sums, torch.ones_like(sums))
    if "actions" in record.details:
        total = record.details["actions"].sum(-1)[~past]
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.shapes
def test_contents_of_stacks_are_complete(layer):
    lengths, x = torch.tensor([7, 3, 0]), examples()
    record = layer.explain(x, lengths)
    assert (record.contents is None) == (not MECHANISMS[record.mechanism].actions)
    if record.contents is None:
        return
    found = record.contents(8)
    past = torch.arange(7) >= lengths[:, None]
    assert found.positions.shape == (3, 7, 8, record.weights.shape[-1])
    for tensor in (found.height, found.at_least, found.positions, *([] if found.symbols is None else [found.symbols])):
        assert (tensor[past] == 0).all()
    for parts in [found.positions] if found.symbols is None else [found.positions, found.symbols]:
        torch.testing.assert_close(parts.sum(-1), found.at_least)
    torch.testing.assert_close(found.at_least.sum(-1), found.height)  # 7 items, and the bottom
    pointer_bottom = record.mechanism == "stack_pointer"  # the empty stack is no item
    torch.testing.assert_close(found.positions[:, :, 0, pointer_bottom:], record.weights[:, 0, :, pointer_bottom:])


@pytest.mark.shapes
def test_autocast_keeps_the_result_close(layer):
    layer, x = layer.float(), examples(dtype=torch.float32)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = layer(x)
        alike = _chosen_alike(layer, x)
    assert (result - expected)[alike].norm() <= 0.05 * expected[alike].norm()


def _chosen_alike(layer, x):
    """Positions where what was chosen in this precision is what is chosen without autocast; all without choices."""
    if not isinstance(layer, CHOOSING):
        return torch.ones(x.shape[:2], dtype=torch.bool)
    with torch.autocast("cpu", enabled=False):
        expected = layer.attend(x)[1]
    alike = (layer.attend(x)[1] == expected).all(-1).all(1)
    assert alike.double().mean() > 0.8
    return alike


@pytest.mark.quick(*REPRESENTATIVES)
def test_survives_compilation(layer):
    x, lengths = examples(), torch.tensor([7, 3, 1])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, wanted = gradients(compiled, x, lengths), gradients(layer, x, lengths)
    for result, expected in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        assert_close(result, expected, 1e-12)


def test_xavier_matrices_are_views_of_the_parameters(layer):
    storages = {parameter.data_ptr(): parameter.numel() for parameter in layer.parameters()}
    matrices = layer.xavier_matrices() if isinstance(layer, XavierInitialized) else []
    assert all(matrix.dim() == 2 and matrix.untyped_storage().data_ptr() in storages for matrix in matrices)
    if matrices:
        assert sum(matrix.numel() for matrix in matrices) == sum(p.numel() for p in layer.parameters() if p.dim() == 2)


@pytest.mark.quick(*REPRESENTATIVES)
@torch.no_grad()
def test_a_step_can_be_exported(layer):
    """By torch.export, for a state of the length that it has; the kernel's state is no tensor, the definition's is."""
    defined = "implementation" in inspect.signature(layer.initial_state).parameters
    x, state = examples(), layer.initial_state(3, **({"implementation": "reference"} if defined else {}))
    for x_t in x[:, :3].unbind(1):
        _, state = layer.step(x_t, state)
    tensors = taken_apart(state)
    program = torch.export.export(Stepping(layer, state), (x[:, 3], *tensors))
    expected, _ = layer.step(x[:, 3], state)
    assert_close(program.module()(x[:, 3], *tensors)[0], expected)


@pytest.mark.quick("gaussian", "hard", "softmax, rotary", "superposition", "stack_pointer")
@torch.no_grad()
def test_steps_survive_compilation(layer):
    """Two of them, choosing between."""
    if isinstance(layer, NondeterministicStackAttention):
        pytest.skip("a state that is the kernel's is no tensor, and tracing cannot see it; the definition's compiles")
    x = examples()
    _, state = layer.step(x[:, 0], layer.initial_state(3))

    def two_steps(first, second):
        _, after = layer.step(first, state)
        return layer.step(second, after.select(torch.tensor([0, 2])))[0]

    torch.compiler.reset()
    compiled = torch.compile(two_steps, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x[:, 1], x[:2, 2]), two_steps(x[:, 1], x[:2, 2]))


class Stepping(torch.nn.Module):
    """A step as a function of x_t and of the tensors of a state."""

    def __init__(self, layer, state):
        super().__init__()
        self.layer, self.state = layer, state

    def forward(self, x_t, *tensors):
        y_t, after = self.layer.step(x_t, put_together(self.state, iter(tensors)))
        return y_t, taken_apart(after)


def taken_apart(state):
    """All tensors of a state."""
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, KeyValueCache):
        return list(state.tensors)
    if dataclasses.is_dataclass(state):
        return [tensor for value in vars(state).values() for tensor in taken_apart(value)]
    return []


def put_together(state, tensors):
    """A state like this one, of these tensors."""
    if isinstance(state, torch.Tensor):
        return next(tensors)
    if isinstance(state, KeyValueCache):
        return KeyValueCache.from_tensors([next(tensors) for _ in state.tensors])
    if dataclasses.is_dataclass(state):
        return dataclasses.replace(state, **{name: put_together(value, tensors) for name, value in vars(state).items()})
    return state


def results_of(layer, x, lengths):
    y_t, _ = layer.step(x[:, 0], layer.initial_state(x.shape[0]))
    return layer(x), layer(x, lengths), y_t


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_the_meta_device_gives_shapes(make):
    x, lengths = examples(dtype=torch.float32), torch.tensor([7, 3, 5])
    with torch.device("meta"):
        on_meta = make().eval()
    assert all(parameter.is_meta for parameter in on_meta.parameters())
    results = results_of(on_meta, x.to("meta"), lengths.to("meta"))
    for result, expected in zip(results, results_of(make().eval(), x, lengths), strict=True):
        assert result.is_meta
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_the_default_dtype_is_that_of_parameters_and_results(make, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = make().eval()
        results = results_of(made, examples(dtype=dtype), torch.tensor([7, 3, 5]))
    finally:
        torch.set_default_dtype(before)
    assert {parameter.dtype for parameter in made.parameters()} == {dtype}
    assert {result.dtype for result in results} == {dtype}
    assert all(result.isfinite().all() for result in results)
