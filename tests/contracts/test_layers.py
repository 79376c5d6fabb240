"""What every attention layer must do: each registered mechanism, and variants of them."""

import copy
import dataclasses
import inspect
import itertools

import pytest
import torch
from tests.contracts.transforms import check_under_transforms

from structattn.attention import (
    DeltaProductAttention,
    GaussianAttention,
    HardAttention,
    NondeterministicStackAttention,
    SoftmaxAttention,
    StackPointerAttention,
    StackTransAttention,
    SuperpositionStackAttention,
    XavierInitialized,
)
from structattn.attention.cache import KeyValueCache
from structattn.attention.contract import (
    CHECKS,
    by_steps,
    check_gradients,
    check_steps,
    output_and_gradients,
    require_close,
)
from structattn.attention.positions import AlibiPositions, RelativePositions, RotaryPositions
from structattn.models.builders.mechanisms import build_attention
from structattn.settings.attention import NoAttention
from structattn.settings.mechanisms import MECHANISMS
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
    "delta_product, sizes": lambda: DeltaProductAttention(WIDTH, 2, 3, key_size=4, value_size=2),
    "delta_product, ungated": lambda: DeltaProductAttention(WIDTH, 2, 1, gate=False, convolution_size=0),
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
    "superposition, two stacks": lambda: SuperpositionStackAttention(WIDTH, stack_embedding_size=4, num_heads=2),
    "stack pointer, learned bottom": lambda: StackPointerAttention(WIDTH, bottom="learned"),
    "stack pointer, three stacks": lambda: StackPointerAttention(WIDTH, num_heads=3),
    "stack pointer, learned bottom, two stacks": lambda: StackPointerAttention(WIDTH, bottom="learned", num_heads=2),
    "stack_trans, paper": lambda: StackTransAttention(WIDTH, 4, 2, depth=3, form="paper"),
    "stack_trans, read before": lambda: StackTransAttention(WIDTH, 3, 1, depth=2, read="before"),
    "nondeterministic, window": lambda: NondeterministicStackAttention(WIDTH, 2, 2, 3, window=3),
    "nondeterministic, offsets": lambda: NondeterministicStackAttention(
        WIDTH, 2, 2, 3, pop_offset=3.0, phase_offset=2.0
    ),
    "nondeterministic, as its code": lambda: NondeterministicStackAttention(WIDTH, 1, 2, 4, pushed_activation="exp"),
}
DETAILS = {
    "hard": {"probabilities"},
    "nondeterministic": {"best_run", "prefix_actions", "prefix_tops"},
}  # beside the actions
WITHOUT_TANGENTS = GaussianAttention  # of which forward mode is refused
CHOOSING = HardAttention  # layers that read few positions: what decides on them has no gradient


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def layer(request):
    """Without randomness, as in evaluation; where a layer chooses, what it chooses from gets zeros for gradients."""
    torch.manual_seed(5)
    made = request.param().double().eval()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def examples(batch=3, time=7, dtype=torch.float64):
    return torch.randn(batch, time, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


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


def test_a_sequence_without_a_batch_is_refused(layer):
    for call in (layer, layer.explain):
        with pytest.raises(ValueError, match=rf"input has shape \(7, {WIDTH}\); expected \(B, T, d\)"):
            call(examples()[0])


@pytest.mark.covering(1)
@pytest.mark.parametrize("gradients", [True, False])
def test_a_step_refuses_a_batch_that_is_not_that_of_the_state(layer, gradients):
    x = examples()[:, 0]
    with torch.set_grad_enabled(gradients):
        states = [layer.initial_state(2)]
        states.append(layer.step(x[:2], states[0])[1])
        for state in states:
            for batch in (1, 3):
                refused = rf"the step has batch size {batch}; expected 2|push_t has shape \({batch}, .*expected .*\(2, "
                with pytest.raises(ValueError, match=refused):
                    layer.step(x[:batch], state)


def test_a_step_refuses_a_sequence(layer):
    with pytest.raises(ValueError, match=rf"the step has shape \(3, 1, {WIDTH}\); expected \(B, d\)"):
        layer.step(examples()[:, :1], layer.initial_state(3))


@pytest.mark.covering(1)
@pytest.mark.parametrize("wrong", [[8, 3, 0], [7, 3, -1]], ids=str)
def test_lengths_out_of_range_are_refused(layer, wrong):
    with pytest.raises(ValueError, match=rf"lengths range from {min(wrong)} to {max(wrong)}; expected 0 to 7"):
        layer(examples(), torch.tensor(wrong))


def test_nan_has_no_effect_before(layer):
    x = examples()
    expected = layer(x)[:, :4]
    x[1, 4] = torch.nan
    found = layer(x)
    torch.testing.assert_close(found[:, :4], expected)
    assert found[1, 4].isnan().any()
    assert not found[[0, 2]].isnan().any()


def test_every_position_sees_itself_and_the_first(layer):
    x = examples(batch=100).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, 5].square().sum(), x)
    seen = gradient[:, [0, 5]].abs().amax(-1) > 0
    assert (seen.any(0) if isinstance(layer, CHOOSING) else seen).all()


