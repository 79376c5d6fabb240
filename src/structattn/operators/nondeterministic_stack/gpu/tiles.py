"""Layout of the tables in tiles, which the GPU kernels of both directions share.

Legend: B batch, T steps, n ≤ T of a sequence, Q states, S symbols, C = QS, m columns of the readings. Configurations
are symbol-first, c = zQ + s for state s with symbol z on top, so that a table is one matrix for each symbol. Times run
from 0 to T; tensors of steps hold step t at index t - 1.

    P[j,t][(s,z),r]  weight of "at time j in state s with z on top, at t in state r with that slot just popped"
    w[k,t][(u,y),r]  weight of "push at step k + 1 on (u,y), uncover it by a pop at step t into state r"
    p_t[c] > 0       provisional weights of prefixes; α_t[c] the true ones, b_t = α_t / p_t
    g_t              scale of the pops of step t

A tile (J,I), J ≤ I, holds rows (j,s) and columns (t,r) of the times of blocks J and I, one matrix for each symbol z.
Blocks have ⌊NP/Q⌋ times and are cut from time 0, so a number's place does not depend on T. Tiles are ordered by columns
of blocks: (J,I) is tile I(I+1)/2 + J.
"""

from dataclasses import dataclass

from torch import Tensor

from structattn.operators.common.gpu import power_of_two

ROWS = 32  # NP: rows and columns of a tile


@dataclass(frozen=True)
class Tiling:
    """Sizes of the tables of a batch.

    Attributes:
        window: D, at most T: P[j,t] = 0 where t - j > D, and w[k,t] = 0 where t - k - 1 > D.
        rows: NP, a power of two and at least 16 and Q; of the rows of a tile, those from NB·Q on are zero.
    """

    batch: int
    time: int
    states: int
    symbols: int
    window: int
    rows: int = ROWS

    @property
    def configurations(self) -> int:
        """C."""
        return self.states * self.symbols

    @property
    def padded(self) -> int:
        """Rows of a matrix of all configurations in a kernel: a power of two and at least 16, as products need."""
        return power_of_two(max(self.configurations, 16))

    @property
    def rows_at_a_time(self) -> int:
        """Rows of a product that a single warp takes at a time: as many as fit into its registers."""
        return 16 if self.configurations <= 8 else 4

    @property
    def block(self) -> int:
        """NB, the number of times in a block."""
        return self.rows // self.states

    @property
    def blocks(self) -> int:
        """nb, the number of blocks that times 0..T fill."""
        return -(-(self.time + 1) // self.block)

    @property
    def tiles(self) -> int:
        """Number of tiles (J,I), J ≤ I."""
        return self.blocks * (self.blocks + 1) // 2

    @property
    def table(self) -> tuple[int, int, int, int, int]:
        """Shape of P or w."""
        return self.batch, self.tiles, self.symbols, self.rows, self.rows

    @property
    def diagonals(self) -> int:
        """Number of anti-diagonals I - J = 0, 1, .. that the window reaches."""
        return min(self.blocks, self.window // self.block + 2)


@dataclass(frozen=True)
class Provisional:
    """Tables scaled by p. Everything is 0 past a sequence's length, but for tiles beyond it, which are not written.

    Attributes:
        log_p: log p_t[c], (B, T+1, C) float64.
        log_g: log g_t, (B, T+1) float64; g_t is the largest p_{t-1}[c] exp(pop_t[c,r]), 1 without pops.
        push: π_t[c→d] = p_{t-1}[c] exp(push_t[c→d]) / p_t[d], (B, T, C, C) of the tables' dtype.
        replace: ρ_t[c→d], the same.
        pop: p_{t-1}[c] exp(pop_t[c→r]) / g_t, (B, T, C, Q); 0 for t = 1, since the bottom is never popped.
        factor: f_t[c] = g_t / p_t[c], (B, T+1, C); 0 for t = 0.
        P: P^[j,t][c,r] = p_j[c] P[j,t][c,r] / g_t, a table (B, tiles, S, NP, NP), for 1 ≤ j < t.
        w: w^[k,t][(u,y),r] = p_k[(u,y)] w[k,t] / p_t[(r,y)], a table, for 0 ≤ k ≤ t - 2.
    """

    log_p: Tensor
    log_g: Tensor
    push: Tensor
    replace: Tensor
    pop: Tensor
    factor: Tensor
    P: Tensor
    w: Tensor


@dataclass(frozen=True)
class Shares:
    """The tables conditioned on the prefix, p = α: probabilities given the input so far, which the backward takes.

    Everything is 0 past a sequence's length, but for tiles beyond it, which are not written, and for configurations
    that no run reaches. ``lengths`` is 0 for a sequence that these tables do not hold.

    Attributes:
        lengths: (B,) int32.
        push: π_t[c→d] = α_{t-1}[c] exp(push_t[c→d]) / α_t[d], (B, T, C, C) of the tables' dtype.
        replace: ρ_t[c→d], the same.
        factor: f_t[c] = g_t / α_t[c], (B, T+1, C) of the tables' dtype; g_t is the largest α_{t-1}[c] exp(pop_t[c,r]).
        R: R[j,t][c,r] = α_j[c] P[j,t][c,r] / g_t, a table, for 1 ≤ j < t.
        W: W[k,t][(u,y),r] = α_k[(u,y)] w[k,t] / α_t[(r,y)], a table, for 0 ≤ k ≤ t - 2.
        a: α_t[c] / Σ α_t, (B, T+1, C) float64.
        E: expected top vector, (B, T+1, C, m) float64.
    """

    lengths: Tensor
    push: Tensor
    replace: Tensor
    factor: Tensor
    R: Tensor
    W: Tensor
    a: Tensor
    E: Tensor
