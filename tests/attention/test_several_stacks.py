"""Several stacks of one layer, which equal as many layers of one stack each."""

import pytest
import torch

from structattn.attention import StackPointerAttention, SuperpositionStackAttention, contract
from structattn.operators import stack_pointer, superposition_stack

D, M, H, TIME = 8, 4, 2, 9
LENGTHS = torch.tensor([9, 4, 0])
each_bottom = pytest.mark.parametrize("bottom", ["first_token", "learned"])


def examples():
    return torch.randn(3, TIME, D, generator=torch.Generator().manual_seed(4))


def superposition(**options):
    torch.manual_seed(1)
    return SuperpositionStackAttention(D, M, **options)


def pointer(bottom, **options):
    torch.manual_seed(1)
    layer = StackPointerAttention(D, bottom=bottom, **options)
    if layer.bottom is not None:
        torch.nn.init.normal_(layer.bottom)
    return layer


def singles_of_superposition(layer):
    """Layers whose outputs sum to that of the layer."""
    for head in range(H):
        single, part = SuperpositionStackAttention(D, M // H), slice(head * M // H, (head + 1) * M // H)
        actions, values = layer.projection.weight.split([3 * H, M])
        rows = torch.cat([actions[3 * head : 3 * head + 3], values[part]])
        single.load_state_dict({"projection.weight": rows, "output.weight": layer.output.weight[:, part]})
        yield single


def singles_of_pointer(layer):
    """Layers of which each computes one part of the layer's output."""
    for head in range(H):
        single, rows = (
            StackPointerAttention(D, bottom="first_token" if layer.bottom is None else "learned"),
            slice(3 * head, 3 * head + 3),
        )
        state = {"projection.weight": layer.projection.weight[rows], "projection.bias": layer.projection.bias[rows]}
        single.load_state_dict(state if layer.bottom is None else state | {"bottom": layer.bottom})
        yield single


def by_steps(layer, x):
    return contract.by_steps(layer, layer.initial_state(len(x)), x)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_superposition_stacks_are_as_many_layers(lengths):
    layer, x = superposition(num_heads=H), examples()
    assert_close(layer(x, lengths), sum(single(x, lengths) for single in singles_of_superposition(layer)))
    assert_close(by_steps(layer, x), sum(by_steps(single, x) for single in singles_of_superposition(layer)))


@each_bottom
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_pointers_are_as_many_layers(bottom, lengths):
    layer, x = pointer(bottom, num_heads=H), examples()

    def parts(outputs):
        return torch.cat([y.chunk(H, -1)[head] for head, y in enumerate(outputs)], -1)

    singles = list(singles_of_pointer(layer))
    assert_close(layer(x, lengths), parts(single(x, lengths) for single in singles))
    assert_close(by_steps(layer, x), parts(by_steps(single, x) for single in singles))


@pytest.mark.parametrize(
    ("layer", "singles_of"),
    [
        (superposition(num_heads=H), singles_of_superposition),
        (pointer("first_token", num_heads=H), singles_of_pointer),
        (pointer("learned", num_heads=H), singles_of_pointer),
    ],
)
def test_they_explain_themselves_as_many_layers(layer, singles_of):
    x = examples()
    record, found = layer.explain(x, LENGTHS), layer.explain(x, LENGTHS).contents(5)
    for head, single in enumerate(singles_of(layer)):
        alone = single.explain(x, LENGTHS)
        assert (alone.mechanism, alone.first_source) == (record.mechanism, record.first_source)
        assert_close(record.weights[:, head], alone.weights[:, 0])
        assert_close(record.details["actions"][:, :, head], alone.details["actions"])
        contents = alone.contents(5)
        for name in ("height", "at_least", "positions"):
            torch.testing.assert_close(getattr(found, name)[:, :, head], getattr(contents, name))


@pytest.mark.parametrize("make", [superposition, lambda **options: pointer("learned", **options)])
def test_they_take_one_call_of_each_kernel(make, monkeypatch):
    calls = []
    for module in (superposition_stack, stack_pointer):
        found = module.__globals__
        for name in ("superposition_stack_cpu", "readings_by_map", "readings_by_stack"):
            if name in found:
                monkeypatch.setitem(
                    found, name, lambda *a, kernel=found[name], name=name: (calls.append(name), kernel(*a))[1]
                )
    make(num_heads=4)(examples())
    assert len(calls) == 1


def test_one_stack_has_the_parameters_and_numbers_of_before():
    """The definition of a layer of one stack, with weights in the order in which they were always drawn."""
    layer, x = superposition(num_heads=1), examples()
    torch.manual_seed(1)
    projection, output = torch.nn.Linear(D, 3 + M, bias=False), torch.nn.Linear(M, D, bias=False)
    assert torch.equal(layer.projection.weight, projection.weight)
    assert torch.equal(layer.output.weight, output.weight)
    actions, values = projection(x).split([3, M], -1)
    assert torch.equal(layer(x), output(superposition_stack(actions.softmax(-1), values.sigmoid())))
    assert sum(parameter.numel() for parameter in superposition(num_heads=H).parameters()) == 3 * H * D + 2 * D * M
    assert sum(parameter.numel() for parameter in StackPointerAttention(D, num_heads=H).parameters()) == 3 * H * (D + 1)


@pytest.mark.parametrize("make", [superposition, lambda **options: pointer("first_token", **options)])
@pytest.mark.parametrize("action", [0, 1, 2])
def test_the_logits_of_an_action_are_those_of_all_stacks(make, action):
    layer, x = make(num_heads=H), examples()
    with torch.no_grad():
        layer.projection.weight[layer.action_logits(action)] = 0
        layer.projection.weight[:, 0] = torch.where(layer.action_logits(action), 100.0, 0.0)
    x[..., 0] = 1
    actions = layer.explain(x).details["actions"]
    assert (actions[:, 1:, :, action] > 0.999).all()


def test_refusals():
    with pytest.raises(ValueError, match="3 heads do not divide stack_embedding_size=4"):
        SuperpositionStackAttention(D, M, num_heads=3)
    with pytest.raises(ValueError, match="3 heads do not divide d_model=8"):
        StackPointerAttention(D, num_heads=3)
