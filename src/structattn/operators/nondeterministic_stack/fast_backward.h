// The gradients of fast_forward.h, walking t downwards. Names are those of DERIVATION.md, with _ for the bar.
#pragma once

#include <algorithm>
#include <vector>

#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/tables.h"
#include "nondeterministic_stack/triangular_solve.h"

namespace fast {

template <int Q, int S>
class Backward {
    static constexpr int C = Q * S, SLOTS = Q * C;
    static constexpr int ROWS = Q <= 2 ? 4 : 2;  // rows of W̄ that share one pass over R̄: their sums fill the registers

public:
    // `tables` as Forward left them; n, the steps to go back over, may be less than the sequence's.
    Backward(const Sequence &seq, const Layout &at, double *tables, int64_t n)
        : seq(seq), at(at), n(n), M(at.columns), a(tables + at.a), inverse(tables + at.inverse), pi(tables + at.pi),
          rho(tables + at.rho), E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, a_((n + 1) * C),
          E_(C * M * at.times), pi_(C * C * at.times), rho_(C * C * at.times), R_memory(at.rows_size()),
          mirror_memory(at.rows_size()), W_stride(at.times), W_size(SLOTS * W_stride), W_(ROWS * W_size), reversed(SLOTS * (at.times + 2 * LANES)),
          mirror_rho((n + 2) * C * at.width), done((n + 2) * Q * at.width), R_{R_memory.data(), &at},
          mirror{mirror_memory.data(), &at} {}

    void run(const Cotangents &cot, const Gradients &grad) {
        start(cot);
        mirror_tables();
        double weight_ = 0;
        for (int64_t t = n; t >= 1; --t) {
            weight_ += cot.log_weight[t - 1];
            back(t, weight_, grad);
        }
        for (int64_t m = 0; m < M && grad.values; ++m) grad.values[m] += E_[m * at.times];
    }

private:
    const Sequence &seq;
    const Layout &at;
    const int64_t n, M;
    const double *const a, *const inverse, *const pi, *const rho, *const E;
    const Rows R, W;
    std::vector<double> a_, E_, pi_, rho_, R_memory, mirror_memory;
    const int64_t W_stride, W_size;
    std::vector<double> W_, reversed, mirror_rho, done, factors;
    const Rows R_, mirror;

    void start(const Cotangents &cot) {
        for (int64_t t = 1; t <= n; ++t)
            for (int64_t i = 0; i < C * M; ++i) {
                const double share = a[t * C + i / M] * cot.readings[(t - 1) * C * M + i];
                E_[i * at.times + t] = share;
                a_[t * C + i / M] += share * E[i * at.times + t];
            }
    }

    // The transposed system, with time reversed (j' = n - j), has the very shape of the forward one.
    void mirror_tables() {
        for (int64_t k = 2; k <= n; ++k)
            for (int s = 0; s < Q; ++s)
                for (int u = 0; u < Q; ++u)
                    for (int z = 0; z < S; ++z) {
                        const double *from = W.row(k) + (u * C + s * S + z) * Rows::stride(k);
                        for (int64_t j = 1; j <= k - 2; ++j)
                            mirror.row(n - j)[(s * C + u * S + z) * Rows::stride(n - j) + n - k] = from[j];
                    }
        for (int64_t k = 2; k <= n; ++k)  // ρ_k leads from k - 1 to k, that is from n - k + 1 to n - k
            std::copy_n(rho + k * C * at.width, C * at.width, &mirror_rho[(n - k + 1) * C * at.width]);
    }

    void back(int64_t t, double weight_, const Gradients &grad) {
        double lambda[C], pushed_[C];
        top_vectors(t, pushed_, grad);
        if (t >= 2) uncovered_later(t);
        if (t >= 2) uncovered_vectors(t);
        balance(t, weight_, pushed_, lambda);
        transitions(t, lambda, pushed_, grad);
        if (t < 2) return;
        popped_slots(t, lambda);
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) {
                const int64_t slot = (r * C + c) * Rows::stride(t) + t - 1;
                const double pop_ = R.row(t)[slot] * R_.row(t)[slot];
                grad.pop[((t - 1) * C + c) * Q + r] = pop_;
                a_[(t - 1) * C + c] += pop_;
            }
    }

    // What the top vectors of t ask of the pushed vector and of the vectors of t - 1.
    void top_vectors(int64_t t, double *pushed_, const Gradients &grad) {
        const int64_t reach = seq.values ? M : std::min(M, t + 1);
        for (int c = 0; c < C; ++c) {
            double pushed = 0;
            pushed_[c] = 0;
            for (int d = 0; d < C; ++d) pushed += pi[(d * C + c) * at.times + t];
            for (int64_t m = 0; m < reach; ++m) {
                const double top_ = E_[(c * M + m) * at.times + t];
                pushed_[c] += top_ * seq.value(t, m);
                if (grad.values) grad.values[t * M + m] += pushed * top_;
                for (int d = 0; d < C; ++d) {
                    rho_[(d * C + c) * at.times + t] += top_ * E[(d * M + m) * at.times + t - 1];
                    E_[(d * M + m) * at.times + t - 1] += rho[(t * C + d) * at.width + c] * top_;
                }
            }
        }
    }

