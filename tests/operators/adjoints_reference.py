"""The gradients from conditioned tables by plain operations of torch, in float64: what the kernels are tested against.

Legend in tiles.py; a bar denotes an adjoint. With L_t[c] and Ē_t[c] the adjoints of α_t[c] and of α_t[c] E_t[c], both
times α_t[c] ("Blocks" in DERIVATION.md):

    (a) Ē_t[c]  = a_t[c] r̄_t[c] + Σ_d ρ_{t+1}[c→d] Ē_{t+1}[d] + Σ_{t'>t,r} W[t,t'][c,r] Ē_t'[r,y]              c = (u,y)
        L_t[c]  = a_t[c] (ℓ̄_t − Σ_d r̄_t[d]·reading_t[d]) + the same of L + Σ_d π_{t+1}[c→d] q_{t+1}[d]
        q_t[d]  = L_t[d] + v_t·Ē_t[d]
    (b) R̄[j,t]  = π_jᵀ (f_t W̄[j−1,t]) + ρ_jᵀ R̄[j−1,t] + Σ_{i≤j−2} W[i,j]ᵀ R̄[i,t]
        W̄[j,k][c,u] = L_k[u,z] + E_j[c]·Ē_k[u,z] + Σ_{t>k,r} R̄[j,t][c,r] R[k,t][(u,z),r]                       c = (s,z)
    (c) ∂push_j[c→d] = π_j[c→d] (q_j[d] + Σ_{t,r} f_t W̄[j−1,t][c,r] R[j,t][d,r])                v̄_t = Σ π_t Ē_t
        ∂replace_j[c→d] = ρ_j[c→d] (L_j[d] + E_{j−1}[c]·Ē_j[d] + Σ_{t,r} R̄[j−1,t][c,r] R[j,t][d,r])
        ∂pop_t = R[t−1,t] R̄[t−1,t]

W̄ is the adjoint of w^[j,k] α_k, that is, D̄ of DERIVATION.md is f_k W̄ / g_k.
"""

from typing import NamedTuple

import torch
from tiles_reference import unpacked
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.nondeterministic_stack.arguments import Gradients
from structattn.operators.nondeterministic_stack.gpu.tiles import Shares, Tiling


class Cotangents(NamedTuple):
    """Of readings (B, T, C, m), configurations symbol-first, and of log-weights (B, T); 0 past the lengths."""

    readings: Tensor
    log_weight: Tensor


def cotangents(grad_readings: Tensor, grad_log_weight: Tensor, lengths: Tensor) -> Cotangents:
    """Return the cotangents in float64 from those of readings (B, T, Q, S, m) and of log-weights (B, T)."""
    here = inside(lengths, grad_log_weight.shape[1])
    readings = grad_readings.double().transpose(2, 3).flatten(2, 3)
    return Cotangents(torch.where(here[..., None, None], readings, 0), torch.where(here, grad_log_weight.double(), 0))


def _with_one(x: Tensor) -> Tensor:
    """Return (1, x) along the last axis: the columns that belong to (L, Ē)."""
    return torch.cat([x.new_ones(*x.shape[:-1], 1), x], -1)


def prefix_adjoints(tables: Shares, tiling: Tiling, values: Tensor, given: Cotangents) -> Tensor:
    """Return y_t = (L_t, Ē_t) by (a), (B, T+1, C, 1+m)."""
    B, T, Q, S = tiling.batch, tiling.time, tiling.states, tiling.symbols
    W, push, replace = (x.double() for x in (unpacked(tables.W, tiling), tables.push, tables.replace))
    y = torch.zeros_like(_with_one(tables.E))
    for t in reversed(range(T + 1)):
        if t > 0:
            a, reading_ = tables.a[:, t, :, None], given.readings[:, t - 1]
            total = given.log_weight[:, t - 1] - (reading_ * a * tables.E[:, t]).sum((1, 2))
            y[:, t] += a * torch.cat([total[:, None, None].expand_as(a), reading_], -1)
        if t < T:
            q = (y[:, t + 1] * _with_one(values.double())[:, t, None]).sum(-1)
            y[:, t] += replace[:, t] @ y[:, t + 1]
            y[:, t, :, 0] += (push[:, t] @ q[..., None]).squeeze(-1)
        y[:, t] += torch.einsum("bzutr,btzrm->bzum", W[:, t], y.view(B, T + 1, S, Q, -1)).flatten(1, 2)
    return y


