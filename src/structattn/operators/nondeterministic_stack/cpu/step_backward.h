// The gradients of step_forward.h, one step at a time for falling t. Names are those of DERIVATION.md, with _ for the bar.
#pragma once

#include <algorithm>
#include <vector>

#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/step_forward.h"

namespace fast {

// Adjoint of the tables up to t from the steps after t. The adjoints of a state with several continuations can be added,
// except for the pending rows of R̄ that are not yet multiplied into W̄: call settle() first.
struct AdjointLayout {
    int64_t waiting, a_, E_, pi_, rho_, R_, W_, size;
    int64_t R_stride, R_size;

    AdjointLayout(const Layout &at) {
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t begin = end; end += padded(count); return begin; };
        R_stride = at.row_length(at.n) + 2 * LANES, R_size = at.slots() * R_stride;
        waiting = take(1);
        a_ = take((at.n + 1) * at.C);
        E_ = take(at.C * at.columns * at.times);
        pi_ = take(at.C * at.C * at.times);
        rho_ = take(at.C * at.C * at.times);
        R_ = take(BLOCK * R_size);
        W_ = take(at.rows_size());
        size = end;
    }
};

// Adds the adjoint of the tables up to t to that of a copy of them in another layout.
inline void add_adjoint(const Layout &at, const double *from, const Layout &to_at, double *to, int64_t t) {
    const AdjointLayout of(at), to_of(to_at);
    auto add = [&](int64_t begin, int64_t to_begin, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[to_begin + i] += from[begin + i];
    };
    auto add_times = [&](int64_t components, int64_t begin, int64_t to_begin) {
        for (int64_t i = 0; i < components; ++i) add(begin + i * at.times, to_begin + i * to_at.times, t + 1);
    };
    add(of.a_, to_of.a_, (t + 1) * at.C);
    add_times(at.C * at.columns, of.E_, to_of.E_);
    add_times(at.C * at.C, of.pi_, to_of.pi_);
    add_times(at.C * at.C, of.rho_, to_of.rho_);
    add(of.W_, to_of.W_, at.row[t + 1] * at.slots());
}

// The gradients of one step.
struct StepGradients {
    double *push, *repl, *pop, *value;  // value is accumulated
};

template <int Q, int S>
class Backward {
    static constexpr int C = Q * S, SLOTS = Q * C;

public:
    // Working memory of step().
    static int64_t room(const Layout &at) {
        return SLOTS * reversed_stride(at) + (at.n + 2) * Q * at.width + C * at.columns + BLOCK * Q * at.width;
    }

    // `tables` as Forward left them; `mirror`: see mirror_tables(); `adjoint` holds zeros before the last step.
    Backward(const Sequence &seq, const Layout &at, const AdjointLayout &of, const double *tables, double *mirror,
             double *adjoint, double *room)
        : seq(seq), at(at), M(at.columns), R_stride(of.R_stride), R_size(of.R_size), a(tables + at.a),
          inverse(tables + at.inverse), pi(tables + at.pi), rho(tables + at.rho), E(tables + at.E),
          R{const_cast<double *>(tables) + at.R, &at}, W{const_cast<double *>(tables) + at.W, &at}, mirror{mirror, &at},
          waiting(adjoint + of.waiting), a_(adjoint + of.a_), E_(adjoint + of.E_), pi_(adjoint + of.pi_),
          rho_(adjoint + of.rho_), R_(adjoint + of.R_), W_{adjoint + of.W_, &at}, reversed(room),
          done(reversed + SLOTS * reversed_stride(at)), top_(done + (at.n + 2) * Q * at.width), factors(top_ + C * M) {}

    // Adds to `mirror` the rows first..last of W. The transposed system, with time reversed (j' = n - j), has the same
    // form as the forward one.
    void mirror_tables(int64_t first, int64_t last) const {
        for (int64_t k = std::max<int64_t>(first, 2); k <= last; ++k)
            for (int s = 0; s < Q; ++s)
                for (int u = 0; u < Q; ++u)
                    for (int z = 0; z < S; ++z) {
                        const double *from = W.row(k) + (u * C + s * S + z) * W.stride(k);
                        for (int64_t j = at.low(k); j <= k - 2; ++j)
                            mirror.row(at.n - j)[(s * C + u * S + z) * mirror.stride(at.n - j) + at.n - k] = from[j];
                    }
    }

    // Computes the gradients of step t and the adjoint of the tables up to t - 1 from the adjoint of the tables up to t
    // and that of the reading (null: zeros).
    void step(int64_t t, const double *reading_, const StepGradients &grad) {
        double lambda[C], pushed_[C];
        if (reading_) add_reading(t, reading_);
        top_vectors(t, pushed_, grad);
        if (t >= 2) {
            multiply_waiting(t, t);
            uncovered_vectors(t);
        }
        balance(t, pushed_, lambda);
        transitions(t, lambda, pushed_, grad);
        if (t < 2) return;
        double *row_ = popped_slots(t, lambda);
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) {
                const double pop_ = R.row(t)[(r * C + c) * R.stride(t) + t - 1] * row_[(r * C + c) * R_stride + t - 1];
                grad.pop[c * Q + r] = pop_;
                a_[(t - 1) * C + c] += pop_;
            }
        if (*waiting == BLOCK) settle(t - 1);
    }

    // Multiplies the pending rows of R̄ of the steps after t into W̄.
    void settle(int64_t t) {
        for (int64_t k = at.low(t + 1) + 2; k <= t; ++k) multiply_waiting(t, k);
        *waiting = 0;
    }

