"""The best runs of tensors on a GPU, by operations of torch: on a CPU, too, beside the compiled kernel."""

import pytest
import torch

from structattn.operators import StackAction, nondeterministic_stack_best_run
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu.best_run import best_run_by_spans


def by_spans(logits, lengths, window=None):
    return best_run_by_spans(checked_arguments(*logits, None, None, lengths, window))


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize(
    ("states", "symbols", "time", "window"),
    [(1, 1, 1, None), (1, 2, 12, None), (2, 3, 17, None), (3, 2, 14, 4), (2, 2, 9, 1), (2, 3, 0, None)],
)
def test_equals_the_kernel(random_inputs, states, symbols, time, window, scale):
    logits = random_inputs(4, time, states, symbols, 1, scale=scale).logits
    lengths = torch.tensor([time, time // 2, 0, max(time - 1, 0)])
    *run, weight = by_spans(logits, lengths, window)
    *wanted, wanted_weight = nondeterministic_stack_best_run(*logits, lengths=lengths, window=window)
    torch.testing.assert_close(weight, wanted_weight, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run, wanted, rtol=0, atol=0)


def weight_of(logits, run, length):
    """The sum of the logits of one run, which must keep to the rules of a stack."""
    push, replace, pop = logits
    total, state, stack = 0.0, 0, [0]
    for t, (action, to, symbol) in enumerate(zip(*(x.tolist() for x in run), strict=True)):
        if t == length:
            break
        if action == StackAction.POP:
            total += float(pop[t, state, stack.pop(), to])
        else:
            total += float((push if action == StackAction.PUSH else replace)[t, state, stack[-1], to, symbol])
            stack[len(stack) - (action == StackAction.REPLACE) :] = [symbol]
        assert stack[-1] == symbol
        state = to
    return total


def test_ties_and_forbidden_transitions(random_inputs):
    """Any of the best runs will do; impossible steps have none."""
    logits = [x.round().where(x < 1.5, -torch.inf) for x in random_inputs(20, 15, 2, 2, 1).logits]
    logits[0][0, 6], logits[1][0, 6], logits[2][0, 6] = (-torch.inf,) * 3
    lengths = torch.full((20,), 15)
    *run, weight = by_spans(logits, lengths)
    assert weight[0] == -torch.inf
    assert all((x[0] == 0).all() for x in run)
    wanted = nondeterministic_stack_best_run(*logits).log_weight
    torch.testing.assert_close(weight, wanted, rtol=0, atol=1e-12)
    for b in range(1, 20):
        assert weight_of([x[b] for x in logits], [x[b] for x in run], 15) == pytest.approx(float(weight[b]), abs=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_logit_reaches_its_own_sequence_alone(random_inputs, bad):
    logits, lengths = random_inputs(3, 6, 2, 2, 1).logits, torch.tensor([6, 4, 6])
    wanted = nondeterministic_stack_best_run(*logits, lengths=lengths)
    logits[1][0, 5, 1, 1, 0, 0] = bad
    logits[2][1, 4, 0, 0, 0] = bad  # past the end
    *run, weight = by_spans(logits, lengths)
    assert weight[0].isnan()
    assert all((x[0] == 0).all() for x in run)
    torch.testing.assert_close(weight[1:], wanted.log_weight[1:], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close([x[1:] for x in run], [x[1:] for x in wanted[:3]], rtol=0, atol=0)