@pytest.mark.shapes
@pytest.mark.parametrize("check", CHECKS)
def test_contract(layer, check):
    if check == "gradients" and isinstance(layer, CHOOSING):
        check_gradients(layer, examples(), fast=True)  # its forward pass is long, for hundreds of small changes of it
    else:
        CHECKS[check](layer, examples())


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 12])
def test_step_by_step_equals_the_whole(layer, dtype, time):
    check_steps(layer, examples(2, time, dtype))


@torch.no_grad()
def test_a_step_leaves_the_tensors_of_a_state(layer):
    x = examples()
    _, state = layer.step(x[:, 0], layer.initial_state(3))
    kept = copy.deepcopy(state)
    layer.step(x[:, 1], state)
    assert all(map(torch.equal, taken_apart(state), taken_apart(kept)))


@pytest.mark.shapes
def test_explanation_is_complete(layer):
    lengths, x = torch.tensor([7, 3, 0]), examples()
    record = layer.explain(x, lengths)
    actions = {"actions"} if MECHANISMS[record.mechanism].actions else set()
    assert set(record.details) == actions | DETAILS.get(record.mechanism, set())
    past = torch.arange(7) >= lengths[:, None]
    sums = record.weights.sum(-1).transpose(1, 2)[~past]
    assert (sums <= 1 + (1e-8 if record.mechanism == "gaussian" else 1e-12)).all()  # an infinite sum of densities
    if record.mechanism not in ("gaussian", "superposition", "stack_trans"):  # cut at borders; stacks that may be empty
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
    found, num_heads = record.contents(8), record.weights.shape[1]
    past = torch.arange(7) >= lengths[:, None]
    heads = (num_heads,) if num_heads > 1 else ()
    assert found.positions.shape == (3, 7, *heads, 8, record.weights.shape[-1])
    for tensor in (found.height, found.at_least, found.positions, *([] if found.symbols is None else [found.symbols])):
        assert (tensor[past] == 0).all()
    for parts in [found.positions] if found.symbols is None else [found.positions, found.symbols]:
        torch.testing.assert_close(parts.sum(-1), found.at_least)
    torch.testing.assert_close(found.at_least.sum(-1), found.height)  # 7 items, and the bottom
    if record.mechanism == "stack_trans":
        return  # it reads all cells, not the top
    pointer_bottom = record.mechanism == "stack_pointer"  # the empty stack is no item
    top = found.positions[..., 0, pointer_bottom:].view(3, 7, num_heads, -1)
    torch.testing.assert_close(top.transpose(1, 2), record.weights[..., pointer_bottom:])


