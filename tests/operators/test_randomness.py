"""Random operators under ``torch.vmap``: the same numbers for all samples, or different ones."""

import pytest
import torch

from structattn.attention import HardAttention, SoftmaxAttention
from structattn.operators import hard_attention, softmax_attention
from structattn.operators.common.dropout import dropout

SAMPLES = 4
X = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(0))
FUNCTIONS = {
    "hard_attention": lambda x: hard_attention(x, x, sample=True)[0],
    "softmax_attention": lambda x: softmax_attention(x, x, x, dropout=0.5),
    "dropout": lambda x: dropout(x, 0.5),
    "hard layer": lambda x: HARD(x.flatten(2).transpose(1, 2)),
    "softmax layer": lambda x: SOFTMAX(x.flatten(2).transpose(1, 2)),
}
HARD, SOFTMAX = HardAttention(2, 1), SoftmaxAttention(2, 1, dropout=0.5)


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_vmap(function, randomness):
    torch.manual_seed(1)
    results = torch.vmap(FUNCTIONS[function], randomness=randomness)(X.expand(SAMPLES, *X.shape))
    assert results.isfinite().all()
    alike = [torch.allclose(results[0], other, atol=1e-6) for other in results[1:]]
    assert all(alike) if randomness == "same" else not any(alike)