private:
    const Sequence &seq;
    const Layout &at;
    const int64_t M, R_stride, R_size;
    const double *const a, *const inverse, *const pi, *const rho, *const E;
    const TableRows R, W, mirror;
    double *const waiting, *const a_, *const E_, *const pi_, *const rho_, *const R_;
    const TableRows W_;
    double *const reversed, *const done, *const top_, *const factors;

    static int64_t reversed_stride(const Layout &at) { return at.times + 2 * LANES; }

    // The (possibly virtual) position of time 0 of component 0 of R̄_t, for a pending or current row.
    double *R_row(int64_t t) const { return R_ + t % BLOCK * R_size + LANES - at.first(t); }

    void add_reading(int64_t t, const double *reading_) {
        for (int64_t i = 0; i < C * M; ++i) {
            const double share = a[t * C + i / M] * reading_[i];
            E_[i * at.times + t] += share;
            a_[t * C + i / M] += share * E[i * at.times + t];
        }
    }

    // Contribution of the top vectors of t to the adjoints of the pushed vector and of the vectors of t - 1.
    void top_vectors(int64_t t, double *pushed_, const StepGradients &grad) {
        for (int c = 0; c < C; ++c) {
            double pushed = 0;
            pushed_[c] = 0;
            for (int d = 0; d < C; ++d) pushed += pi[(d * C + c) * at.times + t];
            for (int64_t m = 0; m < M; ++m) {
                const double top_ = E_[(c * M + m) * at.times + t];
                pushed_[c] += top_ * seq.value(t, m);
                grad.value[m] += pushed * top_;
                for (int d = 0; d < C; ++d) {
                    rho_[(d * C + c) * at.times + t] += top_ * E[(d * M + m) * at.times + t - 1];
                    E_[(d * M + m) * at.times + t - 1] += rho[(t * C + d) * at.width + c] * top_;
                }
            }
        }
    }

    // W̄_k[j] from the pending pops after t: Σ_{t' > t} Σ_r R̄_t'[j] R_t'[k].
    void multiply_waiting(int64_t t, int64_t k) {
        const int count = int(*waiting);
        const int64_t begin = at.first(t + 1), end = k - 1;
        if (count == 0 || begin >= end) return;
        const double *rows[BLOCK] = {}, *x[BLOCK] = {};
        int64_t strides[BLOCK] = {};
        for (int i = 0; i < count; ++i) {
            const int64_t later = t + 1 + i;
            const double *slot = R.row(later) + k;
            double *factor = factors + i * Q * at.width;
            for (int r = 0; r < Q; ++r)
                for (int u = 0; u < Q; ++u)
                    for (int z = 0; z < S; ++z)
                        factor[u * at.width + r * S + z] = slot[(r * C + u * S + z) * R.stride(later)];
            rows[i] = R_row(later), strides[i] = R_stride, x[i] = factor;
        }
        add_products_of<Q, S>(count, W_.row(k), W_.stride(k), rows, strides, x, at.width, begin, end);
    }

    // (5) backwards: W̄_t += Ē_t E_k and Ē_k += W_t Ē_t. The record of E goes on after t, with the steps of any branch.
    void uncovered_vectors(int64_t t) {
        const int64_t stride = W.stride(t);
        const V end = splat(double(t - 1));
        double *row_ = W_.row(t);
        for (int64_t i = 0; i < C * M; ++i) top_[i] = E_[i * at.times + t];
        for (int c = 0; c < C; ++c)
            for (int64_t m = 0; m < M; ++m) {
                const double *value = E + (c * M + m) * at.times;
                double *value_ = E_ + (c * M + m) * at.times;
                for (int64_t k = at.first(t); k < t - 1; k += VL) {
                    const V earlier = lane_numbers() + splat(double(k)) < end ? load(value + k) : V{};
                    V sum = load(value_ + k);
                    for (int r = 0; r < Q; ++r) {
                        double *to = row_ + (r * C + c) * stride + k;
                        const V factor = splat(top_[(r * S + c % S) * M + m]);
                        store(to, load(to) + factor * earlier);
                        sum += load(W.row(t) + (r * C + c) * stride + k) * factor;
                    }
                    store(value_ + k, sum);
                }
            }
    }

    // λ_t
    void balance(int64_t t, const double *pushed_, double *lambda) {
        double a_sum = 0;
        for (int c = 0; c < C; ++c) a_sum += a_[t * C + c];
        for (int c = 0; c < C; ++c) {
            lambda[c] = a_[t * C + c] - a[t * C + c] * a_sum;
            for (int d = 0; d < C; ++d) {
                const int64_t i = (d * C + c) * at.times + t;
                lambda[c] -= pi[i] * (pi_[i] + pushed_[c]) + rho[(t * C + d) * at.width + c] * rho_[i];
            }
        }
        for (int slot = 0; slot < SLOTS && t >= 2; ++slot) {
            const double *row = W.row(t) + slot * W.stride(t), *row_ = W_.row(t) + slot * W.stride(t);
            V sum{};
            for (int64_t k = at.first(t); k < t - 1; k += VL) sum += load(row + k) * load(row_ + k);
            lambda[slot / C * S + slot % S] -= sum_lanes(sum);
        }
    }

    void transitions(int64_t t, const double *lambda, const double *pushed_, const StepGradients &grad) {
        for (int d = 0; d < C; ++d)
            for (int c = 0; c < C; ++c) {
                const int64_t i = (d * C + c) * at.times + t;
                const double push_ = pi[i] * (pi_[i] + pushed_[c] + lambda[c]);
                const double repl_ = rho[(t * C + d) * at.width + c] * (rho_[i] + lambda[c]);
                grad.push[d * C + c] = push_;
                grad.repl[d * C + c] = repl_;
                a_[(t - 1) * C + d] += push_ + repl_;
            }
    }

    // (2) and (1) backwards; adds R̄_t to the pending rows.
    double *popped_slots(int64_t t, const double *lambda) {
        // Time j of R̄_t is stored at n - j + LANES in `reversed`, so that vectors beyond an end stay inside the array.
        const int64_t n = at.n, stride = reversed_stride(at), first = at.first(t), low = at.low(t);
        const int64_t top = n - low, end = n - (t - 1);
        double *row = reversed + LANES, *to = R_row(t);
        uncovered(t, lambda);
        for (int slot = 0; slot < SLOTS; ++slot)
            done[top * Q * at.width + slot / C * at.width + slot % C] = row[slot * stride + top];
        triangular_solve<Q, S>(row, stride, top, end, mirror, rho + (n + 1) * C * at.width, -C * at.width, done, at.width);
        std::fill_n(to - LANES + first, R_size, 0.0);
        for (int slot = 0; slot < SLOTS; ++slot)
            for (int64_t j = low; j < t; ++j)
                to[slot * R_stride + j] = done[(n - j) * Q * at.width + slot / C * at.width + slot % C];
        add_replacements_(t, to);
        *waiting += 1;
        return to;
    }

    void uncovered(int64_t t, const double *lambda) {
        const int64_t stride = R.stride(t), n = at.n;
        const V low = splat(double(at.low(t) - 1)), end = splat(double(t - 1));
        for (int64_t k = at.first(t); k < t - 1; k += VL) {
            const V time = lane_numbers() + splat(double(k));
            const VI inside = (time >= low) & (time < end);
            V D_[Q][C], slot[Q][C], slot_[Q][C] = {};
            for (int r = 0; r < Q; ++r)
                for (int c = 0; c < C; ++c) {
                    const int after = r * S + c % S;
                    const V sum = load(W_.row(t) + (r * C + c) * stride + k) + splat(lambda[after]);
                    D_[r][c] = inside ? sum * splat(inverse[t * C + after]) : V{};
                    slot[r][c] = load(R.row(t) + (r * C + c) * stride + k + 1);
                }
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < C; ++d) {
                    const int64_t i = (c * C + d) * at.times + k + 1;
                    const V share = load(pi + i);
                    V share_ = load(pi_ + i);
                    for (int r = 0; r < Q; ++r) {
                        slot_[r][d] += share * D_[r][c];
                        share_ += D_[r][c] * slot[r][d];
                    }
                    store(pi_ + i, share_);
                }
            for (int r = 0; r < Q; ++r)
                for (int d = 0; d < C; ++d) {
                    // Times k + 1 .. k + VL, backwards; those outside hold zeros and are overwritten or never used.
                    double *to = reversed + LANES + (r * C + d) * reversed_stride(at) + n - k - VL;
                    for (int i = 0; i < VL; ++i) to[i] = slot_[r][d][VL - 1 - i];
                }
        }
    }

    // ρ̄_k += R̄_t[k - 1] R_t[k]
    void add_replacements_(int64_t t, const double *row_) {
        const int64_t stride = R.stride(t);
        for (int64_t k = at.first(t); k < t; k += VL) {
            V slot[Q][C], slot_[Q][C];
            for (int r = 0; r < Q; ++r)
                for (int c = 0; c < C; ++c) {
                    slot[r][c] = load(R.row(t) + (r * C + c) * stride + k);
                    slot_[r][c] = load(row_ + (r * C + c) * R_stride + k - 1);
                }
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < C; ++d) {
                    double *to = rho_ + (c * C + d) * at.times + k;
                    V sum = load(to);
                    for (int r = 0; r < Q; ++r) sum += slot_[r][c] * slot[r][d];
                    store(to, sum);
                }
        }
    }
};

}  // namespace fast
