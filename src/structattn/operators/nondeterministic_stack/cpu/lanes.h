// Tables of some sequences that take steps together: floats, with a lane of a vector for each sequence.
//
// No lane depends on the others, so that a sequence has the same results in any batch.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/scratch.h"
#include "common/vector.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/transitions.h"

namespace lanes {

// L sequences. With 16, more lanes would be empty, and the tables would leave the second-level cache.
constexpr int FEW = 4, MANY = 8;
template <int L>
using Floats = typename VectorOf<float, L>::Type;

// Slot (s, z, r) of a table over two times is component r * C + (s * S + z). Its cell (j, t) holds R_t[j] or W_t[j - 1]: an
// item of step j >= 1 that is popped at step t. The cells of one j are contiguous.
struct Layout {
    int64_t n, C, Q, columns, window;
    std::vector<int64_t> first;  // the number of the cell (j, j + 1)

    Layout(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window)
        : n(n), C(Q * S), Q(Q), columns(columns), window(std::min(window, n)), first(n + 2, 0) {
        for (int64_t j = 1; j <= n; ++j) first[j + 1] = first[j] + std::min(n - j, this->window);
    }
    int64_t slots() const { return Q * C; }
    int64_t cell(int64_t j, int64_t t) const { return first[j] + t - j - 1; }
    int64_t cells() const { return first[n + 1]; }
    // The earliest push that a pop at t can undo, and the last pop that can undo a push at j.
    int64_t low(int64_t t) const { return std::max<int64_t>(t - window, 1); }
    int64_t last(int64_t j) const { return std::min(n, j + window); }
};

// What the steps of the forward pass leave; R only for the way back.
template <class F>
struct Tables {
    const Layout &at;
    F *a, *inverse, *pi, *rho, *E, *values, *R, *W;
    F *row, *uncovered;  // R_t of the current step by j, and D_t or W_t by j - 1

    Tables(const Layout &at, Pieces<F> &memory, bool way_back)
        : at(at), a(memory.take((at.n + 1) * at.C)), inverse(memory.take((at.n + 1) * at.C)),
          pi(memory.take((at.n + 1) * at.C * at.C)), rho(memory.take((at.n + 1) * at.C * at.C)),
          E(memory.take((at.n + 1) * at.C * at.columns)), values(memory.take((at.n + 1) * at.columns)),
          R(way_back ? memory.take(at.cells() * at.slots()) : nullptr), W(memory.take(at.cells() * at.slots())),
          row(memory.take((at.n + 1) * at.slots())), uncovered(memory.take((at.n + 1) * at.slots())) {}
};

// Their adjoints.
template <class F>
struct Adjoints {
    F *a_, *pi_, *rho_, *E_, *R_, *row_, *uncovered_;

    Adjoints(const Layout &at, Pieces<F> &memory)
        : a_(memory.take((at.n + 1) * at.C)), pi_(memory.take((at.n + 1) * at.C * at.C)),
          rho_(memory.take((at.n + 1) * at.C * at.C)), E_(memory.take((at.n + 1) * at.C * at.columns)),
          R_(memory.take(at.cells() * at.slots())), row_(memory.take((at.n + 1) * at.slots())),
          uncovered_(memory.take((at.n + 1) * at.slots())) {}
    void clear(const Layout &at) const {
        std::fill_n(a_, (at.n + 1) * at.C, F{});
        std::fill_n(E_, (at.n + 1) * at.C * at.columns, F{});
        for (F *sums : {pi_, rho_}) std::fill_n(sums, (at.n + 1) * at.C * at.C, F{});
    }
};

// For each symbol z, slots (., z, .) of a cell are a matrix. Adds the products of the matrices of `count` pairs of cells, or of
// their transposes, to those of `sum`.
template <int Q, int S, bool TRANSPOSED_LEFT, bool TRANSPOSED_RIGHT, class F, class Left, class Right>
inline void add_products(F *sum, int64_t count, const Left &left, const Right &right) {
    constexpr int C = Q * S, TOGETHER = Q <= 2 ? S : 1;  // symbols whose sums stay in registers
    const auto slot = [](int row, int column, int z) { return column * C + row * S + z; };
    for (int first = 0; first < S; first += TOGETHER) {
        F x[TOGETHER][Q][Q];
        for (int z = 0; z < TOGETHER; ++z)
            for (int i = 0; i < Q; ++i)
                for (int k = 0; k < Q; ++k) x[z][i][k] = sum[slot(i, k, first + z)];
        for (int64_t n = 0; n < count; ++n) {
            const F *l = left(n), *r = right(n);
            for (int z = 0; z < TOGETHER; ++z)
                for (int m = 0; m < Q; ++m) {
                    F factor[Q];
                    for (int k = 0; k < Q; ++k) factor[k] = TRANSPOSED_RIGHT ? r[slot(k, m, first + z)] : r[slot(m, k, first + z)];
                    for (int i = 0; i < Q; ++i) {
                        const F other = TRANSPOSED_LEFT ? l[slot(m, i, first + z)] : l[slot(i, m, first + z)];
                        for (int k = 0; k < Q; ++k) x[z][i][k] += other * factor[k];
                    }
                }
        }
        for (int z = 0; z < TOGETHER; ++z)
            for (int i = 0; i < Q; ++i)
                for (int k = 0; k < Q; ++k) sum[slot(i, k, first + z)] = x[z][i][k];
    }
}

// Of each sequence: the bound of the loss of precision, see lost_after().
template <int L>
using Lost = std::array<double, L>;

template <int Q, int S, int L>
class Forward {
    static constexpr int C = Q * S, SLOTS = Q * C;
    using F = Floats<L>;

public:
    explicit Forward(const Tables<F> &tables) : x(tables), at(tables.at), M(tables.at.columns) {}

