"""The definition one step at a time, in torch alone: any device and dtype, any derivative, traceable.

Vectors may have any sign, but the semiring is restricted to positive numbers: v is represented by the pair v + s, s
with constant s = |v| + 1, and the two readings are subtracted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import register_dataclass

from structattn.operators.nondeterministic_stack import reference
from structattn.operators.nondeterministic_stack.states import NondeterministicStackState


@dataclass(eq=False)
class ReferenceState(NondeterministicStackState):
    """The columns of all steps so far.

    Attributes:
        columns: the columns of times -2 .. t side by side, (B, i, k, Q, S, Q, S, 1+2m), i = -3 .. t-1.
        alphas: alpha at times -3 .. t, (B, i, Q, S).
        window: maximum number of steps between a push and its pop, or None.
    """

    columns: Tensor
    alphas: Tensor
    window: int | None

    @staticmethod
    def initial(bottom: Tensor, batch: int, states: int, symbols: int, window: int | None) -> "ReferenceState":
        """Return the state before the first step."""
        pair = _positive_pair(bottom.expand(batch, -1))
        columns, alphas = reference.first_columns(pair, states, symbols)
        totals = alphas[-1][..., None] + pair[:, None, None]
        return ReferenceState(
            _reading(totals), reference.side_by_side(columns, columns[-1].shape[1]), torch.stack(alphas, 1), window
        )

    def select(self, indices: Tensor) -> "ReferenceState":
        """Return the states of some members of the batch."""
        reading, columns, alphas = (x.index_select(0, indices) for x in (self.reading, self.columns, self.alphas))
        return ReferenceState(reading, columns, alphas, self.window)

    def detach(self) -> "ReferenceState":
        """Return the same state without gradient history."""
        return ReferenceState(self.reading.detach(), self.columns.detach(), self.alphas.detach(), self.window)

    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "ReferenceState":
        """Append a column. Cost: time t² · Q³S² · (1+2m); all columns, t² · Q²S² · (1+2m) numbers, are copied."""
        push, replace, pop = logits
        past, last = self.columns[:, :, :-1], self.columns[:, :, -1]
        popped = reference.reached_by_pop(reference.log_sum, past, last, pop, self.window)
        column = reference.next_column(reference.log_sum, last, popped, push, replace, _positive_pair(value))
        totals = reference.prefixes(reference.log_sum, self.alphas, column)
        before = reference.lengthened(self.columns, 1, column.shape[1])
        return ReferenceState(
            _reading(totals),
            torch.cat([before, column[:, :, None]], 2),
            torch.cat([self.alphas, totals[:, None, ..., 0]], 1),
            self.window,
        )


register_dataclass(ReferenceState)


def _positive_pair(vector: Tensor) -> Tensor:
    """Return the logarithms of 1, of v + s and of s, (B, 1+2m)."""
    shift = vector.detach().nan_to_num().abs() + 1
    return torch.cat([vector.new_zeros(vector.shape[0], 1), (vector + shift).log(), shift.log()], 1)


def _reading(totals: Tensor) -> Tensor:
    """Compute the reading (29) from the totals of v + s and s."""
    share, _ = reference.share_of_all(totals)
    raised, shift = share[..., 1:].chunk(2, -1)
    return raised - shift
