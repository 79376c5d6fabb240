"""The best continuations of a beam are those of a sort of all, also where scores are equal or forbidden."""

import math

import pytest
import torch

from structattn.decoding.continuations import top_continuations

SIZES = [(1, 1, 1), (3, 2, 7), (2, 4, 255), (2, 3, 256), (3, 4, 1000), (2, 4, 2049), (9, 4, 2400)]  # B, W, C


def by_definition(logits, log_probs, k, required=None):
    """Sort the scores of all continuations."""
    logits, log_probs = logits.double(), log_probs.double()
    scores = log_probs[:, :, None] + logits.log_softmax(-1)
    for of_sentence, only in zip(scores, [] if required is None else required.tolist(), strict=False):
        if only >= 0:
            of_sentence[:, [c for c in range(scores.shape[2]) if c != only]] = -math.inf
    values, indices = scores.flatten(1).sort(dim=1, descending=True, stable=True)
    return values[:, :k], indices[:, :k]


def beams(batch, beam, classes, dtype, kinds):
    """Logits with ``kinds`` different values, so that few kinds give many equal scores, and log-probabilities."""
    generator = torch.Generator().manual_seed(batch + classes)
    logits = torch.randint(kinds, (batch, beam, classes), generator=generator).to(dtype) / kinds * 20
    return logits, -torch.rand(batch, beam, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kinds", [10**6, 3])
@pytest.mark.parametrize("sizes", SIZES)
def test_equals_the_definition(sizes, kinds, dtype):
    logits, log_probs = beams(*sizes, dtype, kinds)
    for k in {1, min(8, sizes[1] * sizes[2]), min(300, sizes[1] * sizes[2])}:
        scores, indices = top_continuations(logits, log_probs, k)
        expected = by_definition(logits.double(), log_probs.double(), k)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(scores.double(), expected[0], rtol=0, atol=tolerance)
        assert scores.dtype == dtype
        if dtype == torch.float64:
            assert torch.equal(indices, expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_lower_index_comes_first_among_equal_scores(dtype):
    scores, indices = top_continuations(torch.zeros(2, 2, 300, dtype=dtype), torch.zeros(2, 2, dtype=dtype), 302)
    assert indices.tolist() == [list(range(302))] * 2
    assert torch.equal(scores, scores[:, :1].expand_as(scores))


def test_forbidden_classes_and_empty_slots():
    logits = torch.full((3, 2, 5), -math.inf)
    logits[0, 0, 3] = logits[0, 1, 4] = logits[1, :, 2] = 0
    log_probs = torch.tensor([[-1.0, -2.0], [-3.0, -math.inf], [0.0, 0.0]])
    scores, indices = top_continuations(logits, log_probs, 3)
    assert scores.tolist() == [[-1, -2, -math.inf], [-3, -math.inf, -math.inf], [-math.inf] * 3]
    assert indices[0, :2].tolist() == [3, 9]
    assert indices[1, 0] == 2
    assert bool(((indices >= 0) & (indices < 10)).all())


def test_a_hypothesis_without_continuations_beside_many_others():
    logits, log_probs = beams(1, 60, 100, torch.float64, 10**6)
    logits[0, 7] = -math.inf
    scores, indices = top_continuations(logits, log_probs, 101)
    logits[0, 7] = torch.finfo(torch.float64).min  # in a softmax by itself
    log_probs[0, 7] = -math.inf
    expected = by_definition(logits, log_probs, 101)
    torch.testing.assert_close(scores, expected[0])
    assert torch.equal(indices, expected[1])


def test_required_classes():
    logits, log_probs = beams(3, 2, 40, torch.float64, 10**6)
    required = torch.tensor([7, -2, 39])
    found = top_continuations(logits, log_probs, 2, required)
    expected = by_definition(logits, log_probs, 2, required)
    torch.testing.assert_close(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert bool((found[1][[0, 2]] % 40 == required[[0, 2], None]).all())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 299])
def test_logits_that_are_not_numbers(value, where):
    logits, log_probs = beams(2, 2, 300, torch.float32, 10**6)
    logits[1, 1, where] = value
    with pytest.raises(ValueError, match="the model returned NaN or inf logits; expected finite numbers or -inf"):
        top_continuations(logits, log_probs, 4)
    logits[1, 1] = -math.inf
    logits[1, 1, where] = math.nan
    with pytest.raises(ValueError, match="the model returned NaN or inf logits"):
        top_continuations(logits, log_probs, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_log_probabilities_that_are_not_numbers(value):
    logits, log_probs = beams(2, 2, 300, torch.float32, 10**6)
    log_probs[1, 0] = value
    with pytest.raises(ValueError, match="log_probs holds NaN or inf; expected finite numbers or -inf"):
        top_continuations(logits, log_probs, 4)


def test_half_precision_is_computed_in_float32():
    logits, log_probs = beams(2, 2, 300, torch.float32, 10**6)
    scores, indices = top_continuations(logits.bfloat16(), log_probs, 4)
    expected = top_continuations(logits.bfloat16().float(), log_probs, 4)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, expected[0])
    assert torch.equal(indices, expected[1])


def test_rows_that_are_not_contiguous():
    logits, log_probs = beams(2, 3, 64, torch.float64, 10**6)
    found = top_continuations(logits.transpose(0, 1).contiguous().transpose(0, 1), log_probs, 4)
    assert torch.equal(found[1], top_continuations(logits, log_probs, 4)[1])
