"""Softmax attention: kernel against definition, definition against torch, and the contract's corners."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from structattn.operators.softmax_attention import _visibility as visibility
from structattn.operators.softmax_attention import softmax_attention
from structattn.operators.softmax_attention.gpu import softmax_attention_fused
from structattn.support.errors import ImplementationUnavailableError

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]
SHAPES = [(2, 3, 1, 4, 4), (2, 1, 2, 7, 1), (1, 2, 7, 1, 9), (2, 2, 63, 8, 8), (1, 1, 66, 33, 5)]  # B, H, T, D, E


def inputs(batch, heads, time, size, value_size, dtype=torch.float64, keys=None, scale=1.0):
    generator = torch.Generator().manual_seed(batch + 10 * time)
    keys = time if keys is None else keys
    shapes = [(batch, heads, time, size), (batch, heads, keys, size), (batch, heads, keys, value_size)]
    return [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
        for shape in shapes
    ]


def outcome(implementation, tensors, **options):
    outputs = softmax_attention(*tensors, implementation=implementation, **options)
    cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view(outputs.shape).sin()
    return outputs, *torch.autograd.grad(outputs, tensors, cotangent)


def assert_close(results, expected, tolerance):
    for result, wanted in zip(results, expected, strict=True):
        error = (result.double() - wanted.double()).norm()
        assert error <= tolerance * max(wanted.double().norm().item(), 1.0)


def fused(tensors, lengths=None, memory_lengths=None, causal=False, mask=None, scale=0.5):
    """torch's kernel, which a GPU would run."""
    visible = visibility(*tensors, lengths, memory_lengths, causal, mask, 0.0)
    return softmax_attention_fused(tensors, visible, scale, 0.0)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_kernel_equals_definition(dtype, shape, causal, scale):
    tensors = inputs(*shape, dtype, scale=scale)
    lengths = torch.tensor([shape[2], shape[2] // 2][: shape[0]])
    fast = outcome("cpu", tensors, causal=causal, lengths=lengths)
    slow = outcome("reference", [tensor.double() for tensor in tensors], causal=causal, lengths=lengths)
    assert all(result.dtype == dtype for result in fast)
    assert_close(fast, slow, 10 * TOLERANCE[dtype] if scale == 5 else TOLERANCE[dtype])


@pytest.mark.parametrize("keys", [1, 5, 12])
@pytest.mark.parametrize("causal", [False, True])
def test_other_numbers_of_keys_than_queries(keys, causal):
    tensors = inputs(2, 2, 7, 4, 3, keys=keys)
    expected = F.scaled_dot_product_attention(*tensors, is_causal=causal)
    for implementation in IMPLEMENTATIONS:
        torch.testing.assert_close(softmax_attention(*tensors, causal=causal, implementation=implementation), expected)
    assert_close(outcome("cpu", tensors, causal=causal), outcome("reference", tensors, causal=causal), 1e-12)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_equals_torch_with_masks_and_scale(implementation):
    tensors = inputs(2, 2, 7, 4, 3)
    mask = torch.rand(2, 1, 7, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[..., 0] = True
    bias = torch.randn(7, 7, dtype=torch.float64).masked_fill(~mask[0, 0], -torch.inf)
    for given in (mask, bias):
        options = {"mask": given, "scale": 0.3, "implementation": implementation}
        found, weights = softmax_attention(*tensors, **options, return_weights=True)
        torch.testing.assert_close(found, F.scaled_dot_product_attention(*tensors, attn_mask=given, scale=0.3))
        torch.testing.assert_close(weights @ tensors[2], found)
    expected = softmax_attention(*tensors, mask=bias, causal=True, scale=0.3, implementation=implementation)
    torch.testing.assert_close(fused(tensors, causal=True, mask=bias, scale=0.3), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_kernel_with_lengths(causal):
    tensors = inputs(3, 2, 6, 4, 3)
    lengths = torch.tensor([6, 2, 0])
    expected = softmax_attention(*tensors, causal=causal, lengths=lengths)
    torch.testing.assert_close(fused(tensors, lengths, causal=causal), expected)
    bias = torch.randn(1, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for shape in ((1, 2, 6, 6), (3, 2, 6, 6)):
        results = []
        for implementation in ("reference", "fused"):
            mask = bias.expand(shape)
            if implementation == "fused":
                outputs = fused(tensors, lengths, causal=causal, mask=mask)
            else:
                outputs = softmax_attention(
                    *tensors, causal=causal, lengths=lengths, mask=mask, scale=0.5, implementation=implementation
                )
            results.append((outputs, *torch.autograd.grad(outputs.sin().sum(), (*tensors, bias))))
        assert_close(*results[::-1], 1e-12)
    tensors = inputs(3, 2, 6, 4, 3, keys=5)
    memory_lengths = torch.tensor([3, 5, 0])
    expected = softmax_attention(*tensors, causal=causal, lengths=lengths, memory_lengths=memory_lengths)
    torch.testing.assert_close(fused(tensors, lengths, memory_lengths, causal), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biases", [0, 1, 3])
def test_on_a_device(cuda, causal, biases):
    """No bias, one for all sequences, or one for each."""
    tensors = inputs(3, 2, 200, 16, 16)
    lengths = torch.tensor([200, 90, 0])
    bias = torch.randn(biases, 2, 200, 200, dtype=torch.float64).requires_grad_()
    leaves = [*tensors, bias] if biases else tensors
    moved = [leaf.detach().to(cuda, torch.float32).requires_grad_() for leaf in leaves]
    results = []
    for given, implementation in ((moved, "gpu"), (leaves, "reference")):
        options = {"mask": given[3] if biases else None, "causal": causal, "lengths": lengths.to(given[0].device)}
        outputs = softmax_attention(*given[:3], **options, implementation=implementation)
        gradients = torch.autograd.grad(outputs.sin().sum(), given)
        results.append([x.cpu() for x in (outputs, *gradients)])
    assert_close(*results, 1e-4)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("time", [1, 2, 7])
def test_gradcheck(implementation, causal, time):
    tensors = inputs(2, 1, time, 2, 3)
    lengths = torch.tensor([time, time // 2])
    options = {"causal": causal, "lengths": lengths, "implementation": implementation}
    assert gradcheck(lambda q, k, v: softmax_attention(q, k, v, **options), tensors)


def test_gradcheck_of_dropout_and_at_63():
    tensors = inputs(1, 1, 63, 2, 2)

    def dropped(q, k, v):
        torch.manual_seed(3)
        return softmax_attention(q, k, v, causal=True, dropout=0.3)

    assert gradcheck(dropped, tensors, fast_mode=True)


def test_second_gradient_is_refused_or_right():
    tensors = inputs(1, 1, 3, 2, 2)
    assert gradgradcheck(lambda q, k, v: softmax_attention(q, k, v, causal=True, implementation="reference"), tensors)
    outputs = softmax_attention(*tensors, causal=True, implementation="cpu")
    first = torch.autograd.grad(outputs.sum(), tensors[0], create_graph=True)[0]
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        first.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_past_the_length_nothing_enters_and_nothing_leaves(implementation, causal, poison):
    clean = inputs(3, 2, 6, 4, 4)
    lengths = torch.tensor([6, 2, 0])
    past = (torch.arange(6) >= lengths[:, None])[:, None, :, None].expand(3, 2, 6, 4)
    tensors = [tensor.detach().masked_fill(past, poison).requires_grad_() for tensor in clean]
    outputs = softmax_attention(*tensors, lengths=lengths, causal=causal, implementation=implementation)
    cotangent = torch.ones_like(outputs).masked_fill(past, torch.nan)
    results = (outputs, *torch.autograd.grad(outputs, tensors, cotangent))
    alone_inputs = [tensor[1:2, :, :2] for tensor in clean]
    alone = softmax_attention(*alone_inputs, causal=causal, implementation=implementation)
    expected = (alone, *torch.autograd.grad(alone, alone_inputs, torch.ones_like(alone)))
    for result, wanted in zip(results, expected, strict=True):
        assert (result[past] == 0).all()
        assert result.isfinite().all()
        torch.testing.assert_close(result[1:2, :, :2], wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_reaches_only_those_who_may_see_it(implementation, which):
    tensors = inputs(2, 1, 9, 4, 4)
    with torch.no_grad():
        tensors[which][0, 0, 5, 2] = math.nan
    results = outcome(implementation, tensors, causal=True)
    nan = results[0].isnan().any(-1)
    expected = torch.zeros(2, 1, 9, dtype=torch.bool)
    expected[0, 0, 5 : 6 if which == 0 else None] = True
    assert torch.equal(nan, expected)
    for result in results[1:]:
        assert result[1].isfinite().all()
    assert results[1][0, 0, :5].isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_under_a_mask_does_not_matter(implementation, which, poison):
    tensors = inputs(1, 1, 4, 3, 3)
    mask = torch.tensor([True, True, False, True])
    expected = outcome(implementation, tensors, mask=mask)
    with torch.no_grad():
        tensors[which][0, 0, 2] = poison
    for result, wanted in zip(outcome(implementation, tensors, mask=mask), expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_row_without_keys_gives_zeros_and_zero_gradients(implementation):
    tensors = inputs(1, 1, 3, 2, 2)
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    for given in (mask, torch.where(mask, 0.0, -torch.inf).double()):
        outputs, grad_query, *_ = outcome(implementation, tensors, mask=given)
        assert (outputs[0, 0, 1] == 0).all()
        assert (grad_query[0, 0, 1] == 0).all()
        assert outputs.isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 4), (2, 2, 0, 4, 4), (2, 0, 3, 4, 4), (1, 1, 3, 4, 0), (1, 1, 3, 0, 4)])
def test_empty_sizes(implementation, shape):
    results = outcome(implementation, inputs(*shape), causal=True)
    assert results[0].shape == (*shape[:3], shape[4])
    assert all(result.isfinite().all() for result in results)


def test_no_heads_of_a_sequence_that_torchs_kernel_would_take():
    query = torch.zeros(1, 0, 1100, 32, requires_grad=True)
    softmax_attention(query, query, query, causal=True).sum().backward()
    assert query.grad.shape == query.shape


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("scale", [0.0, 1e-40, 88.0, 1e4])
def test_extreme_finite_inputs_stay_finite(implementation, scale):
    tensors = inputs(2, 2, 9, 4, 4, torch.float32, scale=scale)
    assert all(result.isfinite().all() for result in outcome(implementation, tensors, causal=True))


def test_strided_arguments():
    packed = torch.randn(2, 5, 3, 2, 4, dtype=torch.float64)
    tensors = packed.permute(2, 0, 3, 1, 4).unbind(0)
    expected = softmax_attention(*(tensor.contiguous() for tensor in tensors), causal=True)
    assert torch.equal(softmax_attention(*tensors, causal=True), expected)
    last = [tensor.transpose(2, 3).contiguous().transpose(2, 3) for tensor in tensors]
    assert torch.equal(softmax_attention(*last, causal=True), expected)


def test_threads_do_not_change_a_sum(assert_same_by_threads):
    tensors = inputs(4, 4, 70, 8, 8, torch.float32)
    assert_same_by_threads(lambda: outcome("cpu", tensors, causal=True))


def dropped_weights(rate, seed, time=64, implementation="cpu"):
    """The weights that dropout left: with unit vectors for values, the outputs are the weights."""
    queries = torch.zeros(4, 8, time, 1)
    units = torch.eye(time).expand(4, 8, time, time)
    torch.manual_seed(seed)
    return softmax_attention(queries, queries, units, dropout=rate, implementation=implementation)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_expectation_and_scales_what_it_keeps(rate):
    weights = dropped_weights(rate, seed=1)
    kept = weights > 0
    count = kept.numel()
    assert abs(kept.double().mean() - (1 - rate)) < 5 * math.sqrt(rate * (1 - rate) / count)
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / 64 / (1 - rate)))
    # no key, query or head is favoured, and neighbours are independent
    for axes in [(0, 1, 2), (0, 1, 3), (2, 3)]:
        shares = kept.double().mean(axes)
        assert (shares - (1 - rate)).abs().max() < 5.5 * math.sqrt(rate * (1 - rate) / (count / shares.numel()))
    centred = kept.double() - (1 - rate)
    for shift in [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)]:
        product = (centred * centred.roll(shift, (0, 1, 2, 3))).mean()
        assert abs(product) < 5 * rate * (1 - rate) / math.sqrt(count)


def test_dropout_follows_torchs_generator():
    assert torch.equal(dropped_weights(0.5, seed=1), dropped_weights(0.5, seed=1))
    assert not torch.equal(dropped_weights(0.5, seed=1), dropped_weights(0.5, seed=2))
    assert torch.equal(dropped_weights(0.0, seed=1), dropped_weights(0.0, seed=2))


def test_operator_is_well_registered():
    tensors = inputs(2, 2, 4, 3, 5)
    ends, seed = torch.tensor([[4, 2], [4, 3]]), torch.tensor([7])
    forward = torch.ops.structattn.softmax_attention.default
    backward = torch.ops.structattn.softmax_attention_backward.default
    bias = torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    pairs = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    for arguments, weights, wanted in [
        ((None, None, None, [0.5, 0.0, 1.0]), None, False),
        ((bias, ends, seed, [0.5, 0.2, 1.0]), pairs, True),
    ]:
        *given, options = arguments
        options = [*options, float(wanted)]
        torch.library.opcheck(forward, (*tensors, *given, options))
        plain = [tensor.detach() for tensor in tensors]
        constants = [None if tensor is None else tensor.detach() for tensor in given]
        cotangent = torch.ones(2, 2, 4, 5, dtype=torch.float64)
        torch.library.opcheck(backward, (cotangent, weights, *plain, *constants, options))


@pytest.mark.quick("cpu")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_survives_compilation(implementation):
    tensors = inputs(2, 2, 4, 3, 5)
    lengths = torch.tensor([4, 2])

    def program(query, key, value, lengths):
        return softmax_attention(query, key, value, causal=True, lengths=lengths, implementation=implementation).sin()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(*tensors, lengths).sum(), tensors)
    found = torch.autograd.grad(compiled(*tensors, lengths).sum(), tensors)
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_low_precision_is_computed_in_float32():
    tensors = [tensor.detach() for tensor in inputs(2, 2, 30, 4, 4, torch.float32)]
    exact = softmax_attention(*(tensor.bfloat16().float() for tensor in tensors), causal=True)
    result = softmax_attention(*(tensor.bfloat16() for tensor in tensors), causal=True)
    assert torch.equal(result, exact.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = softmax_attention(*(tensor.bfloat16() for tensor in tensors), causal=True)
    assert torch.equal(mixed, exact)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(2, 4, 3)}, r"query has shape \(2, 4, 3\)"),
        ({"key": torch.zeros(2, 1, 4, 5)}, r"key has shape .* expected \(B, H, S, D\)"),
        ({"value": torch.zeros(2, 1, 5, 3)}, "value has shape"),
        ({"key": torch.zeros(2, 1, 4, 3).double()}, "float64"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool)}, r"mask has shape \(3, 4\); expected a shape that broadcasts"),
        ({"mask": torch.ones(4, 4, dtype=torch.int64)}, "mask is torch.int64"),
        ({"dropout": 1.0}, r"dropout=1.0; expected 0 <= dropout < 1"),
    ],
)
def test_refusals(change, message):
    arguments = {name: torch.zeros(2, 1, 4, 3) for name in ("query", "key", "value")} | change
    with pytest.raises(ValueError, match=message):
        softmax_attention(**arguments)


def test_lengths_need_as_many_queries_as_keys():
    tensors = inputs(2, 1, 4, 3, 3, keys=5)
    with pytest.raises(ValueError, match="4 queries and 5 keys"):
        softmax_attention(*tensors, lengths=torch.tensor([4, 4]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"implementation": "gpu"}, "the tensors are on cpu"),
        ({"implementation": "gpu", "return_weights": True}, "the tensors are on cpu"),
    ],
)
def test_an_implementation_that_cannot_run_is_refused(options, reason):
    with pytest.raises(ImplementationUnavailableError, match=reason):
        softmax_attention(*inputs(1, 1, 2, 2, 2), **options)
