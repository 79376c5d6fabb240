"""Label smoothing against its formulas, written out class by class."""

import pytest
import torch
from torch.nn import functional as F

from structattn.settings.training import LabelSmoothing
from structattn.tasks.losses import label_smoothed_cross_entropy

COUNT, IGNORED = 7, -2


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, COUNT, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.tensor([0, 3, IGNORED, 6, 3, IGNORED])


def test_torchs_formula_is_torchs(rows):
    logits, classes = rows
    ours = label_smoothed_cross_entropy(logits, classes, LabelSmoothing(epsilon=0.3), IGNORED)
    theirs = F.cross_entropy(logits, classes, ignore_index=IGNORED, reduction="sum", label_smoothing=0.3)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits))


@pytest.mark.parametrize(("formula", "others"), [("you", COUNT + 1), ("annotated", COUNT - 1), ("fairseq", COUNT)])
def test_the_others_put_their_mass_where_they_say(rows, formula, others):
    logits, classes = rows
    log_p, expected = logits.log_softmax(-1), 0.0
    for row, target in zip(log_p, classes.tolist(), strict=True):
        for c in range(COUNT) if target != IGNORED else ():
            expected -= (0.9 if c == target else 0.1 / others) * row[c]
    found = label_smoothed_cross_entropy(logits, classes, LabelSmoothing(formula=formula), IGNORED)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(2 * found, logits), torch.autograd.grad(2 * expected, logits))


@pytest.mark.parametrize("count", [0, 1, 64, 65, 200])
def test_any_number_of_rows_has_torchs_sum_and_gradient(count):
    generator = torch.Generator().manual_seed(count)
    logits = (1e4 + 50 * torch.randn(count, COUNT, generator=generator)).requires_grad_()
    classes = torch.randint(0, COUNT, (count,), generator=generator)
    classes[::3] = IGNORED
    ours = label_smoothed_cross_entropy(logits, classes, LabelSmoothing(), IGNORED)
    theirs = F.cross_entropy(logits, classes, ignore_index=IGNORED, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits))


@pytest.mark.parametrize("formula", ["torch", "you", "annotated", "fairseq"])
def test_without_mass_taken_it_is_cross_entropy(rows, formula):
    logits, classes = rows
    found = label_smoothed_cross_entropy(logits, classes, LabelSmoothing(epsilon=0, formula=formula), IGNORED)
    torch.testing.assert_close(found, F.cross_entropy(logits, classes, ignore_index=IGNORED, reduction="sum"))


def test_padded_rows_have_no_part(rows):
    logits, classes = rows
    with torch.no_grad():
        logits[classes == IGNORED] = torch.nan
    loss = label_smoothed_cross_entropy(logits, classes, LabelSmoothing(), IGNORED)
    assert torch.isfinite(loss)
    assert not torch.autograd.grad(loss, logits)[0][classes == IGNORED].any()


def test_half_precision_is_computed_in_float32(rows):
    logits, classes = rows
    rounded = logits.bfloat16()
    low = label_smoothed_cross_entropy(rounded, classes, LabelSmoothing(), IGNORED)
    assert low.dtype == torch.float32
    exact = label_smoothed_cross_entropy(rounded.double(), classes, LabelSmoothing(), IGNORED)
    torch.testing.assert_close(low.double(), exact, rtol=1e-6, atol=0)
    slope, exact_slope = (torch.autograd.grad(loss, rounded)[0] for loss in (low, exact))
    torch.testing.assert_close(slope, exact_slope, rtol=0.01, atol=1e-6)