def cell_adjoints(tables: Shares, tiling: Tiling, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return R̄ and W̄ by (b), (B, T+1, S, Q, T+1, Q) with axes j, z, s, t, r."""
    B, T, Q, S, C = tiling.batch, tiling.time, tiling.states, tiling.symbols, tiling.configurations
    R, W = unpacked(tables.R, tiling).double(), unpacked(tables.W, tiling).double()
    push, replace, E = tables.push.double().mT, tables.replace.double().mT, _with_one(tables.E)
    f = tables.factor.double().view(B, T + 1, S, Q).transpose(1, 2)[:, :, None]
    times = torch.arange(T + 1)
    R_, W_ = torch.zeros_like(R), torch.zeros_like(W)
    for j in range(T + 1):
        real = (times <= tables.lengths[:, None]).view(B, 1, 1, T + 1, 1)
        span = (times - j).view(T + 1, 1)
        if j > 0:
            row = push[:, j - 1] @ (W_[:, j - 1] * f).reshape(B, C, -1)
            row += replace[:, j - 1] @ R_[:, j - 1].reshape(B, C, -1)
            row = row.view_as(R_[:, j]) + torch.einsum("bizsu,bizstr->bzutr", W[:, :, :, :, j], R_)
            R_[:, j] = torch.where(real & (span >= 1) & (span <= tiling.window), row, 0)
        row = torch.einsum("bzsm,bkzum->bzsku", E[:, j].view(B, S, Q, -1), y.view(B, T + 1, S, Q, -1))
        row += torch.einsum("bzstr,bkzutr->bzsku", R_[:, j], R)
        W_[:, j] = torch.where(real & (span >= 2) & (span <= tiling.window + 1), row, 0)
    return R_, W_


def gradients(tables: Shares, tiling: Tiling, values: Tensor, given: Cotangents) -> Gradients:
    """Return the gradients of push, replace, pop, values and, for each sequence, of the bottom, by (a) to (c)."""
    B, T, Q, S, C = tiling.batch, tiling.time, tiling.states, tiling.symbols, tiling.configurations
    y = prefix_adjoints(tables, tiling, values, given)
    R_, W_ = cell_adjoints(tables, tiling, y)
    R = unpacked(tables.R, tiling).double()
    f = tables.factor.double().view(B, T + 1, S, Q).transpose(1, 2)[:, None, :, None]
    rows, after, steps = R.reshape(B, T + 1, C, -1)[:, 1:].mT, y[:, 1:], torch.arange(T)
    q = (after * _with_one(values.double())[:, :, None]).sum(-1)
    push = q[:, :, None] + (W_ * f).reshape(B, T + 1, C, -1)[:, :-1] @ rows
    replace = _with_one(tables.E)[:, :-1] @ after.mT + R_.reshape(B, T + 1, C, -1)[:, :-1] @ rows
    pop = (R * R_)[:, steps, :, :, steps + 1].permute(1, 0, 3, 2, 4)
    values_ = torch.einsum("btcd,btdm->btm", tables.push.double(), after[..., 1:])

    def state_first(x: Tensor) -> Tensor:
        return x.view(B, T, S, Q, S, Q).permute(0, 1, 3, 2, 5, 4)

    return (
        state_first(tables.push * push),
        state_first(tables.replace * replace),
        pop,
        values_,
        y[:, 0, 0, 1:],
    )
