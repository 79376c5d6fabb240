// Equations (1) to (5) of DERIVATION.md, one step of some sequences at a time: see lanes.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "nondeterministic_stack/lanes.h"
#include "nondeterministic_stack/range.h"
#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/step_shares.h"

namespace lanes {

// Of each sequence: the bound of the loss of precision, see range.h.
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

}  // namespace lanes
