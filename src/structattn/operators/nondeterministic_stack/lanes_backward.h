// The gradients of lanes_forward.h, for falling t. Names are those of DERIVATION.md, with _ for the bar.
#pragma once

#include <algorithm>

#include "nondeterministic_stack/lanes.h"

namespace lanes {

// The gradients of one step: of the logits (C, C), (C, C), (C, Q), and of the pushed vector.
template <class F>
struct StepGradients {
    F *push, *repl, *pop, *value;
};

template <int Q, int S, int L>
class Backward {
    static constexpr int C = Q * S, SLOTS = Q * C;
    using F = Floats<L>;

public:
    // `adjoints` are cleared before the last step.
    Backward(const Tables<F> &tables, const Adjoints<F> &adjoints) : x(tables), at(tables.at), g(adjoints), M(tables.at.columns) {}

    // The gradients of step t and the adjoint of the tables up to t - 1, from that up to t and that of the readings (C, M).
    void step(int64_t t, const F *readings_, const StepGradients<F> &grad) const {
        F pushed_[C], lambda[C];
        add_readings(t, readings_);
        top_vectors(t, pushed_, grad.value);
        balance(t, pushed_, lambda);
        if (t > 1) uncovered(t, lambda);
        transitions(t, lambda, pushed_, grad);
        std::fill_n(grad.pop, C * Q, F{});
        if (t > 1) popped(t, lambda, grad.pop);
    }

private:
    const Tables<F> &x;
    const Layout &at;
    const Adjoints<F> &g;
    const int64_t M;

    void add_readings(int64_t t, const F *readings_) const {
        for (int64_t e = 0; e < C * M; ++e) {
            const F share = x.a[t * C + e / M] * readings_[e];
            g.E_[t * C * M + e] += share;
            g.a_[t * C + e / M] += share * x.E[t * C * M + e];
        }
    }

    // Contribution of the top vectors of t to the adjoints of the pushed vector and of the vectors of t - 1.
    void top_vectors(int64_t t, F *pushed_, F *value_) const {
        const F *pi = x.pi + t * C * C, *rho = x.rho + t * C * C, *value = x.values + t * M;
        const F *top_ = g.E_ + t * C * M, *before = x.E + (t - 1) * C * M;
        F *rho_ = g.rho_ + t * C * C, *before_ = g.E_ + (t - 1) * C * M;
        std::fill_n(value_, M, F{});
        for (int c = 0; c < C; ++c) {
            F pushed{};
            pushed_[c] = F{};
            for (int d = 0; d < C; ++d) pushed += pi[d * C + c];
            for (int64_t m = 0; m < M; ++m) pushed_[c] += top_[c * M + m] * value[m], value_[m] += pushed * top_[c * M + m];
            for (int d = 0; d < C; ++d) {
                F sum = rho_[d * C + c];
                for (int64_t m = 0; m < M; ++m) {
                    sum += top_[c * M + m] * before[d * M + m];
                    before_[d * M + m] += rho[d * C + c] * top_[c * M + m];
                }
                rho_[d * C + c] = sum;
            }
        }
    }

    // λ_t without the terms of pops
    void balance(int64_t t, const F *pushed_, F *lambda) const {
        F a_sum{};
        for (int c = 0; c < C; ++c) a_sum += g.a_[t * C + c];
        for (int c = 0; c < C; ++c) {
            lambda[c] = g.a_[t * C + c] - x.a[t * C + c] * a_sum;
            for (int d = 0; d < C; ++d) {
                const int64_t e = t * C * C + d * C + c;
                lambda[c] -= x.pi[e] * (g.pi_[e] + pushed_[c]) + x.rho[e] * g.rho_[e];
            }
        }
    }

    // W̄_t by j - 1, and its terms of λ_t.
    void uncovered(int64_t t, F *lambda) const {
        const F *later = x.R + at.cell(t, t + 1) * SLOTS;
        for (int64_t j = at.low(t); j < t; ++j) {
            const int64_t k = j - 1;
            F *W_ = g.uncovered_ + k * SLOTS;
            std::fill_n(W_, SLOTS, F{});
            if (k > 0) {
                const F *R_ = g.R_ + at.cell(k, t + 1) * SLOTS;
                add_products<Q, S, false, true>(
                    W_, at.last(k) - t, [=](int64_t n) { return R_ + n * SLOTS; }, [=](int64_t n) { return later + n * SLOTS; });
            }
            const F *W = x.W + at.cell(j, t) * SLOTS;
            uncovered_vectors(t, k, W, W_);
            for (int slot = 0; slot < SLOTS; ++slot) lambda[slot / C * S + slot % S] -= W[slot] * W_[slot];
        }
    }