    double *W_row(int64_t t) { return &W_[t % ROWS * W_size]; }

    // W̄_t[j] from all later pops that went through it: Σ_{t' > t} Σ_r R̄_t'[j] R_t'[t]. The rows of R̄ from behind the
    // block of t are read once for the whole block, those inside it for each t.
    void uncovered_later(int64_t t) {
        const int64_t bottom = t / ROWS * ROWS, behind = std::min(bottom + ROWS, n + 1);
        if (t == behind - 1) {
            std::fill(W_.begin(), W_.end(), 0.0);
            add_outer_products<ROWS>(bottom, t, behind, n + 1);
        } else {
            add_outer_products<1>(t, t, t + 1, behind);
        }
    }

    // Rows first .. first + COUNT - 1 of W̄ from R̄_t' with begin <= t' < end; `longest` is the last row that is needed.
    template <int COUNT>
    void add_outer_products(int64_t first, int64_t longest, int64_t begin, int64_t end) {
        factors.resize((n + 1) * SLOTS * COUNT);
        double *factor = factors.data();
        for (int64_t later = begin; later < end; ++later)
            for (int slot = 0; slot < SLOTS; ++slot)
                for (int i = 0; i < COUNT; ++i) *factor++ = R.row(later)[slot * Rows::stride(later) + first + i];
        for (int z = 0; z < S; ++z)
            for (int64_t j = 0; j < longest - 1; j += VL) add_outer_product<COUNT>(first, begin, end, z, j);
    }

    template <int COUNT>
    void add_outer_product(int64_t first, int64_t begin, int64_t end, int z, int64_t j) {
        V sum[COUNT][Q][Q];
        auto to = [&](int i, int u, int s) { return W_row(first + i) + (u * C + s * S + z) * W_stride + j; };
        for (int i = 0; i < COUNT; ++i)
            for (int u = 0; u < Q; ++u)
                for (int s = 0; s < Q; ++s) sum[i][u][s] = load(to(i, u, s));
        const double *factor = factors.data() + z * COUNT;
        for (int64_t later = begin; later < end; ++later, factor += SLOTS * COUNT) {
            const double *row = R_.row(later) + z * Rows::stride(later) + j;
            for (int r = 0; r < Q; ++r) {
                V slot_[Q];
                for (int s = 0; s < Q; ++s) slot_[s] = load(row + (r * C + s * S) * Rows::stride(later));
                for (int u = 0; u < Q; ++u)
                    for (int i = 0; i < COUNT; ++i) {
                        const V share = splat(factor[(r * C + u * S) * COUNT + i]);
                        for (int s = 0; s < Q; ++s) sum[i][u][s] += slot_[s] * share;
                    }
            }
        }
        for (int i = 0; i < COUNT; ++i)
            for (int u = 0; u < Q; ++u)
                for (int s = 0; s < Q; ++s) store(to(i, u, s), sum[i][u][s]);
    }

    // (5) backwards: W̄_t += Ē_t E_k and Ē_k += W_t Ē_t.
    void uncovered_vectors(int64_t t) {
        const int64_t stride = Rows::stride(t), reach = seq.values ? M : std::min(M, t + 1);
        std::vector<double> top_(C * M);
        double *row_ = W_row(t);
        for (int64_t i = 0; i < C * M; ++i) top_[i] = E_[i * at.times + t];
        for (int c = 0; c < C; ++c)
            for (int64_t m = 0; m < reach; ++m) {
                const double *value = E + (c * M + m) * at.times;
                double *value_ = &E_[(c * M + m) * at.times];
                for (int64_t k = seq.first_time(m) / VL * VL; k < t - 1; k += VL) {
                    V sum = load(value_ + k);
                    for (int r = 0; r < Q; ++r) {
                        double *to = row_ + (r * C + c) * W_stride + k;
                        const V factor = splat(top_[(r * S + c % S) * M + m]);
                        store(to, load(to) + factor * load(value + k));
                        sum += load(W.row(t) + (r * C + c) * stride + k) * factor;
                    }
                    store(value_ + k, sum);
                }
            }
    }