    // Time 0; values[0] is given. Columns of sequences that take no step are zeros.
    void start(Lost<L> &lost) const {
        for (F *by_time : {x.a, x.inverse}) std::fill_n(by_time, (at.n + 1) * C, F{});
        for (F *by_time : {x.pi, x.rho}) std::fill_n(by_time, (at.n + 1) * C * C, F{});
        std::fill_n(x.E, C * M, F{});
        x.a[0] = 1 - F{};
        std::copy_n(x.values, M, x.E);
        lost.fill(-INFINITY);
    }

    // Column t of all tables, and the readings (C, M); values[t] is given. trusted: the sequences that take this step; cleared
    // for each whose numbers may have left the range of floats: its column must not be used.
    void step(int64_t t, const StepLogits *logits, Lost<L> &lost, bool *trusted, F *readings) const {
        fast::StepWeights<Q, S> weights[L];
        double before[L][C];
        for (int i = 0; i < L; ++i) {
            if (!trusted[i]) continue;
            for (int c = 0; c < C; ++c) before[i][c] = x.a[(t - 1) * C + c][i];
            weights[i] = fast::StepWeights<Q, S>(logits[i], before[i]);
        }
        F popped[C] = {}, least = INFINITY - F{};
        if (t > 1) pop(t, weights, popped, least);
        double growth[L], smallest[L];
        for (int i = 0; i < L; ++i) {
            if (!trusted[i]) continue;
            const bool pops = weights[i].pops();
            double sums[C];
            for (int c = 0; c < C; ++c) sums[c] = pops ? popped[c][i] : 0;
            const fast::StepShares<Q, S> shares(weights[i], sums, before[i], smallest_share_of_floats);
            growth[i] = shares.growth;
            smallest[i] = pops ? std::min<double>(shares.smallest, least[i]) : shares.smallest;
            if (growth[i] == -INFINITY) continue;
            for (int c = 0; c < C; ++c) {
                x.a[t * C + c][i] = float(shares.a[c]);
                x.inverse[t * C + c][i] = float(shares.inverse[c]);
            }
            for (int e = 0; e < C * C; ++e) {
                x.pi[t * C * C + e][i] = float(shares.pushed[e]), x.rho[t * C * C + e][i] = float(shares.replaced[e]);
            }
        }
        least = INFINITY - F{};
        if (t > 1) divide_uncovered(t, least);
        for (int i = 0; i < L; ++i) {
            if (!trusted[i]) continue;
            if (weights[i].pops()) smallest[i] = std::min<double>(smallest[i], least[i]);
            const bool in_range = std::fabs(growth[i]) <= largest_growth_of_doubles;  // false for NaN
            if (in_range) lost[i] = lost_after(lost[i], logits[i], growth[i], !(smallest[i] >= smallest_share_of_floats));
            trusted[i] = in_range && lost[i] < largest_regrowth_of_floats;
        }
        top_vectors(t);
        for (int64_t e = 0; e < C * M; ++e) readings[e] = x.a[t * C + e / M] * x.E[t * C * M + e];
    }

private:
    const Tables<F> &x;
    const Layout &at;
    const int64_t M;

