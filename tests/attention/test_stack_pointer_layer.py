"""What is particular to stack pointer attention."""

import pytest
import torch

from structattn.attention import StackPointerAttention
from structattn.models.builders.mechanisms import build_stack
from structattn.operators import stack_pointer
from structattn.settings.stacks import StackPointer


def recurrence(layer, x):
    """Equations 19 to 25, position by position: x begins with position 0."""
    length = x.shape[0]
    alpha = torch.zeros(length, length)
    alpha[0, 0] = 1  # (19)
    for i in range(1, length):
        push, no_op, pop = torch.softmax(layer.projection.weight @ x[i] + layer.projection.bias, 0)  # (24)
        below = sum((alpha[i - 1, j] * alpha[j - 1] for j in range(1, i)), alpha[i - 1, 0] * alpha[0])  # (22)
        alpha[i] = push * torch.eye(length)[i] + pop * below + no_op * alpha[i - 1]  # (20), (21), (23)
    return alpha @ x  # (25)


def test_the_default_is_the_paper_to_the_letter():
    layer, x = StackPointerAttention(4), torch.randn(2, 6, 4)
    torch.testing.assert_close(layer(x), torch.stack([recurrence(layer, each) for each in x]))
    assert torch.equal(layer(x)[:, 0], x[:, 0])  # alpha_0 = e_0
    assert sum(parameter.numel() for parameter in StackPointerAttention(64).parameters()) == 195  # 3 d + 3


def test_the_default_of_the_settings_is_that_of_the_layer():
    assert isinstance(build_stack(64, StackPointer(attention="stack_pointer")), StackPointerAttention)
    assert sum(p.numel() for p in build_stack(64, StackPointer(attention="stack_pointer")).parameters()) == 195


def test_position_0_is_never_pushed():
    """Its action has no influence, and neither reading nor gradient depends on it."""
    layer, x = StackPointerAttention(4), torch.randn(1, 5, 4)
    layer(x)[:, 0].sum().backward()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in layer.parameters())
    actions = layer.explain(x).details["actions"]
    assert torch.equal(actions[0, 0], torch.tensor([0.0, 1.0, 0.0]))


def test_a_learned_bottom_is_a_column_before_the_input():
    layer, x = StackPointerAttention(4, bottom="learned"), torch.randn(2, 6, 4)
    torch.nn.init.normal_(layer.bottom)
    actions = torch.softmax(x @ layer.projection.weight.T + layer.projection.bias, -1)
    values = torch.cat([layer.bottom.expand(2, 1, 4), x], dim=1)
    torch.testing.assert_close(layer(x), stack_pointer(actions, values))
    assert sum(parameter.numel() for parameter in layer.parameters()) == 3 * 4 + 3 + 4


def test_a_column_before_the_input_is_the_first_token_of_the_longer_input():
    learned, first = StackPointerAttention(4, bottom="learned"), StackPointerAttention(4)
    torch.nn.init.normal_(learned.bottom)
    first.projection.load_state_dict(learned.projection.state_dict())
    x = torch.randn(2, 6, 4)
    longer = torch.cat([learned.bottom.expand(2, 1, 4), x], dim=1)
    torch.testing.assert_close(first(longer)[:, 1:], learned(x))


def test_a_state_keeps_the_learned_bottom_that_it_began_with():
    layer = StackPointerAttention(4, bottom="learned")
    state = layer.initial_state(2)
    with torch.no_grad():
        layer.bottom.fill_(3)
    assert not state.stack.any()


@pytest.mark.parametrize("bottom", ["first_token", "learned"])
def test_it_explains_its_readings(bottom):
    layer, x = StackPointerAttention(4, bottom=bottom), torch.randn(2, 6, 4)
    values = x
    if bottom == "learned":
        torch.nn.init.normal_(layer.bottom)
        values = torch.cat([layer.bottom.expand(2, 1, 4), x], dim=1)
    record = layer.explain(x)
    assert record.first_source == (1 if bottom == "learned" else 0)
    torch.testing.assert_close(record.weights[:, 0] @ values, layer(x))


def test_an_action_that_is_certain():
    layer = StackPointerAttention(2)
    x = torch.tensor([[[9.0, 9.0], [5.0, 1.0], [-5.0, 2.0], [-5.0, 3.0]]])
    with torch.no_grad():
        layer.projection.weight.copy_(torch.tensor([[100.0, 0.0], [0.0, 0.0], [-100.0, 0.0]]))  # by the sign of x[0]
        layer.projection.bias.zero_()
    expected = torch.tensor([[[9.0, 9.0], [5.0, 1.0], [9.0, 9.0], [9.0, 9.0]]])  # none, push, pop, pop of nothing
    assert torch.equal(layer(x), expected)


def test_refusal():
    with pytest.raises(ValueError, match="bottom='zeros'; expected 'first_token' or 'learned'"):
        StackPointerAttention(4, bottom="zeros")
