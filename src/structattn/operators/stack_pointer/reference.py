"""The definition of stack pointer attention: Li et al. (2024), section 3.2, equations (19) to (25).

Legend: alpha_i the distribution over the index that is on top of the stack after step i, among 0..T, where 0 stands for
the empty stack; a the probabilities of push, no-op and pop; h the values. Shapes: B batch, T time, d size of a value.
"""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.support.shapes import Float, Int


def stack_pointer_weights_reference(
    actions: Float[Tensor, "batch time 3"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch time time+1"]:
    """Return alpha_1 .. alpha_T, and zeros from each sequence's length on. Cost: O(T^3) in time, O(T^2) in memory."""
    batch, time, _ = actions.shape
    here = inside(lengths, time)[..., None]
    e = torch.eye(time + 1, dtype=actions.dtype, device=actions.device)
    alpha = e[:1].expand(batch, 1, time + 1)  # alpha_0 = e_0 (19); one more row at every step
    for i, action in enumerate(torch.where(here, actions, 0).unbind(1), start=1):
        push = e[i]  # (20)
        no_op = alpha[:, i - 1]  # (21)
        pop = torch.einsum("bj,bjn->bn", alpha[:, i - 1, 1:i], alpha[:, : i - 1])  # (22): j >= 1 uncovers alpha_{j-1},
        pop = pop + alpha[:, i - 1, :1] * alpha[:, 0]  # and popping the empty stack leaves it empty
        a_push, a_no_op, a_pop = action[..., None].unbind(1)
        alpha = torch.cat([alpha, (a_push * push + a_pop * pop + a_no_op * no_op)[:, None]], dim=1)  # (23)
    return torch.where(here & torch.ones_like(e, dtype=torch.bool)[1:].tril(1), alpha[:, 1:], 0)


def stack_pointer_reference(
    actions: Float[Tensor, "batch time 3"], values: Float[Tensor, "batch time+1 vector"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch time vector"]:
    """Return S(H) of the weights (19) to (23)."""
    return stack_pointer_readings_reference(stack_pointer_weights_reference(actions, lengths), values, lengths)


def stack_pointer_readings_reference(
    weights: Float[Tensor, "batch time time+1"],
    values: Float[Tensor, "batch time+1 vector"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch time vector"]:
    """S(H)_i = sum_n alpha_i(n) h_n (25), where alpha_i(n) = 0 for n > i and later values are not touched."""
    time = weights.shape[1]
    here = inside(lengths, time)[..., None]
    values = torch.where(torch.cat([lengths[:, None, None] > 0, here], dim=1), values, 0)
    readings = [
        torch.einsum("bn,bnd->bd", weights[:, i - 1, : i + 1], values[:, : i + 1])[:, None] for i in range(1, time + 1)
    ]
    return torch.where(here, torch.cat([values[:, :0], *readings], dim=1), 0)
