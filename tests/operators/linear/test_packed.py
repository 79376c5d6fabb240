"""Products with packed weights equal those of torch, for all numbers of rows, inputs and outputs."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from structattn.operators.linear import apply_feedforward, apply_linear, linear, linear_precision
from structattn.operators.linear.int8 import int8_linear, quantize_weight
from structattn.operators.linear.packed import can_pack, pack_linears, packed_linear

needs_kernel = pytest.mark.skipif(not can_pack("float32"), reason="the kernels were not built")
needs_bf16 = pytest.mark.skipif(not can_pack("bf16"), reason="the kernels have no bfloat16 products here")
needs_int8 = pytest.mark.skipif(not can_pack("int8"), reason="the kernels have no int8 products here")
# Rows, inputs, outputs; with 64 and 128 inputs by AMX, where the processor has it.
SIZES = [
    (0, 3, 2),
    (1, 1, 1),
    (2, 7, 5),
    (7, 63, 33),
    (13, 64, 32),
    (29, 288, 507),
    (3, 0, 4),
    (32, 128, 40),
    (50, 64, 300),
]


def pack_linear(layer, precision="float32"):
    return pack_linears([layer], precision)[0]


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@needs_kernel
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_products_are_those_of_torch(sizes, bias, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, inputs, outputs = sizes
    x, weight, added = numbers(rows, inputs), numbers(outputs, inputs), numbers(outputs) if bias else None
    found = packed_linear(x, pack_linear((weight, added)))
    torch.testing.assert_close(found, F.linear(x, weight, added), rtol=1e-5, atol=5e-5)  # sums of 288 products


@needs_bf16
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [*SIZES, (60, 65, 700)])
def test_products_in_bfloat16_are_those_of_rounded_numbers(sizes, bias, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, inputs, outputs = sizes
    x, weight, added = numbers(rows, inputs), numbers(outputs, inputs), numbers(outputs) if bias else None
    found = packed_linear(x, pack_linear((weight, added), "bf16"))
    expected = F.linear(x.bfloat16().float(), weight.bfloat16().float(), added)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-5)


@needs_bf16
def test_bfloat16_keeps_infinities_and_nan():
    x = torch.tensor([[math.inf, 1.0], [math.nan, 1.0], [3e38, 3.4e38], [1.0, -math.inf]])
    found = packed_linear(x, pack_linear((torch.eye(2), None), "bf16"))
    assert found[0, 0] == math.inf or found[0].isnan().any()
    assert found[1].isnan().any()
    assert found[3].isnan().any() or found[3, 1] == -math.inf


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=needs_bf16), pytest.param("int8", marks=needs_int8)])
@pytest.mark.parametrize("rows", [16, 17, 47, 65])
def test_the_number_of_rows_changes_no_sum(precision, rows):
    x, packed = numbers(rows, 128), pack_linear((numbers(300, 128), numbers(300)), precision)
    assert torch.equal(packed_linear(x, packed), torch.cat([packed_linear(row, packed) for row in x.split(1)]))


@needs_kernel
def test_threads_change_no_sum(monkeypatch):
    x, packed = numbers(40, 288), pack_linear((numbers(1000, 288), None))
    alone = packed_linear(x, packed)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert torch.equal(packed_linear(x, packed), alone)


@needs_kernel
def test_slices_and_transposed_tensors_are_taken_as_they_are():
    x, table = numbers(9, 4).T, numbers(20, 18)[:, ::2]
    found = packed_linear(x, pack_linear((table[2:], None)))
    torch.testing.assert_close(found, x @ table[2:].T, rtol=1e-5, atol=1e-5)


@needs_kernel
def test_layers_that_are_packed_together_do_not_overlap():
    layers = [(numbers(outputs, 9), numbers(outputs)) for outputs in (1, 33, 64, 7)]
    x = numbers(5, 9)
    for packed, layer in zip(pack_linears(layers), layers, strict=True):
        torch.testing.assert_close(packed_linear(x, packed), F.linear(x, *layer), rtol=1e-5, atol=1e-5)


@needs_int8
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [size for size in SIZES if size[1]])
def test_int8_products_of_small_integers_are_exact(sizes, bias):
    rows, inputs, outputs = sizes
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randint(-127, 128, shape, generator=generator) for shape in ((rows, inputs), (outputs, inputs)))
    x[:, 0] = weight[:, 0] = 127  # so that all scales are 1
    added = numbers(outputs) if bias else None
    found = packed_linear(x.float(), pack_linear((weight.float(), added), "int8"))
    expected = (x @ weight.T).float() + (0 if added is None else added)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-3)


@needs_int8
@torch.no_grad()
def test_int8_products_are_those_of_onednn():
    x, weight, bias = numbers(30, 288), numbers(507, 288), numbers(507)
    expected = int8_linear(x, quantize_weight(weight), bias)
    torch.testing.assert_close(packed_linear(x, pack_linear((weight, bias), "int8")), expected, rtol=1e-5, atol=1e-5)


@needs_int8
def test_rows_without_a_scale():
    x = torch.tensor([[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
    found = packed_linear(x, pack_linear((numbers(3, 2), torch.ones(3)), "int8"))
    assert torch.equal(found[0], torch.ones(3))
    assert found[1:].isnan().all()


@needs_int8
def test_weights_that_int8_refuses():
    weight = numbers(4, 8)
    weight[1, 1] = math.nan
    with pytest.raises(ValueError, match="a weight is not finite"):
        pack_linear((weight, None), "int8")


@needs_kernel
@pytest.mark.parametrize("precision", ["float32", pytest.param("int8", marks=needs_int8)])
@pytest.mark.parametrize("sizes", [(0, 3, 5), (1, 1, 1), (7, 63, 130), (200, 32, 64)])
@torch.no_grad()
def test_feedforward_networks(sizes, precision, monkeypatch):
    rows, size, units = sizes
    hidden, output = nn.Linear(size, units), nn.Linear(units, size)
    x = numbers(rows, size)[:, None]
    expected = output(F.relu(hidden(x)))
    assert torch.equal(apply_feedforward(hidden, output, x), expected), "nothing is packed outside of linear_precision"
    with linear_precision(precision):
        separate = apply_linear(output, F.relu(apply_linear(hidden, x)))
        found = apply_feedforward(hidden, output, x)
        torch.testing.assert_close(found, separate, rtol=1e-5, atol=1e-5 if precision == "float32" else 2e-2)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        assert torch.equal(apply_feedforward(hidden, output, x), found)
        output.weight.mul_(2)
        changed = apply_linear(output, F.relu(apply_linear(hidden, x)))
        torch.testing.assert_close(
            apply_feedforward(hidden, output, x), changed, rtol=1e-5, atol=1e-5 if precision == "float32" else 4e-2
        )


@needs_kernel
@torch.no_grad()
def test_feedforward_networks_are_computed_by_one_kernel(monkeypatch):
    calls = []
    monkeypatch.setattr(F, "relu", calls.append)
    with linear_precision("float32"):
        apply_feedforward(nn.Linear(4, 9), nn.Linear(9, 4), numbers(100, 4))
    assert not calls


@needs_kernel
def test_feedforward_networks_with_gradients_and_hooks_are_not_packed():
    hidden, output, x = nn.Linear(4, 9), nn.Linear(9, 4), numbers(100, 4)
    with linear_precision("float32"):
        assert apply_feedforward(hidden, output, x).requires_grad
        calls = []
        hidden.register_forward_hook(lambda *_: calls.append(1))
        with torch.no_grad():
            apply_feedforward(hidden, output, x)
    assert calls


each_reduced = pytest.mark.parametrize(
    "precision", [pytest.param("int8", marks=needs_int8), pytest.param("bf16", marks=needs_bf16)]
)


@each_reduced
@torch.no_grad()
def test_each_view_of_a_weight_has_its_own_form(precision):
    weight, x = numbers(6, 6), numbers(2, 6)
    with linear_precision(precision):
        for view in (weight, weight.T, weight[:3], weight[::2]):
            torch.testing.assert_close(linear(x, view), F.linear(x, view), rtol=0.05, atol=0.2)


@each_reduced
@pytest.mark.parametrize(
    ("inputs", "bias"), [(3, None), (8, torch.ones(2)), (8, torch.ones(4, dtype=torch.float64))], ids=str
)
@torch.no_grad()
def test_layers_that_do_not_fit_are_refused_as_by_torch(precision, inputs, bias):
    with linear_precision(precision), pytest.raises(RuntimeError):
        linear(numbers(5, inputs), numbers(4, 8), bias)


@each_reduced
@torch.no_grad()
def test_feedforward_networks_of_two_widths_and_layers_without_inputs(precision):
    hidden, output, x = nn.Linear(8, 16), nn.Linear(16, 5), numbers(2, 8)
    with linear_precision(precision):
        torch.testing.assert_close(
            apply_feedforward(hidden, output, x), output(F.relu(hidden(x))), rtol=0.05, atol=0.05
        )
        assert torch.equal(linear(numbers(2, 0), numbers(3, 0)), torch.zeros(2, 3))


@each_reduced
def test_changes_of_inference_tensors_are_seen(precision):
    with torch.inference_mode(), linear_precision(precision):
        weight, x = numbers(4, 8), numbers(2, 8)
        before = linear(x, weight)
        assert torch.equal(linear(x, weight.mul_(2)), 2 * before)


@needs_kernel
@torch.no_grad()
def test_relu_keeps_nan():
    hidden, output = nn.Linear(4, 40), nn.Linear(40, 4)
    hidden.weight[3, 0] = math.nan
    with linear_precision("float32"):
        assert apply_feedforward(hidden, output, numbers(3, 4)).isnan().all()
