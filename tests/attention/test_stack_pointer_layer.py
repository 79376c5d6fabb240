"""What is particular to stack pointer attention."""

import pytest
import torch

from structattn.attention import StackPointerAttention
from structattn.operators import stack_pointer


def test_it_follows_the_paper():
    layer, x = StackPointerAttention(4), torch.randn(2, 6, 4)
    torch.nn.init.normal_(layer.bottom)
    actions = torch.softmax(x @ layer.projection.weight.T + layer.projection.bias, -1)
    values = torch.cat([layer.bottom.expand(2, 1, 4), x], dim=1)
    torch.testing.assert_close(layer(x), stack_pointer(actions, values))
    assert sum(parameter.numel() for parameter in layer.parameters()) == 3 * 4 + 3 + 4


def test_the_first_token_is_the_paper_s_position_0():
    layer, x = StackPointerAttention(4, bottom="first_token"), torch.randn(2, 6, 4)
    actions = torch.softmax(x[:, 1:] @ layer.projection.weight.T + layer.projection.bias, -1)
    y = layer(x)
    assert torch.equal(y[:, 0], x[:, 0])  # alpha_0 = e_0
    torch.testing.assert_close(y[:, 1:], stack_pointer(actions, x))
    assert sum(parameter.numel() for parameter in layer.parameters()) == 3 * 4 + 3


def test_a_column_before_the_input_is_the_first_token_of_the_longer_input():
    bos, first = StackPointerAttention(4), StackPointerAttention(4, bottom="first_token")
    torch.nn.init.normal_(bos.bottom)
    first.projection.load_state_dict(bos.projection.state_dict())
    x = torch.randn(2, 6, 4)
    longer = torch.cat([bos.bottom.expand(2, 1, 4), x], dim=1)
    torch.testing.assert_close(first(longer)[:, 1:], bos(x))


@pytest.mark.parametrize("bottom", ["bos", "first_token"])
def test_it_explains_its_readings(bottom):
    layer, x = StackPointerAttention(4, bottom), torch.randn(2, 6, 4)
    values = x
    if bottom == "bos":
        torch.nn.init.normal_(layer.bottom)
        values = torch.cat([layer.bottom.expand(2, 1, 4), x], dim=1)
    record = layer.explain(x)
    assert record.first_source == (1 if bottom == "bos" else 0)
    torch.testing.assert_close(record.weights[:, 0] @ values, layer(x))


def test_an_action_that_is_certain():
    layer, x = StackPointerAttention(2), torch.tensor([[[5.0, 1.0], [-5.0, 2.0], [-5.0, 3.0]]])
    with torch.no_grad():
        layer.projection.weight.copy_(torch.tensor([[100.0, 0.0], [0.0, 0.0], [-100.0, 0.0]]))  # by the sign of x[0]
        layer.projection.bias.zero_()
        layer.bottom.fill_(7)
    expected = torch.tensor([[[5.0, 1.0], [7.0, 7.0], [7.0, 7.0]]])  # push, pop, pop of nothing
    assert torch.equal(layer(x), expected)


def test_refusal():
    with pytest.raises(ValueError, match="bottom='zeros'; expected 'bos' or 'first_token'"):
        StackPointerAttention(4, bottom="zeros")
