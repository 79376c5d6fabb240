"""Long sequences, for which the CPU operator uses torch's fused kernel: values, gradients, NaN and compilation."""

import pytest
import torch

from structattn.operators import softmax_attention
from structattn.operators.softmax_attention import cpu

SIZES = [(True, 1024, 1024), (False, 512, 513)]  # causal, T, S


def _inputs(queries, keys):
    generator = torch.Generator().manual_seed(queries + keys)
    return [torch.randn(1, 2, length, 32, generator=generator) for length in (queries, keys, keys, queries)]


def _outcome(tensors, causal, implementation):
    *leaves, cotangent = [tensor.clone().requires_grad_() for tensor in tensors]
    outputs = softmax_attention(*leaves, causal=causal, implementation=implementation)
    return [outputs.detach(), *torch.autograd.grad(outputs, leaves, cotangent.detach())]


@pytest.mark.parametrize(("causal", "queries", "keys"), SIZES)
def test_outputs_and_gradients_equal_the_definition(causal, queries, keys):
    tensors = _inputs(queries, keys)
    assert cpu._torch_is_faster(tuple(tensors[:3]), None, None, cpu.Options(0.1, 0.0, float(causal), 0.0))
    definition = _outcome(tensors, causal, "reference")
    for found, expected in zip(_outcome(tensors, causal, "cpu"), definition, strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_nan_gives_the_same_as_in_the_compiled_kernel(monkeypatch, place):
    tensors = _inputs(1024, 1024)
    tensors[place][0, 1, 700, 3] = torch.nan
    found = _outcome(tensors, True, "cpu")
    monkeypatch.setattr(cpu, "_torch_is_faster", lambda *given: False)
    for x, y in zip(found, _outcome(tensors, True, "cpu"), strict=True):
        assert torch.equal(x.isnan(), y.isnan())
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert not found[0][0, 1, :700].isnan().any()


def test_a_shorter_or_masked_sequence_takes_the_compiled_kernel():
    tensors = tuple(_inputs(1024, 1024)[:3])
    options = cpu.Options(0.1, 0.0, 1.0, 0.0)
    ends = torch.tensor([[1000], [1000]])
    assert cpu._torch_is_faster(tensors, None, None, options)
    assert not cpu._torch_is_faster(tensors, None, ends, options)
    assert not cpu._torch_is_faster(tensors, tensors[0][..., :1], None, options)
    assert not cpu._torch_is_faster(tensors, None, None, options._replace(dropout=0.1))
    assert not cpu._torch_is_faster(tensors, None, None, options._replace(wanted=1.0))
    assert not cpu._torch_is_faster(tuple(x[:, :, :1023] for x in tensors), None, None, options)
    assert not cpu._torch_is_faster(tuple(x.double() for x in tensors), None, None, options)
