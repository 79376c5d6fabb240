"""Linear layers in int8, close to float32 and exact where numbers are integers, and in float32 with kept weights."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from structattn.operators import linear as linear_module
from structattn.operators.linear import apply_feedforward, apply_linear, linear, linear_precision
from structattn.operators.linear import int8 as int8_module
from structattn.operators.linear import packed as packed_module
from structattn.operators.linear.int8 import int8_refusal, quantize_rows, quantize_rows_reference
from structattn.operators.linear.packed import can_pack

needs_int8 = pytest.mark.skipif(int8_refusal() is not None, reason=str(int8_refusal()))


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + seed))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 64), (5, 513)])
def test_rows_are_quantized_as_defined(shape):
    x = numbers(*shape)
    found, expected = quantize_rows(x), quantize_rows_reference(x)
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=0)
    assert (x - found[0] * found[1][:, None]).abs().max() <= 0.5001 * found[1].max()


def test_rows_without_a_scale_are_zeros():
    x = torch.tensor([[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1e-44, 0.0]])
    quantized, scales = quantize_rows(x)
    assert not quantized.any()
    assert scales[0] == 0
    assert scales[1].isnan()
    assert scales[2] == math.inf


@pytest.fixture(params=["own kernel", "onednn"])
def implementation(request, monkeypatch):
    if request.param == "onednn":
        monkeypatch.setattr(linear_module, "can_pack", lambda precision: False)
    elif not can_pack("int8"):
        pytest.skip("the kernels have no int8 products here")


@needs_int8
@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 7, 5), (64, 288, 507), (2, 63, 10_000)])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_products_of_small_integers_are_exact(sizes, bias):
    rows, inputs, outputs = sizes
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randint(-127, 128, shape, generator=generator) for shape in ((rows, inputs), (outputs, inputs)))
    x[:, 0] = weight[:, 0] = 127  # so that all scales are 1
    added = numbers(outputs) if bias else None
    with linear_precision("int8"):
        found = linear(x.float(), weight.float(), added)
    expected = (x @ weight.T).float() + (0 if added is None else added)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-3)


@needs_int8
@pytest.mark.usefixtures("implementation")
@torch.no_grad()
def test_layers_are_close_to_float32():
    layer, x = nn.Linear(288, 96), numbers(3, 5, 288)
    with linear_precision("int8"):
        found, functional = apply_linear(layer, x), linear(x, layer.weight, layer.bias)
    assert torch.equal(found, functional)
    error = (found - layer(x)).norm() / layer(x).norm()
    assert 0 < error < 0.02


@needs_int8
@torch.no_grad()
def test_changed_weights_are_quantized_again(monkeypatch):
    calls, name = [], "pack_linears" if can_pack("int8") else "quantize_weight"
    quantize = getattr(linear_module, name)
    monkeypatch.setattr(linear_module, name, lambda *arguments: calls.append(1) or quantize(*arguments))
    table, x = nn.Parameter(numbers(9, 16)), numbers(2, 16)
    with linear_precision("int8"):
        before = [linear(x, table[2:]) for _ in range(3)]
        assert len(calls) == 1
        table.mul_(2)
        torch.testing.assert_close(linear(x, table[2:]), 2 * before[0])
    assert len(calls) == 2


@needs_int8
@pytest.mark.usefixtures("implementation")
def test_weights_that_an_optimizer_has_changed_are_quantized_again():
    """A fused optimizer changes weights without a new version of them."""
    layer, x = nn.Linear(16, 9), numbers(2, 16)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.5, fused=True)
    with torch.no_grad(), linear_precision("int8"):
        before = apply_linear(layer, x)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with torch.no_grad(), linear_precision("int8"):
        after = apply_linear(layer, x)
        expected = layer(x)
    assert not torch.allclose(before, after)
    assert (after - expected).norm() / expected.norm() < 0.02


@needs_int8
def test_float32_elsewhere():
    weight, x = nn.Parameter(numbers(4, 8)), numbers(2, 8)
    expected = F.linear(x, weight)
    with linear_precision("int8"):
        with_gradient = linear(x, weight)
        with torch.no_grad():
            assert torch.equal(linear(x.double(), weight.double()), F.linear(x.double(), weight.double()))
            with linear_precision("float32"):
                torch.testing.assert_close(linear(x, weight), expected)
    assert torch.equal(with_gradient, expected)
    assert with_gradient.requires_grad
    with torch.no_grad():
        assert torch.equal(linear(x, weight), expected)


@pytest.mark.skipif(not can_pack("float32"), reason="the kernels were not built")
@torch.no_grad()
def test_float32_products_have_weights_that_are_laid_out_once(monkeypatch):
    calls, pack = [], linear_module.pack_linears
    monkeypatch.setattr(linear_module, "pack_linears", lambda *arguments: calls.append(1) or pack(*arguments))
    layer, x = nn.Linear(70, 9), numbers(20, 5, 70)
    with linear_precision("float32"):
        found = apply_linear(layer, x), linear(x, layer.weight, layer.bias)
        assert len(calls) == 1
        layer.weight.mul_(2)
        doubled = apply_linear(layer, x)
    assert len(calls) == 2
    torch.testing.assert_close(doubled, layer(x))
    layer.weight.div_(2)
    for each in found:
        torch.testing.assert_close(each, layer(x))


class Shifted(nn.Linear):
    """A linear layer with another result, such as one with an adapter."""

    def forward(self, x):
        """Return x W^T + b + 1."""
        return super().forward(x) + 1


def hooked():
    layer = nn.Linear(70, 9)
    layer.register_forward_hook(lambda module, inputs, output: output + 1)
    return layer


def replaced():
    layer = nn.Linear(70, 9)
    layer.forward = lambda x: F.linear(x, layer.weight) + 1
    return layer


@pytest.mark.parametrize("precision", ["float32", pytest.param("int8", marks=needs_int8)])
@pytest.mark.parametrize("make", [hooked, replaced, lambda: Shifted(70, 9)])
@torch.no_grad()
def test_modules_that_do_more_than_the_product_are_called(precision, make):
    layer, x = make(), numbers(100, 70)
    tolerance = 0.05 if precision == "int8" else 1e-5
    with linear_precision(precision):
        assert torch.equal(apply_linear(layer, x), layer(x))
        squared = nn.Linear(9, 70)
        torch.testing.assert_close(
            apply_feedforward(layer, squared, x), squared(layer(x).relu()), rtol=tolerance, atol=tolerance
        )


@torch.no_grad()
def test_float32_layers_under_autocast_are_those_of_torch():
    with linear_precision("float32"), torch.autocast("cpu", torch.bfloat16):
        assert apply_linear(nn.Linear(70, 9), numbers(100, 70)).dtype == torch.bfloat16


@pytest.mark.parametrize("precision", ["float32", pytest.param("int8", marks=needs_int8)])
@torch.no_grad()
def test_a_weight_with_other_biases(precision):
    """Tensors of a moment may have the address of an earlier one."""
    weight, x, bias = nn.Parameter(numbers(500, 8)), numbers(100, 8), numbers(1000)
    with linear_precision(precision):
        plain = linear(x, weight)
        for factor in range(1, 20):
            torch.testing.assert_close(linear(x, weight, bias[:500] * factor), plain + bias[:500] * factor)
        for part in (bias[:500], bias[::2]):
            torch.testing.assert_close(linear(x, weight, part), plain + part)


@torch.no_grad()
def test_products_of_few_rows_and_with_a_weight_of_a_moment_are_those_of_torch(monkeypatch):
    calls = []
    monkeypatch.setattr(linear_module, "pack_linears", lambda *arguments: calls.append(1))
    weight = nn.Parameter(numbers(9, 70))
    with linear_precision("float32"):
        torch.testing.assert_close(linear(numbers(2, 70), weight), F.linear(numbers(2, 70), weight))
        torch.testing.assert_close(linear(numbers(100, 70), weight * 2), F.linear(numbers(100, 70), weight * 2))
    assert not calls


@needs_int8
@pytest.mark.usefixtures("implementation")
@torch.no_grad()
def test_what_int8_refuses():
    weight = numbers(4, 8)
    weight[1, 1] = math.nan
    with linear_precision("int8"), pytest.raises(ValueError, match="a weight is not finite"):
        linear(numbers(2, 8), weight)
    with pytest.raises(ValueError, match="precision='int4'; expected one of float32, int8"), linear_precision("int4"):
        pass


def test_processors_without_bfloat16(monkeypatch):
    monkeypatch.setattr(packed_module, "processor_flags", lambda: frozenset({"avx512_vnni"}))
    with pytest.raises(RuntimeError, match="bf16 needs a processor with AVX512-BF16"), linear_precision("bf16"):
        pass


def test_processors_without_the_instructions(monkeypatch):
    monkeypatch.setattr(int8_module, "processor_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(RuntimeError, match="int8 needs a processor with one of amx_int8"), linear_precision("int8"):
        pass