    // (5) backwards for time k: W̄_t[k] += Ē_t E_k and Ē_k += W_t[k] Ē_t.
    void uncovered_vectors(int64_t t, int64_t k, const F *W, F *W_) const {
        const F *top_ = g.E_ + t * C * M;
        for (int c = 0; c < C; ++c) {
            const F *E = x.E + (k * C + c) * M;
            F *E_ = g.E_ + (k * C + c) * M;
            F sum[Q], factor[Q];
            for (int r = 0; r < Q; ++r) sum[r] = W_[r * C + c], factor[r] = W[r * C + c];
            for (int64_t m = 0; m < M; ++m) {
                F vector_ = E_[m];
                for (int r = 0; r < Q; ++r) {
                    const F of_top = top_[(r * S + c % S) * M + m];
                    sum[r] += of_top * E[m], vector_ += factor[r] * of_top;
                }
                E_[m] = vector_;
            }
            for (int r = 0; r < Q; ++r) W_[r * C + c] = sum[r];
        }
    }

    void transitions(int64_t t, const F *lambda, const F *pushed_, const StepGradients<F> &grad) const {
        for (int d = 0; d < C; ++d)
            for (int c = 0; c < C; ++c) {
                const int64_t e = t * C * C + d * C + c;
                grad.push[d * C + c] = x.pi[e] * (g.pi_[e] + pushed_[c] + lambda[c]);
                grad.repl[d * C + c] = x.rho[e] * (g.rho_[e] + lambda[c]);
                g.a_[(t - 1) * C + d] += grad.push[d * C + c] + grad.repl[d * C + c];
            }
    }

    // (2) and (1) backwards, and the gradients of the pops.
    void popped(int64_t t, const F *lambda, F *pop_) const {
        const int64_t low = at.low(t);
        for (int64_t j = low; j < t; ++j) {
            F *R_ = g.row_ + j * SLOTS;
            of_uncovered(t, j, lambda, R_);
            if (j > low) of_replacements(t, j, R_);
            add_products<Q, S, true, false>(
                R_, j - 1 - low, [&, low, j](int64_t n) { return x.W + at.cell(low + n + 1, j) * SLOTS; },
                [&, low](int64_t n) { return g.row_ + (low + n) * SLOTS; });
            std::copy_n(R_, SLOTS, g.R_ + at.cell(j, t) * SLOTS);
        }
        const F *R = x.R + at.cell(t - 1, t) * SLOTS, *R_ = g.row_ + (t - 1) * SLOTS;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) {
                pop_[c * Q + r] = R[r * C + c] * R_[r * C + c];
                g.a_[(t - 1) * C + c] += pop_[c * Q + r];
            }
    }

    // R̄_t[j] = π_j D̄_t[j - 1] and π̄_j += D̄_t[j - 1] R_t[j]
    void of_uncovered(int64_t t, int64_t j, const F *lambda, F *R_) const {
        const F *W_ = g.uncovered_ + (j - 1) * SLOTS, *R = x.R + at.cell(j, t) * SLOTS, *pi = x.pi + j * C * C;
        F *pi_ = g.pi_ + j * C * C;
        F D_[SLOTS];
        for (int slot = 0; slot < SLOTS; ++slot) {
            const int after = slot / C * S + slot % S;
            D_[slot] = (W_[slot] + lambda[after]) * x.inverse[t * C + after];
        }
        add_transposed(pi, D_, R, R_, pi_);
    }

    // R̄_t[j] += ρ_j R̄_t[j - 1] and ρ̄_j += R̄_t[j - 1] R_t[j]
    void of_replacements(int64_t t, int64_t j, F *R_) const {
        F sum[SLOTS];
        add_transposed(x.rho + j * C * C, R_ - SLOTS, x.R + at.cell(j, t) * SLOTS, sum, g.rho_ + j * C * C);
        for (int slot = 0; slot < SLOTS; ++slot) R_[slot] += sum[slot];
    }

    // The adjoints of y = stay x: x_ = stayᵀ y_ and stay_ += y_ xᵀ, with stay [from][to].
    static void add_transposed(const F *stay, const F *y_, const F *right, F *x_, F *stay_) {
        for (int d = 0; d < C; ++d) {
            F sum[Q] = {}, factor[Q];
            for (int r = 0; r < Q; ++r) factor[r] = right[r * C + d];
            for (int c = 0; c < C; ++c) {
                F of_stay = stay_[c * C + d];
                for (int r = 0; r < Q; ++r) sum[r] += stay[c * C + d] * y_[r * C + c], of_stay += y_[r * C + c] * factor[r];
                stay_[c * C + d] = of_stay;
            }
            for (int r = 0; r < Q; ++r) x_[r * C + d] = sum[r];
        }
    }
};

}  // namespace lanes
