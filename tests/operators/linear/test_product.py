"""Products by our own kernel: those of torch in float64, to rounding, with derivatives of any order."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from structattn.operators.linear import apply_linear, linear
from structattn.operators.linear import product as product_module
from structattn.operators.linear.product import has_product_kernel, linear_product, product

pytestmark = pytest.mark.skipif(not has_product_kernel(), reason="no kernel for this processor")

SIZES = [(1, 1, 1), (3, 7, 5), (13, 33, 32), (25, 257, 65), (250, 300, 40), (33, 64, 1100)]  # rows, terms, columns


@pytest.fixture
def calls(monkeypatch):
    """Products of any size by the kernel; a list that each of them extends."""
    made, kernel = [], product_module._product
    monkeypatch.setattr(product_module, "LEAST_PRODUCTS", 0)
    monkeypatch.setattr(product_module, "LEAST_SIDE", 0)
    monkeypatch.setattr(product_module, "is_faster_than_torch", lambda: True)
    monkeypatch.setattr(product_module, "_product", lambda *arguments: made.append(1) or kernel(*arguments))
    return made


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def is_close(found, expected):
    return (found - expected).norm() <= 1e-6 * expected.norm() + 1e-30


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("threads", [1, 3])
def test_products_are_those_of_torch(sizes, transposed, threads, monkeypatch, calls):
    rows, terms, columns = sizes
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    a = numbers(terms, rows).t() if transposed[0] else numbers(rows, terms)
    b = numbers(columns, terms).t() if transposed[1] else numbers(terms, columns)
    assert is_close(product(a, b), a.double() @ b.double())
    assert len(calls) == 1


@pytest.mark.parametrize("sizes", SIZES)
def test_linear_layers(sizes, calls):
    rows, inputs, outputs = sizes
    x, weight, bias = numbers(rows, inputs), numbers(outputs, inputs), numbers(outputs)
    assert is_close(linear_product(x, weight), F.linear(x.double(), weight.double()))
    expected = F.linear(x.double(), weight.double(), bias.double())
    assert is_close(linear_product(x.view(1, rows, 1, inputs), weight, bias), expected.view(1, rows, 1, outputs))
    assert len(calls) == 2


def test_views_and_repeated_rows(calls):
    table = numbers(40, 60)
    for a in (table[::2, 3:30], table[3:30, ::2].t(), table[:1, :27].expand(20, 27), table[:20, :1].expand(20, 27)):
        assert is_close(product(a, table[5:32, ::3]), a.double() @ table[5:32, ::3].double())
    assert len(calls) == 4


def test_threads_change_no_sum(monkeypatch, calls):
    a, b = numbers(1000, 700), numbers(700, 100)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(product(a, b))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert len(calls) == 3


def test_infinities_and_nan_stay_in_their_rows(calls):
    a, b = numbers(30, 20), numbers(20, 50)
    a[3, 5], a[7, 0] = torch.nan, torch.inf
    found = product(a, b)
    assert found[3].isnan().all()
    assert torch.equal(found[7], torch.inf * b[0].sign())
    assert found[[r for r in range(30) if r not in (3, 7)]].isfinite().all()
    assert calls


def derivatives(function, *inputs):
    """Return the output, gradients, and gradients of a function of the gradients."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    y = function(*leaves)
    first = torch.autograd.grad(y.pow(3).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(each.pow(2).sum() for each in first), leaves)
    return [y, *first, *second]


@pytest.mark.parametrize("given", [(True, True, True), (True, False, True), (False, True, False)])
def test_derivatives(given, calls):
    def function(*leaves):
        found = iter(leaves)
        chosen = [
            next(found) if wanted else fixed.to(leaves[0].dtype) for wanted, fixed in zip(given, inputs, strict=True)
        ]
        return (linear_product if leaves[0].dtype == torch.float32 else F.linear)(*chosen)

    inputs = numbers(4, 6, 9), numbers(7, 9), numbers(7)
    leaves = [each for each, wanted in zip(inputs, given, strict=True) if wanted]
    expected = derivatives(function, *(each.double() for each in leaves))
    assert not calls
    for found, wanted in zip(derivatives(function, *leaves), expected, strict=True):
        assert (found - wanted).norm() <= 1e-5 * wanted.norm()
    assert len(calls) >= 4


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, at first use
def test_transforms_compilers_and_modes_see_the_calls_of_torch(calls):
    x, weight = numbers(8, 16), numbers(4, 16)
    expected = F.linear(x, weight)
    batched = torch.func.vmap(lambda row: linear_product(row[None], weight)[0])(x)
    torch.testing.assert_close(batched, expected)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(linear_product(forward_ad.make_dual(x, x), weight)).tangent
    torch.testing.assert_close(tangent, expected)
    gradient = torch.func.grad(lambda x: linear_product(x, weight).sum())(x)
    torch.testing.assert_close(gradient, weight.sum(0).expand(8, 16))
    with FlopCounterMode(display=False) as counter:
        linear_product(x, weight)
    assert counter.get_total_flops() == 2 * 8 * 16 * 4
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_product(x, weight).dtype == torch.bfloat16
    negative = torch.complex(x, x).conj().imag
    torch.testing.assert_close(linear_product(negative, weight), -expected)
    torch.testing.assert_close(torch.compile(linear_product, backend="eager", fullgraph=True)(x, weight), expected)
    assert torch.equal(linear_product(x.double(), weight.double()), F.linear(x.double(), weight.double()))
    assert not calls


def test_batches_of_cotangents(calls):
    x, weight = numbers(8, 16).requires_grad_(), numbers(4, 16)
    y = linear_product(x, weight)
    cotangents = numbers(3, 8, 4)
    (found,) = torch.autograd.grad(y, x, cotangents, is_grads_batched=True)
    torch.testing.assert_close(found, cotangents @ weight)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["forward", "backward", "all modules"])
def test_hooks_are_called(kind, calls):
    layer, x, seen = nn.Linear(16, 4), numbers(8, 16).requires_grad_(), []
    register = {
        "forward": layer.register_forward_hook,
        "backward": layer.register_full_backward_hook,
        "all modules": nn.modules.module.register_module_forward_hook,
    }[kind]
    handle = register(lambda *arguments: seen.append(1))
    apply_linear(layer, x).sum().backward()
    handle.remove()
    assert seen
    before = len(calls)
    torch.testing.assert_close(apply_linear(layer, x), layer(x))
    assert len(calls) == before + 1


def test_errors_of_long_sums_do_not_grow_with_their_length(calls):
    a, b = numbers(20, 8192), numbers(8192, 40)
    error = (product(a, b) - a.double() @ b.double()).abs().max()
    assert error < 3e-4
    assert calls


def test_sizes_that_do_not_fit_are_refused_as_by_torch(calls):
    for x, weight in ((numbers(3, 5), numbers(4, 6)), (numbers(3, 5), numbers(2, 4, 5))):
        with pytest.raises(RuntimeError):
            linear(x, weight)
    with pytest.raises(RuntimeError, match="size"):
        linear(numbers(3, 5), numbers(4, 5), numbers(3))
    assert not calls
