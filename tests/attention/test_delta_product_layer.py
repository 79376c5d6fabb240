"""What is particular to the layer of gated DeltaProduct."""

import math

import pytest
import torch
from torch.nn import functional as F

from structattn.attention import DeltaProductAttention
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.settings.transformer import LanguageModelSettings


def size_of(layer):
    return sum(parameter.numel() for parameter in layer.parameters())


def test_parameter_counts():
    assert size_of(DeltaProductAttention(32, 2)) == 8020
    assert size_of(DeltaProductAttention(2048, 6, key_size=256, value_size=512, device="meta")) == 34_683_404
    gates = 32 * 2 + 2 * 2
    assert size_of(DeltaProductAttention(32, 2, gate=False)) == 8020 - gates
    assert size_of(DeltaProductAttention(32, 2, convolution_size=0)) == 8020 - 4 * 2 * (3 * 16 + 2 * 16)


@torch.no_grad()
def test_is_what_its_docstring_says():
    """Token by token, for one head of sizes 2 and 3."""
    torch.manual_seed(1)
    layer = DeltaProductAttention(4, 1, key_size=2, value_size=3).double()
    torch.nn.init.normal_(layer.norm)
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    inputs, beta, gate, decay = layer.projection(x[0]).split([2 + 4 + 6, 2, 3, 1], -1)
    state, expected = torch.zeros(2, 3, dtype=torch.float64), []
    for t in range(6):
        window = [layer.convolution[:, 3 - back] * inputs[t - back] for back in range(min(t, 3) + 1)]
        q, k_1, k_2, v_1, v_2 = F.silu(sum(window)).split([2, 2, 2, 3, 3])
        rate = math.exp(layer.log_rate) * math.log1p(math.exp(decay[t] + layer.decay_bias))
        state = math.exp(-rate) * state
        for key, v, logit in ((k_1, v_1, beta[t, 0]), (k_2, v_2, beta[t, 1])):
            k = key / (key @ key + 1e-6).sqrt()
            strength = 2 / (1 + math.exp(-logit))
            state = state - strength * torch.outer(k, k @ state) + strength * torch.outer(k, v)
        reading = state.T @ (q / (q @ q + 1e-6).sqrt()) / math.sqrt(2)
        normalized = layer.norm * reading / (reading.square().mean() + 1e-5).sqrt()
        expected.append(layer.output.weight @ (normalized * F.silu(gate[t])))
    torch.testing.assert_close(layer(x)[0], torch.stack(expected), rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_strengths_that_cannot_reflect():
    layer = DeltaProductAttention(4, 2, negative_eigenvalues=False)
    layer.projection.weight.mul_(1e3)  # saturated
    x = torch.randn(2, 5, 4)
    inputs, others = layer._projected(x)
    beta = layer._recurrence(inputs, others)[3]
    assert beta.max() == 1
    assert beta.min() == 0


def test_rules_of_initialization_leave_what_is_particular():
    torch.manual_seed(0)
    for rule in ("uniform", "xavier", "lecun"):
        settings = LanguageModelSettings.model_validate({"layers": "20xdelta_product", "weight_init": rule})
        layers = [block.attention.layer for block in build_language_model(settings, VocabularySpec(9)).layers.blocks]
        rates = torch.cat([layer.log_rate for layer in layers]).exp()
        times = F.softplus(torch.cat([layer.decay_bias for layer in layers]))
        assert (rates.min() > 0) & (rates.min() < 2) & (rates.max() > 14) & (rates.max() <= 16)
        assert (times.min() > 1e-3 * 0.999) & (times.min() < 3e-3) & (times.max() > 0.05) & (times.max() < 0.1001)
        assert all((layer.norm == 1).all() and layer.convolution.abs().max() > 0.4 for layer in layers)


def test_explained_shares_are_those_of_the_values():
    """A token whose value is forgotten at once has no share; the shares of the others are those of linear terms."""
    torch.manual_seed(2)
    layer = DeltaProductAttention(4, 1, num_householder=1, convolution_size=0, gate=False).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    shares = layer.explain(x).weights[0, 0]
    inputs, others = layer._projected(x)
    query, key, _, beta, _ = (part[0, 0] for part in layer._recurrence(layer._convolved(inputs), others))
    own = beta[1, 0] * key[1, 0] @ query[1]
    earlier = beta[0, 0] * query[1] @ (key[0, 0] - beta[1, 0] * key[1, 0] * (key[1, 0] @ key[0, 0]))
    torch.testing.assert_close(shares[1, 0] / shares[1, 1], (earlier / own).abs())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_explained_shares_in_half_precision(dtype):
    """Coefficients may be far below the range of float16 where the state decays, and are zeros at padding."""
    torch.manual_seed(3)
    layer = DeltaProductAttention(8, 2).to(dtype)
    layer.decay_bias.data.fill_(2)
    x, lengths = 4 * torch.randn(2, 9, 8, dtype=dtype), torch.tensor([9, 2])
    shares = layer.explain(x, lengths).weights
    assert shares.dtype == dtype
    expected = layer.double().explain(x.double(), lengths).weights
    torch.testing.assert_close(shares.double(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    "arguments", [{"num_heads": 3}, {"num_householder": 0}, {"key_size": 0}, {"convolution_size": -1}, {"num_heads": 0}]
)
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match=r"expected at least 1|do not divide d_model=4"):
        DeltaProductAttention(4, **({"num_heads": 2} | arguments))
