"""Which range of numbers each sequence needs: the least that loses nothing is taken, for that sequence alone.

    0   the batch's tables: floats for float32 inputs, else doubles
    1   doubles
    2   doubles scaled by the weights of prefixes that 1 found instead of the mean field's
    3   the CPU, with an unlimited range of numbers

The guard of `forward` decides, and each rung waits for the device once. A CUDA graph cannot wait: while one is
captured, `readings_on_gpu` takes the first two rungs one after the other, the second with length 0 for sequences that
do not need it, and what doubles lose is NaN.
"""

import math

import torch
from torch import Tensor

from structattn.operators.common.differentiation import constant_when_compiled
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.gpu.forward import FAR, Forward, forward, tiling_of
from structattn.operators.nondeterministic_stack.gpu.unlimited import unlimited_readings

BATCH, DOUBLES, TRUE_WEIGHTS, UNLIMITED = range(4)
_KINDS: set[tuple[object, ...]] = set()
FLOOR = 1e-12  # of the sum, added to every weight that the first pass found


@constant_when_compiled
def capturing(device_type: str) -> bool:
    """Return whether a CUDA graph is being captured, which cannot wait for the device."""
    return device_type == "cuda" and torch.cuda.is_current_stream_capturing()


def first_of_its_kind(direction: str, given: Arguments, columns: int) -> bool:
    """Return whether floats meet these kernels for the first time, so that those in doubles should be loaded, too.

    No kernel can be loaded while a graph is captured, and a graph has tables of both; warming up by eager calls must be
    enough.
    """
    if not given.push.is_cuda or given.push.dtype != torch.float32 or len(given.push) == 0:
        return False
    diagonals = tiling_of(given).diagonals
    kind = (direction, given.push.device, given.push.shape[2:4], min(diagonals, FAR + 1), min(columns, 32))
    new = kind not in _KINDS
    _KINDS.add(kind)
    return new


def climb(given: Arguments, tf32: bool, floats: bool = False) -> tuple[Forward, Tensor]:
    """Return the batch's pass, with readings and log-weights from the rung that each sequence needs, and the rungs.

    Sequences with NaN or +inf among their logits end on the last rung. ``rung`` is (B,) int32; the tables of sequences
    beyond the first rung hold nothing, and have length 0. While a graph is captured, tables are doubles, and these
    sequences are NaN; or, if ``floats``, tables are floats, and the results of these sequences undefined.
    """
    static = capturing(given.push.device.type)
    first = forward(given, torch.float64 if static and not floats else given.push.dtype, tf32=tf32)
    next_rung = DOUBLES if first.shares.R.dtype == torch.float32 else TRUE_WEIGHTS
    rung = first.failed * next_rung
    first.shares.lengths.mul_(rung == BATCH)
    if static:
        if not floats:
            lost = rung.bool()
            first.readings.masked_fill_(lost.view(-1, 1, 1, 1, 1), torch.nan)
            first.log_weight.masked_fill_(lost[:, None], torch.nan)
        return first, rung
    if first_of_its_kind("forward", given, first.readings.shape[-1]):
        repeated(selected(given, rung.new_zeros(1)), DOUBLES)
    while len(chosen := ((rung > 0) & (rung < UNLIMITED)).nonzero()[:, 0]):
        again = repeated(selected(given, chosen), next_rung)
        first.readings[chosen] = again.readings
        first.log_weight[chosen] = again.log_weight
        # Those that are done are marked by a negative rung until the others are.
        rung[chosen] = torch.where(again.failed.bool(), next_rung + 1, -next_rung).int()
        next_rung += 1
    beyond = (rung == UNLIMITED).nonzero()[:, 0]
    if len(beyond):
        readings, log_weight = unlimited_readings(selected(given, beyond))
        first.readings[beyond] = readings.to(first.readings)
        first.log_weight[beyond] = log_weight.to(first.log_weight)
    return first, rung.abs()


def repeated(given: Arguments, rung: int) -> Forward:
    """Compute sequences in doubles, as rung 1 or 2 does."""
    found = forward(given, torch.float64, tf32=False)
    if rung == DOUBLES:
        return found
    log_alpha = found.log_alpha.where(~found.log_alpha.isnan(), -torch.inf)
    total = log_alpha.logsumexp(2, keepdim=True)
    raised = torch.logaddexp(log_alpha, total + math.log(FLOOR))
    return forward(given, torch.float64, tf32=False, log_p=raised)


def selected(given: Arguments, sequences: Tensor) -> Arguments:
    """Return the sequences of the given indices."""
    values = None if given.values is None else given.values[sequences]
    logits = given.push[sequences], given.replace[sequences], given.pop[sequences]
    return Arguments(*logits, values, given.bottom, given.lengths[sequences], given.window)
