"""What is particular to the softmax layer."""

import pytest
import torch
from torch import nn

from structattn.attention import AttendingLayer, CrossSoftmaxAttention, SoftmaxAttention
from structattn.attention.positions import AlibiPositions, RelativePositions, RotaryPositions


def twin(layer, d_model, heads):
    """torch's own layer with the same weights."""
    other = nn.MultiheadAttention(d_model, heads, batch_first=True)
    with torch.no_grad():
        other.in_proj_weight.copy_(layer.projection.weight)
        other.in_proj_bias.copy_(layer.projection.bias)
        other.out_proj.weight.copy_(layer.output.weight)
        other.out_proj.bias.copy_(layer.output.bias)
    return other


@pytest.mark.parametrize("causal", [True, False])
def test_equals_torchs_layer(causal):
    layer, x = SoftmaxAttention(8, 2, causal=causal), torch.randn(3, 5, 8)
    lengths = torch.tensor([5, 2, 4])
    here = torch.arange(5) < lengths[:, None]
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected, weights = twin(layer, 8, 2)(x, x, x, attn_mask=later, key_padding_mask=~here, average_attn_weights=False)
    torch.testing.assert_close(layer(x, lengths)[here], expected[here])
    record = layer.explain(x, lengths)
    assert record.mechanism == "softmax"
    torch.testing.assert_close(record.weights.transpose(1, 2)[here], weights.transpose(1, 2)[here])


def test_cross_attention_equals_torchs_layer():
    layer, other = CrossSoftmaxAttention(8, 2), nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.memory.weight]))
        other.in_proj_bias.copy_(torch.cat([layer.query.bias, layer.memory.bias]))
        other.out_proj.weight.copy_(layer.output.weight)
        other.out_proj.bias.copy_(layer.output.bias)
    x, memory, memory_lengths = torch.randn(3, 4, 8), torch.randn(3, 5, 8), torch.tensor([5, 2, 4])
    hidden = torch.arange(5) >= memory_lengths[:, None]
    expected, weights = other(x, memory, memory, key_padding_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(layer(x, memory, None, memory_lengths), expected)
    torch.testing.assert_close(layer.explain(x, memory, None, memory_lengths).weights, weights)


def test_small_integers_hold_the_lengths_beside_a_long_memory():
    layer, x, memory, lengths = CrossSoftmaxAttention(8, 2), torch.randn(2, 4, 8), torch.randn(2, 300, 8), [4, 2]
    expected = layer(x, memory, torch.tensor(lengths))
    assert torch.equal(layer(x, memory, torch.tensor(lengths, dtype=torch.uint8)), expected)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "positions", [RotaryPositions(4), AlibiPositions(2), AlibiPositions(2, "shifted"), RelativePositions(8, 2)]
)
def test_positions_act_on_the_scores(causal, positions):
    layer, x = SoftmaxAttention(8, 2, causal=causal, positions=positions), torch.randn(3, 5, 8)
    projected = x @ layer.projection.weight.T + layer.projection.bias
    query, key, value = (part.view(3, 5, 2, 4).transpose(1, 2) for part in projected.split(8, dim=2))
    query, key, bias = positions(query, key, 0)
    scores = query @ key.transpose(2, 3) / 2 + (0 if bias is None else bias)
    if causal:
        scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    readings = (scores.softmax(-1) @ value).transpose(1, 2).reshape(3, 5, 8)
    torch.testing.assert_close(layer(x), readings @ layer.output.weight.T + layer.output.bias)


def test_biases_can_be_left_out():
    layer, with_biases = SoftmaxAttention(8, 2, bias=False), SoftmaxAttention(8, 2)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * 8 * 8
    assert sum(parameter.numel() for parameter in with_biases.parameters()) == 4 * 8 * 9
    with torch.no_grad():
        with_biases.load_state_dict(layer.state_dict(), strict=False)
        with_biases.projection.bias.zero_()
        with_biases.output.bias.zero_()
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(layer(x), with_biases(x))


def test_attending_gives_the_output_and_weights_to_train_with():
    layer, x, lengths = SoftmaxAttention(8, 2, dropout=0.5), torch.randn(3, 5, 8), torch.tensor([5, 2, 4])
    assert isinstance(layer, AttendingLayer)
    torch.manual_seed(0)
    y, weights = layer.attend(x, lengths)
    torch.manual_seed(0)
    # The same elements are dropped; the kernel that returns no weights adds in another order.
    torch.testing.assert_close(layer(x, lengths), y, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights, layer.explain(x, lengths).weights)
    gradient = torch.autograd.grad(weights.square().sum(), layer.projection.weight)[0]
    assert (gradient[:16].norm(dim=1) > 0).all()


def test_dropout_acts_in_training_only():
    layer, x = SoftmaxAttention(8, 2, dropout=0.5), torch.randn(3, 5, 8)
    assert not torch.equal(layer(x), layer(x))
    state = layer.initial_state(3)
    assert not torch.equal(layer.step(x[:, 0], state)[0], layer.step(x[:, 0], state)[0])
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_refusals():
    with pytest.raises(ValueError, match="3 heads do not divide d_model=8"):
        SoftmaxAttention(8, 3)
    with pytest.raises(ValueError, match="causal=False"):
        SoftmaxAttention(8, 2, causal=False).initial_state(1)