    // (1) and (2), with the sum of D_t for each configuration.
    void pop(int64_t t, const fast::StepWeights<Q, S> *weights, F *popped, F &least) const {
        for (int64_t j = t - 1; j >= at.low(t); --j) {
            F *slots = x.row + j * SLOTS;
            if (j == t - 1)
                for (int c = 0; c < C; ++c)
                    for (int r = 0; r < Q; ++r)
                        for (int i = 0; i < L; ++i)
                            slots[r * C + c][i] = weights[i].pops() ? float(weights[i].pop[c * Q + r]) : 0;
            else popped_later(t, j, slots);
            for (int slot = 0; slot < SLOTS; ++slot) least = slots[slot] < least ? slots[slot] : least;
            if (x.R) std::copy_n(slots, SLOTS, x.R + at.cell(j, t) * SLOTS);
            const F *pi = x.pi + j * C * C;
            F *D = x.uncovered + (j - 1) * SLOTS;
            for (int c = 0; c < C; ++c) {
                F sum[Q] = {};
                for (int d = 0; d < C; ++d)
                    for (int r = 0; r < Q; ++r) sum[r] += pi[c * C + d] * slots[r * C + d];
                for (int r = 0; r < Q; ++r) D[r * C + c] = sum[r], popped[r * S + c % S] += sum[r];
            }
        }
    }

    // R_t[j] for j < t - 1
    void popped_later(int64_t t, int64_t j, F *slots) const {
        const F *rho = x.rho + (j + 1) * C * C, *next = slots + SLOTS;
        for (int c = 0; c < C; ++c) {
            F sum[Q] = {};
            for (int d = 0; d < C; ++d)
                for (int r = 0; r < Q; ++r) sum[r] += rho[c * C + d] * next[r * C + d];
            for (int r = 0; r < Q; ++r) slots[r * C + c] = sum[r];
        }
        const F *W = x.W + at.cell(j + 1, j + 2) * SLOTS, *R = x.row + (j + 2) * SLOTS;
        add_products<Q, S, false, false>(
            slots, t - j - 2, [=](int64_t n) { return W + n * SLOTS; }, [=](int64_t n) { return R + n * SLOTS; });
    }

    // W_t from D_t
    void divide_uncovered(int64_t t, F &least) const {
        const F *inverse = x.inverse + t * C;
        for (int64_t j = at.low(t); j < t; ++j) {
            F *D = x.uncovered + (j - 1) * SLOTS;
            for (int slot = 0; slot < SLOTS; ++slot) {
                const F W = D[slot] * inverse[slot / C * S + slot % S], lower = D[slot] < W ? D[slot] : W;
                const bool possible = j > 1 || slot % C == 0;  // at time 0 there is only one configuration, the first
                if (possible) least = lower < least ? lower : least;
                D[slot] = W;
            }
            std::copy_n(D, SLOTS, x.W + at.cell(j, t) * SLOTS);
        }
    }

    // (5) for COUNT columns from m on: adds those of all pops that uncover symbol y.
    template <int COUNT>
    void add_uncovered(int64_t t, int y, int64_t m, F *top) const {
        F sum[Q][COUNT];
        for (int r = 0; r < Q; ++r)
            for (int i = 0; i < COUNT; ++i) sum[r][i] = top[(r * S + y) * M + m + i];
        for (int64_t k = at.low(t) - 1; k < t - 1; ++k)
            for (int u = 0; u < Q; ++u) {
                const F *W = x.uncovered + k * SLOTS + u * S + y, *E = x.E + (k * C + u * S + y) * M + m;
                for (int i = 0; i < COUNT; ++i)
                    for (int r = 0; r < Q; ++r) sum[r][i] += W[r * C] * E[i];
            }
        for (int r = 0; r < Q; ++r)
            for (int i = 0; i < COUNT; ++i) top[(r * S + y) * M + m + i] = sum[r][i];
    }

    void top_vectors(int64_t t) const {
        const F *pi = x.pi + t * C * C, *rho = x.rho + t * C * C, *value = x.values + t * M, *before = x.E + (t - 1) * C * M;
        F *top = x.E + t * C * M;
        for (int c = 0; c < C; ++c) {
            F pushed{};
            for (int d = 0; d < C; ++d) pushed += pi[d * C + c];
            for (int64_t m = 0; m < M; ++m) {
                F sum = pushed * value[m];
                for (int d = 0; d < C; ++d) sum += rho[d * C + c] * before[d * M + m];
                top[c * M + m] = sum;
            }
        }
        for (int y = 0; y < S && t > 1; ++y) {
            int64_t m = 0;
            for (; m + 5 <= M; m += 5) add_uncovered<5>(t, y, m, top);
            for (; m < M; ++m) add_uncovered<1>(t, y, m, top);
        }
    }
};

// The gradients, for falling t. Names are those of DERIVATION.md, with _ for the bar.

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