    // λ_t
    void balance(int64_t t, double weight_, const double *pushed_, double *lambda) {
        double a_sum = 0;
        for (int c = 0; c < C; ++c) a_sum += a_[t * C + c];
        for (int c = 0; c < C; ++c) {
            lambda[c] = a_[t * C + c] + a[t * C + c] * (weight_ - a_sum);
            for (int d = 0; d < C; ++d) {
                const int64_t i = (d * C + c) * at.times + t;
                lambda[c] -= pi[i] * (pi_[i] + pushed_[c]) + rho[(t * C + d) * at.width + c] * rho_[i];
            }
        }
        for (int slot = 0; slot < SLOTS && t >= 2; ++slot) {
            V sum{};
            for (int64_t k = 0; k < t - 1; k += VL)
                sum += load(W.row(t) + slot * Rows::stride(t) + k) * load(W_row(t) + slot * W_stride + k);
            lambda[slot / C * S + slot % S] -= sum_lanes(sum);
        }
    }

    void transitions(int64_t t, const double *lambda, const double *pushed_, const Gradients &grad) {
        for (int d = 0; d < C; ++d)
            for (int c = 0; c < C; ++c) {
                const int64_t i = (d * C + c) * at.times + t;
                const double push_ = pi[i] * (pi_[i] + pushed_[c] + lambda[c]);
                const double repl_ = rho[(t * C + d) * at.width + c] * (rho_[i] + lambda[c]);
                grad.push[((t - 1) * C + d) * C + c] = push_;
                grad.repl[((t - 1) * C + d) * C + c] = repl_;
                a_[(t - 1) * C + d] += push_ + repl_;
            }
    }

    // (2) and (1) backwards; leaves R̄_t.
    void popped_slots(int64_t t, const double *lambda) {
        // Time j of R̄_t stands at n - j + LANES in `reversed`: vectors that reach over an end stay inside.
        const int64_t stride = at.times + 2 * LANES;
        uncovered(t, lambda, stride);
        double *row = reversed.data() + LANES;
        const int64_t top = n - 1, low = n - (t - 1);
        for (int slot = 0; slot < SLOTS; ++slot)
            done[top * Q * at.width + slot / C * at.width + slot % C] = row[slot * stride + top];
        triangular_solve<Q, S>(row, stride, top, low, mirror, mirror_rho.data(), done.data(), at.width);
        double *to = R_.row(t);
        for (int slot = 0; slot < SLOTS; ++slot)
            for (int64_t j = 1; j < t; ++j)
                to[slot * Rows::stride(t) + j] = done[(n - j) * Q * at.width + slot / C * at.width + slot % C];
        add_replacements_(t);
    }

    void uncovered(int64_t t, const double *lambda, int64_t reversed_stride) {
        const int64_t stride = Rows::stride(t);
        const V lanes = lane_numbers();
        for (int64_t k = 0; k < t - 1; k += VL) {
            const VI inside = lanes < splat(double(t - 1 - k));
            V D_[Q][C], slot[Q][C], slot_[Q][C] = {};
            for (int r = 0; r < Q; ++r)
                for (int c = 0; c < C; ++c) {
                    const int after = r * S + c % S;
                    const V sum = load(W_row(t) + (r * C + c) * W_stride + k) + splat(lambda[after]);
                    D_[r][c] = inside ? sum * splat(inverse[t * C + after]) : V{};
                    slot[r][c] = load(R.row(t) + (r * C + c) * stride + k + 1);
                }
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < C; ++d) {
                    const int64_t i = (c * C + d) * at.times + k + 1;
                    const V share = load(pi + i);
                    V share_ = load(&pi_[i]);
                    for (int r = 0; r < Q; ++r) {
                        slot_[r][d] += share * D_[r][c];
                        share_ += D_[r][c] * slot[r][d];
                    }
                    store(&pi_[i], share_);
                }
            for (int r = 0; r < Q; ++r)
                for (int d = 0; d < C; ++d) {
                    // Times k + 1 .. k + VL, backwards; those past t - 1 hold zeros and are written over or never read.
                    double *to = reversed.data() + LANES + (r * C + d) * reversed_stride + n - k - VL;
                    for (int i = 0; i < VL; ++i) to[i] = slot_[r][d][VL - 1 - i];
                }
        }
    }

    // ρ̄_k += R̄_t[k - 1] R_t[k]
    void add_replacements_(int64_t t) {
        const int64_t stride = Rows::stride(t);
        const double *from = R_.row(t) - 1;
        for (int64_t k = 0; k < t; k += VL) {
            V slot[Q][C], slot_[Q][C];
            for (int r = 0; r < Q; ++r)
                for (int c = 0; c < C; ++c) {
                    slot[r][c] = load(R.row(t) + (r * C + c) * stride + k);
                    slot_[r][c] = load(from + (r * C + c) * stride + k);
                }
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < C; ++d) {
                    double *to = &rho_[(c * C + d) * at.times + k];
                    V sum = load(to);
                    for (int r = 0; r < Q; ++r) sum += slot_[r][c] * slot[r][d];
                    store(to, sum);
                }
        }
    }
};

}  // namespace fast
