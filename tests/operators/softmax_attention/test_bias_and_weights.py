"""Softmax attention with biases, masks, a memory of its own length, and weights: kernel against definition, rules."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from structattn.operators.softmax_attention import softmax_attention

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]
SIZES = [(1, 1, 2, 3), (1, 13, 9, 10), (2, 7, 4, 3), (7, 2, 1, 9), (9, 9, 4, 4), (63, 66, 8, 5)]  # T, S, D, E
BROADCASTS = [lambda *s: s, lambda b, h, t, s: (h, t, s), lambda b, h, t, s: (t, s), lambda b, h, t, s: (b, 1, 1, s),
              lambda b, h, t, s: (b, 1, t, 1), lambda b, h, t, s: (1, h, 1, 1), lambda b, h, t, s: ()]  # fmt: skip


def inputs(time, keys, size, value_size, dtype=torch.float64, batch=3, heads=2):
    generator = torch.Generator().manual_seed(time + 10 * keys)
    shapes = [(batch, heads, time, size), (batch, heads, keys, size), (batch, heads, keys, value_size)]
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.to(dtype).requires_grad_() for tensor in drawn]


def biases(shape, hidden=0.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(len(shape))
    bias = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.rand(shape, generator=generator) < hidden
    return bias.masked_fill(mask, -torch.inf).to(dtype).requires_grad_()


def outcome(implementation, tensors, bias=None, **options):
    """Outputs, weights, and all gradients, for cotangents of both results."""
    results = softmax_attention(*tensors, mask=bias, implementation=implementation, return_weights=True, **options)
    cotangents = [
        torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape).mul(40).sin() for result in results
    ]
    leaves = tensors if bias is None or bias.dtype == torch.bool else [*tensors, bias]
    return *results, *torch.autograd.grad(results, leaves, cotangents)


def assert_close(results, expected, tolerance):
    for result, wanted in zip(results, expected, strict=True):
        assert (result.double() - wanted.double()).norm() <= tolerance * max(wanted.double().norm().item(), 1.0)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hidden", [0.0, 0.4])
def test_kernel_equals_definition(dtype, sizes, causal, hidden):
    tensors, bias = inputs(*sizes, dtype), biases((3, 2, *sizes[:2]), hidden, dtype)
    ends = {"lengths": torch.tensor([sizes[0], 1, 0]), "memory_lengths": torch.tensor([sizes[1] // 2, sizes[1], 1])}
    options = {"causal": causal, **ends}
    exact = [tensor.detach().double().requires_grad_() for tensor in (*tensors, bias)]
    fast, slow = outcome("cpu", tensors, bias, **options), outcome("reference", exact[:3], exact[3], **options)
    assert all(result.dtype == dtype for result in fast)
    assert_close(fast, slow, TOLERANCE[dtype])


@pytest.mark.parametrize("broadcast", BROADCASTS)
@pytest.mark.parametrize("causal", [False, True])
def test_biases_broadcast(broadcast, causal):
    tensors, bias = inputs(7, 9, 4, 3), biases(broadcast(3, 2, 7, 9))
    fast, slow = outcome("cpu", tensors, bias, causal=causal), outcome("reference", tensors, bias, causal=causal)
    assert fast[-1].shape == bias.shape
    assert_close(fast, slow, 1e-12)


@pytest.mark.parametrize("broadcast", BROADCASTS)
def test_masks_of_booleans(broadcast):
    tensors = inputs(7, 9, 4, 3)
    mask = biases(broadcast(3, 2, 7, 9)).detach() < 1
    assert_close(outcome("cpu", tensors, mask), outcome("reference", tensors, mask), 1e-12)


def test_strided_biases():
    tensors = inputs(7, 9, 4, 3)
    wide = torch.randn(3, 2, 7, 12, dtype=torch.float64)
    for bias in (wide[..., 2:11], torch.randn(9, 7, dtype=torch.float64).T, wide[..., :9].transpose(0, 1)[:, :1]):
        given = bias.transpose(0, 1) if bias.dim() == 4 and bias.shape[1] == 1 else bias
        expected = F.scaled_dot_product_attention(*tensors, attn_mask=given)
        torch.testing.assert_close(softmax_attention(*tensors, mask=given), expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(implementation, causal):
    tensors, bias = inputs(4, 5, 2, 3), biases((2, 1, 5), 0.3)
    finite = bias.detach().clamp(min=-9).requires_grad_()
    options = {"causal": causal, "memory_lengths": torch.tensor([5, 3, 0]), "implementation": implementation}
    for mask in (finite, bias.isfinite()):
        leaves = [*tensors, mask] if mask.is_floating_point() else tensors

        def program(*given, mask=mask):
            chosen = given[3] if len(given) > 3 else mask
            return softmax_attention(*given[:3], mask=chosen, return_weights=True, **options)

        assert gradcheck(program, leaves)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("which", ["outputs", "weights"])
def test_either_result_may_stay_unused(implementation, which):
    tensors, bias = inputs(4, 5, 2, 3), biases((4, 5))
    results = softmax_attention(*tensors, mask=bias, return_weights=True, implementation=implementation)
    used = results[0] if which == "outputs" else results[1]
    found = torch.autograd.grad(used.square().sum(), [*tensors, bias], allow_unused=True, materialize_grads=True)
    zeros = torch.zeros_like(results[0]), torch.zeros_like(results[1])
    cotangents = (2 * used, zeros[1]) if which == "outputs" else (zeros[0], 2 * used)
    results = softmax_attention(*tensors, mask=bias, return_weights=True, implementation="reference")
    expected = torch.autograd.grad(results, [*tensors, bias], cotangents)
    assert_close(found, expected, 1e-12)


def test_weights_with_dropout_are_those_before_it():
    tensors = inputs(9, 9, 4, 4)
    torch.manual_seed(0)
    outputs, weights = softmax_attention(*tensors, causal=True, dropout=0.5, return_weights=True)
    plain, expected = softmax_attention(*tensors, causal=True, return_weights=True)
    assert torch.equal(weights, expected)
    assert not torch.equal(outputs, plain)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("causal", [False, True])
def test_past_both_ends_nothing_enters_and_nothing_leaves(implementation, poison, causal):
    tensors, bias = inputs(5, 6, 4, 3), biases((3, 2, 5, 6))
    ends = torch.tensor([5, 2, 3]), torch.tensor([4, 6, 0])
    past = [(torch.arange(n) >= end[:, None])[:, None, :, None] for n, end in zip((5, 6), ends, strict=True)]
    either = past[0] | past[1].transpose(2, 3)
    masks = [past[0], past[1], past[1], either]

    def run(given, cotangents):
        results = softmax_attention(
            *given[:3], mask=given[3], lengths=ends[0], memory_lengths=ends[1], causal=causal, return_weights=True,
            implementation=implementation,
        )  # fmt: skip
        return *results, *torch.autograd.grad(results, given, cotangents)

    cotangents = torch.ones(3, 2, 5, 3, dtype=torch.float64), torch.ones(3, 2, 5, 6, dtype=torch.float64)
    clean = run([*tensors, bias], cotangents)
    poisoned = [
        tensor.detach().masked_fill(mask, poison).requires_grad_()
        for tensor, mask in zip([*tensors, bias], masks, strict=True)
    ]
    dirty = [cotangents[0].masked_fill(past[0], math.nan), cotangents[1].masked_fill(either, math.nan)]
    for result, expected in zip(run(poisoned, dirty), clean, strict=True):
        assert torch.equal(result, expected)
    for result, mask in zip(clean, [past[0], either, *masks], strict=True):
        assert (result.masked_select(mask.expand(result.shape)) == 0).all()


def test_a_memory_without_positions():
    for tensors in (inputs(3, 0, 4, 5), inputs(3, 2, 4, 5)):
        for implementation in IMPLEMENTATIONS:
            ends = torch.zeros(3, dtype=torch.int64)
            outputs, weights, *gradients = outcome(implementation, tensors, memory_lengths=ends)
            assert outputs.shape == (3, 2, 3, 5)
            for result in (outputs, weights, *gradients):
                assert (result == 0).all()


@pytest.mark.parametrize("hide", ["bias", "booleans"])
@pytest.mark.parametrize("where", ["query", "key", "value", "bias", "cotangent", "weights cotangent"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_hidden_cannot_matter(hide, where, poison):
    # Keys 2 and 6 are hidden from queries 1, 4 and 5. What stands there has no part in them, nor they in its gradient.
    tensors, generator = inputs(9, 9, 4, 4, batch=1), torch.Generator().manual_seed(3)
    hidden = torch.zeros(9, 9, dtype=torch.bool)
    hidden[torch.tensor([1, 4, 5])[:, None], torch.tensor([2, 6])] = True
    bias = torch.randn(9, 9, dtype=torch.float64, generator=generator)
    mask = ~hidden if hide == "booleans" else bias.masked_fill(hidden, -torch.inf).requires_grad_()
    leaves = tensors if hide == "booleans" else [*tensors, mask]
    cotangents = [torch.randn(1, 2, 9, size, dtype=torch.float64, generator=generator) for size in (4, 9)]

    def run():
        results = softmax_attention(*tensors, mask=mask, return_weights=True, implementation="cpu")
        return *results, *torch.autograd.grad(results, leaves, cotangents)

    clean = run()
    with torch.no_grad():
        if where in ("key", "value"):
            tensors[1 if where == "key" else 2][0, 0, 2, 1] = poison
        elif where == "query":
            tensors[0][0, 0, 4, 1] = poison
        elif where == "bias":
            if hide == "booleans":
                pytest.skip("there is none")
            mask[4, 3] = poison
        else:
            cotangents[where == "weights cotangent"][0, 0, 4, 3] = poison
    results = run()
    outputs, weights, grad_query, grad_key, grad_value = results[:5]
    of_key = where in ("key", "value")
    blind = [1, 4, 5] if of_key else [0, 1, 2, 3, 5, 6, 7, 8]
    unseen = [] if of_key else [2, 6]
    for result, expected in zip((outputs, weights, grad_query), clean, strict=False):
        heads = slice(1) if where != "bias" else slice(2)
        torch.testing.assert_close(result[:, heads, blind], expected[:, heads, blind], rtol=1e-12, atol=1e-14)
    for result, expected in zip((grad_key, grad_value), clean[3:], strict=False):
        torch.testing.assert_close(result[:, :, unseen], expected[:, :, unseen], rtol=1e-12, atol=1e-14)
    if hide == "bias":
        assert (results[5][hidden] == 0).all()
    if where != "bias":
        for result, expected in zip(results[:5], clean, strict=False):
            assert torch.equal(result[:, 1], expected[:, 1])


@pytest.mark.parametrize("time", [3, 6, 20, 1030])  # one by one, a block, blocks, torch's kernel
@pytest.mark.parametrize("hide", ["causal", "booleans"])
def test_products_of_a_hidden_pair_may_overflow(hide, time):
    tensors = inputs(time, time, 32, 32, torch.float32, batch=1, heads=1)
    with torch.no_grad():
        tensors[2][..., -1, :] = 1e30
    causal, mask = hide == "causal", torch.ones(time, time, dtype=torch.bool).tril()
    options = {"causal": causal, "mask": None if causal else mask}

    def gradients(implementation):
        outputs = softmax_attention(*tensors, implementation=implementation, **options)
        return torch.autograd.grad(outputs, tensors, torch.full_like(outputs, 1e10))

    fast, slow = gradients("cpu"), gradients("reference")
    assert slow[0][..., :-1, :].isfinite().all()
    for result, expected in zip(fast, slow, strict=True):
        assert torch.equal(result.isnan(), expected.isnan())
        seen = expected.isfinite()
        assert (result[seen] - expected[seen]).norm() <= 1e-5 * expected[seen].norm()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_is_seen_where_it_may_be(which):
    tensors, bias = inputs(9, 9, 4, 4, batch=1), biases((9, 9), 0.4)
    with torch.no_grad():
        tensors[which][0, 0, 5, 2] = math.nan
    fast, slow = (outcome(implementation, tensors, bias, causal=True) for implementation in ("cpu", "reference"))
    for result, expected in zip(fast[:2], slow, strict=False):
        assert torch.equal(result.isnan(), expected.isnan())
    seen = bias.isfinite().tril()[:, 5] if which else torch.arange(9) == 5
    assert torch.equal(fast[0][0, 0].isnan().any(-1), seen)


@pytest.mark.parametrize("bias", [0.0, 1e-40, -88.0, 1e4, -1e30, 3e38])
def test_extreme_finite_biases_stay_finite(bias):
    tensors = inputs(9, 9, 4, 4, torch.float32)
    given = torch.full((9, 9), bias).tril().requires_grad_()
    assert all(result.isfinite().all() for result in outcome("cpu", tensors, given))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_empty_sizes(implementation, shape):
    results = outcome(implementation, inputs(*shape, 4, 4), biases((2, *shape)))
    assert results[1].shape == (3, 2, *shape)
    assert all(result.isfinite().all() for result in results)


def test_threads_do_not_change_a_sum(assert_same_by_threads):
    tensors, bias = inputs(70, 70, 8, 8, torch.float32, batch=4, heads=4), biases((4, 70, 70), 0.2, torch.float32)
    assert_same_by_threads(lambda: outcome("cpu", tensors, bias, causal=True))


@pytest.mark.quick("cpu")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_survives_compilation(implementation):
    tensors, bias, ends = inputs(4, 5, 3, 5), biases((2, 4, 5), 0.3), torch.tensor([5, 0, 2])

    def program(query, key, value, bias, ends):
        options = {"memory_lengths": ends, "return_weights": True, "implementation": implementation}
        outputs, weights = softmax_attention(query, key, value, mask=bias, **options)
        return outputs.sin().sum() + weights.square().sum()

    leaves = [*tensors, bias]
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(*leaves, ends), leaves)
    for result, wanted in zip(torch.autograd.grad(compiled(*leaves, ends), leaves), expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_low_precision_is_computed_in_float32():
    tensors, bias = inputs(9, 9, 4, 4, torch.bfloat16), biases((9, 9), dtype=torch.bfloat16)
    exact = softmax_attention(*(tensor.float() for tensor in tensors), mask=bias.float(), return_weights=True)
    for result, expected in zip(softmax_attention(*tensors, mask=bias, return_weights=True), exact, strict=True):
        assert torch.equal(result, expected.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = softmax_attention(*tensors, mask=bias.float(), return_weights=True)
    for result, expected in zip(mixed, exact, strict=True):
        assert torch.equal(result, expected)


def test_refusals():
    tensors = inputs(4, 5, 3, 3)
    with pytest.raises(ValueError, match="4 queries and 5 keys; give memory_lengths too"):
        softmax_attention(*tensors, lengths=torch.tensor([4, 4, 4]))
    with pytest.raises(ValueError, match=r"mask is torch\.float32"):
        softmax_attention(*tensors, mask=torch.zeros(4, 5))
