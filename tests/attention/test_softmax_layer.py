"""What is particular to the softmax layer."""

import pytest
import torch
from torch import nn

from structattn.attention import SoftmaxAttention


def twin(layer, width, heads):
    """torch's own layer with the same weights."""
    other = nn.MultiheadAttention(width, heads, batch_first=True)
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


def test_dropout_acts_in_training_only():
    layer, x = SoftmaxAttention(8, 2, dropout=0.5), torch.randn(3, 5, 8)
    assert not torch.equal(layer(x), layer(x))
    state = layer.initial_state(3)
    assert not torch.equal(layer.step(x[:, 0], state)[0], layer.step(x[:, 0], state)[0])
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_refusals():
    with pytest.raises(ValueError, match="3 heads do not divide the width 8"):
        SoftmaxAttention(8, 3)
    with pytest.raises(ValueError, match="causal=False"):
        SoftmaxAttention(8, 2, causal=False).initial_state(1)