@pytest.mark.covering(1)
@pytest.mark.shapes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_keeps_the_result_close(layer, dtype):
    """Of the whole sequence and of steps, after a layer in float32 and after one that autocast runs in bfloat16."""
    layer, x = layer.float(), examples(dtype=torch.bfloat16).float()
    expected, given = layer(x), x.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results, alike = [layer(given)], _chosen_alike(layer, given)
        if not isinstance(layer, CHOOSING):  # steps break ties of this precision in other ways
            results.append(by_steps(layer, layer.initial_state(len(x)), given))
    for result in results:
        assert (result - expected)[alike].norm() <= 0.05 * expected[alike].norm()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
def test_steps_under_transforms(layer):
    def steps(x):
        return by_steps(layer, layer.initial_state(len(x)), x)

    check_under_transforms(steps, layer, examples(), forward_mode=not isinstance(layer, WITHOUT_TANGENTS))


def _chosen_alike(layer, x):
    """Positions where what was chosen in this precision is what is chosen without autocast; all without choices."""
    if not isinstance(layer, CHOOSING):
        return torch.ones(x.shape[:2], dtype=torch.bool)
    with torch.autocast("cpu", enabled=False):
        expected = layer.attend(x.float())[1]
    alike = (layer.attend(x)[1] == expected).all(-1).all(1)
    assert alike.double().mean() > 0.8
    return alike


# Variants that have much in them; test_cross_layers.py compiles those of the other mechanisms.
@pytest.mark.quick("hard, relative", "superposition", "stack_pointer", "nondeterministic")
def test_survives_compilation(layer):
    x, lengths = examples(), torch.tensor([7, 3, 1])
    torch.compiler.reset()  # there is a limit to how often the forward of a class is compiled
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, wanted = (output_and_gradients(each, x, lengths=[lengths]) for each in (compiled, layer))
    for result, expected in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        require_close("the compiled layer", result, "the layer", expected, 1e-12)


def test_xavier_matrices_are_views_of_the_parameters(layer):
    storages = {parameter.data_ptr(): parameter.numel() for parameter in layer.parameters()}
    matrices = layer.xavier_matrices() if isinstance(layer, XavierInitialized) else []
    assert all(matrix.dim() == 2 and matrix.untyped_storage().data_ptr() in storages for matrix in matrices)
    if matrices:
        assert sum(matrix.numel() for matrix in matrices) == sum(p.numel() for p in layer.parameters() if p.dim() == 2)


@pytest.mark.quick("gaussian", "stack_pointer", "nondeterministic")
@torch.no_grad()
def test_can_be_exported_for_any_shape(layer):
    """By torch.export, with lengths, of which there are as many as sequences, and numbers of steps with other kernels.

    Tracing unrolls loops over steps.
    """
    unrolled = isinstance(layer, (DeltaProductAttention, StackTransAttention))
    repeats = (1,) if unrolled else (1, 40)
    batch, steps = torch.export.Dim("batch", min=2), torch.export.Dim.STATIC if unrolled else torch.export.Dim.AUTO
    x, lengths = examples(), torch.tensor([7, 3, 1])
    for traced in repeats:
        inputs = torch.cat([x] * traced, dim=1), lengths
        program = torch.export.export(layer, inputs, dynamic_shapes=({0: batch, 1: steps}, {0: batch})).module()
        for chosen, times in itertools.product(([2, 0, 1, 0, 2], [1, 2]), repeats):
            inputs = torch.cat([x[chosen]] * times, dim=1), lengths[chosen]
            require_close("the exported layer", program(*inputs), "the layer", layer(*inputs), 1e-12)


@pytest.mark.quick("hard, relative", "softmax, rotary", "stack_pointer")
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
    require_close("the exported step", program.module()(x[:, 3], *tensors)[0], "the step", expected, 1e-12)


@pytest.mark.quick("gaussian", "softmax, rotary", "superposition")
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
    require_close("a compiled step", compiled(x[:, 1], x[:2, 2]), "the step", two_steps(x[:, 1], x[:2, 2]), 1e-12)


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


@pytest.mark.covering(1)
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
