"""Nondeterministic stack attention in Triton, backward: the adjoints of `forward_gpu_kernel`, with its legend."""

import triton
import triton.language as tl

from structattn.operators.nondeterministic_stack.gpu.forward_gpu_kernel import parts_of_tables, sums_of_configurations


@triton.jit
def _top_vectors_(
    E, E_, own, W, rho, a, cotangent, k, n, window, times, M, configurations,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, K: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute E_ at time k for the first ``configurations``; write the contribution of the reading to a a_ to ``own``.

    ``cotangent`` is the gradient of the reading at time k; time 0 has no reading.
    """
    C: tl.constexpr = Q * S
    d = tl.arange(0, CP)[:, None]
    last = tl.minimum(n, k + 1 + window)
    for c in range(configurations):
        mine = tl.zeros((MB,), tl.float64)
        for first in range(0, M, MB):
            m = first + tl.arange(0, MB)[None, :]
            sums = tl.zeros((K, MB), tl.float64)
            for r in range(Q):
                after = r * S + c % S
                for start in range(k + 2, last + 1, K):
                    t = start + tl.arange(0, K)[:, None]
                    w = tl.load(W + (t * Q * C + r * C + c) * times + k, mask=t <= last, other=0.0)
                    sums += w * tl.load(E_ + (after * times + t) * M + m, mask=(t <= last) & (m < M), other=0.0)
            real = (d < tl.where(k < n, C, 0)) & (m < M)
            replaced = tl.load(rho + ((k + 1) * C + c) * C + d, mask=d < tl.where(k < n, C, 0), other=0.0)
            x = tl.sum(sums, 0) + tl.sum(replaced * tl.load(E_ + (d * times + k + 1) * M + m, mask=real, other=0.0), 0)
            m = first + tl.arange(0, MB)
            if k > 0:
                shown = tl.load(cotangent + c * M + m, mask=m < M, other=0.0).to(tl.float64) * tl.load(a + k * C + c)
                mine += shown * tl.load(E + (c * times + k) * M + m, mask=m < M, other=0.0)
                x += shown
            tl.store(E_ + (c * times + k) * M + m, x, mask=m < M)
        tl.store(own + c, tl.sum(mine, 0))


@triton.jit
def _stays_(
    E, E_, R, R_, D_, pi, rho_row_, pi_row_, value, value_, t, n, window, times, M,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, K: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute rho_t_, pi_t_ [c][d] and value_; the contribution of the value to pi_t_ [d] is returned, not added."""
    C: tl.constexpr = Q * S
    i = tl.arange(0, CP)
    d = i[:, None]
    pushed = tl.sum(tl.load(pi + (i[None, :] * C + d) * times + t, mask=(i[None, :] < C) & (d < C), other=0.0), 1)
    pushed_ = tl.zeros((CP,), tl.float64)
    for first in range(0, M, MB):
        m = first + tl.arange(0, MB)
        x_ = tl.load(E_ + (d * times + t) * M + m[None, :], mask=(d < C) & (m[None, :] < M), other=0.0)
        tl.store(value_ + m, tl.sum(pushed[:, None] * x_, 0), mask=m < M)
        x = tl.load(value + m, mask=m < M, other=0.0).to(tl.float64)
        pushed_ += tl.sum(x_ * x[None, :], 1)
    last, last_pop = tl.where(t > 1, tl.minimum(n, t - 1 + window), 0), tl.minimum(n, t + window)
    for c in range(C):
        replaced_, uncovered_ = tl.zeros((CP,), tl.float64), tl.zeros((CP,), tl.float64)
        for first in range(0, M, MB):
            m = first + tl.arange(0, MB)[None, :]
            x_ = tl.load(E_ + (d * times + t) * M + m, mask=(d < C) & (m < M), other=0.0)
            replaced_ += tl.sum(x_ * tl.load(E + (c * times + t - 1) * M + m, mask=m < M, other=0.0), 1)
        for r in range(Q):
            for start in range(t + 1, last_pop + 1, K):
                later = start + tl.arange(0, K)[None, :]
                at = (later * Q * C + r * C + c) * times + t - 1
                slot = tl.load(
                    R + (later * Q * C + r * C + d) * times + t, mask=(d < C) & (later <= last_pop), other=0.0
                )
                replaced_ += tl.sum(slot * tl.load(R_ + at, mask=later <= last, other=0.0), 1)
                uncovered_ += tl.sum(slot * tl.load(D_ + at, mask=later <= last_pop, other=0.0), 1)
        tl.store(rho_row_ + c * C + i, replaced_, mask=i < C)
        tl.store(pi_row_ + c * C + i, uncovered_, mask=i < C)
    return pushed_


@triton.jit
def _uncovered_(
    E, E_, R, R_, W_row, W_row_, sums_, t, n, low, window, times, M,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, K: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute W_t_ [u][c][j] from later pops and top vectors; write sum_j W_t W_t_, [c][u], to ``sums_``."""
    C: tl.constexpr = Q * S
    u, u3 = tl.arange(0, QP)[:, None], tl.arange(0, QP)[:, None, None]
    for c in range(C):
        products = tl.zeros((QP, J), tl.float64)
        for first in range(low - 1, t - 1, J):
            j, j3 = first + tl.arange(0, J)[None, :], first + tl.arange(0, J)[None, None, :]
            last = tl.minimum(n, first + J - 1 + window)
            sums = tl.zeros((QP, K, J), tl.float64)
            for r in range(Q):
                for start in range(t + 1, last + 1, K):
                    k = start + tl.arange(0, K)[None, :, None]
                    real = (k <= last) & (j3 >= 1) & (j3 < t - 1) & (j3 >= k - window)
                    x_ = tl.load(R_ + (k * Q * C + r * C + c) * times + j3, mask=real, other=0.0)
                    real = (u3 < Q) & (k <= tl.minimum(last, t + window))
                    x = tl.load(R + (k * Q * C + r * C + u3 * S + c % S) * times + t, mask=real, other=0.0)
                    sums += x * x_
            w_ = tl.sum(sums, 1)
            for m in range(M):
                e = tl.load(E + (c * times + j) * M + m, mask=j < t - 1, other=0.0)
                w_ += e * tl.load(E_ + ((u * S + c % S) * times + t) * M + m, mask=u < Q, other=0.0)
            real = (u < Q) & (j < t - 1)
            at = (u * C + c) * times + j
            tl.store(W_row_ + at, w_, mask=real)
            products += tl.where(real, w_ * tl.load(W_row + at, mask=real, other=0.0), 0.0)
        tl.store(sums_ + c * Q + tl.arange(0, QP), tl.sum(products, 1), mask=tl.arange(0, QP) < Q)


@triton.jit
def _popped_slots_(
    R_row_, D_row_, W_row_, from_uncovered, G, pi, inverse_row, balance, t, low, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, K: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute D_t_, its contribution to R_t_ (``from_uncovered``), and R_t_ by the transposed inverse."""
    C: tl.constexpr = Q * S
    r, r3 = tl.arange(0, QP)[:, None], tl.arange(0, QP)[:, None, None]
    for c in range(C):
        factor = tl.load(inverse_row + r * S + c % S, mask=r < Q, other=0.0)
        shift = tl.load(balance + r * S + c % S, mask=r < Q, other=0.0)
        for first in range(low - 1, t - 1, J):
            k = first + tl.arange(0, J)[None, :]
            real = (r < Q) & (k < t - 1)
            at = (r * C + c) * times + k
            tl.store(D_row_ + at, factor * (shift + tl.load(W_row_ + at, mask=real, other=0.0)), mask=real)
    tl.debug_barrier()
    for d in range(C):
        for first in range(low, t, J):
            j = first + tl.arange(0, J)[None, :]
            real = (r < Q) & (j < t)
            x = tl.zeros((QP, J), tl.float64)
            for c in range(C):
                share = tl.load(pi + (c * C + d) * times + j, mask=j < t, other=0.0)
                x += share * tl.load(D_row_ + (r * C + c) * times + j - 1, mask=real, other=0.0)
            tl.store(from_uncovered + (r * C + d) * times + j, x, mask=real)
    tl.debug_barrier()
    for d in range(C):
        for first in range(low, t, K):
            k = first + tl.arange(0, K)[None, :, None]
            sums = tl.zeros((QP, K, J), tl.float64)
            for c in range(C):
                for start in range(low, tl.minimum(first + K, t), J):
                    j = start + tl.arange(0, J)[None, None, :]
                    g = tl.load(G + ((k * C + d) * C + c) * times + j, mask=(k < t) & (j <= k), other=0.0)
                    real = (r3 < Q) & (j < t)
                    sums += g * tl.load(from_uncovered + (r3 * C + c) * times + j, mask=real, other=0.0)
            k = first + tl.arange(0, K)[None, :]
            tl.store(R_row_ + (r * C + d) * times + k, tl.sum(sums, 2), mask=(r < Q) & (k < t))
    tl.debug_barrier()


@triton.jit
def _balance(
    push_, repl_, balance, a_, weight_, pushed_, pi_row_, rho_row_, sums_, a, pi, rho, t, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Compute lambda_t (``balance``) and gradients of push and replace; return their contribution to a a_ at t - 1."""
    C: tl.constexpr = Q * S
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    here = (c < C) & (d < C)
    share = tl.load(a + t * C + i, mask=i < C, other=0.0)
    pi_t = tl.load(pi + (c * C + d) * times + t, mask=here, other=0.0)
    rho_t = tl.load(rho + (t * C + c) * C + d, mask=here, other=0.0)
    pi_t_ = tl.load(pi_row_ + c * C + d, mask=here, other=0.0) + pushed_[None, :]
    rho_t_ = tl.load(rho_row_ + c * C + d, mask=here, other=0.0)
    stays = tl.sum(pi_t * pi_t_ + rho_t * rho_t_, 0)
    shift = a_ + share * (weight_ - tl.sum(a_, 0)) - stays - sums_of_configurations(sums_, Q, S, QP, CP)
    push_t_, repl_t_ = pi_t * (pi_t_ + shift[None, :]), rho_t * (rho_t_ + shift[None, :])
    at = ((t - 1) * C + c) * C + d
    tl.store(push_ + at, push_t_, mask=here)
    tl.store(repl_ + at, repl_t_, mask=here)
    tl.store(balance + i, shift, mask=i < C)
    return tl.sum(push_t_ + repl_t_, 1)


@triton.jit(do_not_specialize=["T", "M", "window", "size", "room_size"])
def backward(
    push_, repl_, pop_, values_, bottom_, cotangents, weight_cotangents, values, lengths, tables, room,
    T, M, window, size, room_size,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr,
    K: tl.constexpr, J: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of logits and values, and of the bottom vector for each sequence."""
    C: tl.constexpr = Q * S
    b = tl.program_id(0).to(tl.int64)
    times = T + 1
    push_, repl_, pop_ = push_ + b * T * C * C, repl_ + b * T * C * C, pop_ + b * T * C * Q
    values, values_, bottom_ = values + b * T * M, values_ + b * T * M, bottom_ + b * M
    cotangents, weight_cotangents = cotangents + b * T * C * M, weight_cotangents + b * T
    a, inverse, pi, rho, E, R, W, G = parts_of_tables(tables + b * size, T, M, Q, S)
    R_ = room + b * room_size
    D_ = R_ + times * times * Q * C
    E_ = D_ + times * times * Q * C
    W_row_ = E_ + times * C * M
    from_uncovered = W_row_ + times * Q * C
    rho_row_ = from_uncovered + times * Q * C
    pi_row_ = rho_row_ + C * C
    sums_ = pi_row_ + C * C
    own = sums_ + C * Q
    balance = own + C
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    i = tl.arange(0, CP)
    c, r = i[:, None], tl.arange(0, QP)[None, :]
    a_, weight_ = tl.zeros((CP,), tl.float64), tl.zeros((1,), tl.float64)
    for back in range(0, n):
        t = n - back
        low = tl.maximum(t - window, 1)
        weight_ += tl.load(weight_cotangents + t - 1).to(tl.float64)
        cotangent, value, value_ = cotangents + (t - 1) * C * M, values + (t - 1) * M, values_ + (t - 1) * M
        _top_vectors_(E, E_, own, W, rho, a, cotangent, t, n, window, times, M, C, Q, S, CP, K, MB)
        tl.debug_barrier()
        W_row = W + t * Q * C * times
        pushed_ = _stays_(
            E, E_, R, R_, D_, pi, rho_row_, pi_row_, value, value_, t, n, window, times, M, Q, S, CP, K, MB
        )
        _uncovered_(E, E_, R, R_, W_row, W_row_, sums_, t, n, low, window, times, M, Q, S, QP, K, J)
        tl.debug_barrier()

        a_ += tl.load(own + i, mask=i < C, other=0.0)
        a_ = _balance(
            push_, repl_, balance, a_, weight_, pushed_, pi_row_, rho_row_, sums_, a, pi, rho, t, times, Q, S, QP, CP
        )
        tl.debug_barrier()

        if t > 1:
            row = t * Q * C * times
            _popped_slots_(
                R_ + row,
                D_ + row,
                W_row_,
                from_uncovered,
                G,
                pi,
                inverse + t * C,
                balance,
                t,
                low,
                times,
                Q,
                S,
                QP,
                K,
                J,
            )
            newest = row + (r * C + c) * times + t - 1
            real = (c < C) & (r < Q)
            pop_t_ = tl.load(R + newest, mask=real, other=0.0) * tl.load(R_ + newest, mask=real, other=0.0)
            tl.store(pop_ + ((t - 1) * C + c) * Q + r, pop_t_, mask=real)
            a_ += tl.sum(pop_t_, 1)
    if n > 0:
        _top_vectors_(E, E_, own, W, rho, a, cotangents, n * 0, n, window, times, M, 1, Q, S, CP, K, MB)
        tl.debug_barrier()
        for first in range(0, M, MB):
            m = first + tl.arange(0, MB)
            tl.store(bottom_ + m, tl.load(E_ + m, mask=m < M, other=0.0), mask=m < M)
