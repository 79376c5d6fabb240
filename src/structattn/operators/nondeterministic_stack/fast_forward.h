// Equations (1) to (5) of DERIVATION.md in double precision, one step at a time, vectorized over time, for compile-time
// Q and S.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "nondeterministic_stack/range.h"
#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/step_shares.h"
#include "nondeterministic_stack/step_weights.h"
#include "nondeterministic_stack/tables.h"
#include "nondeterministic_stack/triangular_solve.h"

namespace fast {

template <int Q, int S>
class Forward {
    static constexpr int C = Q * S, SLOTS = Q * C;

public:
    // Working memory of step().
    static int64_t room(const Layout &at) { return (at.n + 2) * Q * at.width + C * at.columns; }

    Forward(const Sequence &seq, const Layout &at, double *tables, double *room)
        : seq(seq), at(at), a(tables + at.a), inverse(tables + at.inverse), lost(tables + at.lost),
          log_total(tables + at.log_total), pi(tables + at.pi), rho(tables + at.rho), solve_rho(tables + at.solve_rho),
          E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, top(room), done(room + C * at.columns) {}

    // Time 0.
    void start() const {
        std::fill_n(pi, C * C * at.times, 0.0);
        std::fill_n(E, C * at.columns * at.times, 0.0);
        std::fill_n(a, C, 0.0);
        a[0] = 1, lost[0] = -INFINITY, log_total[0] = 0;
        for (int64_t c = 0; c < at.columns; ++c) E[c * at.times] = seq.value(0, c);
        R.clear_around(), W.clear_around();
    }

    // Column t of all tables, and the reading [Q][S][columns]. False where the total is zero or out of range, or if
    // too much precision may have been lost: then column t must not be used.
    bool step(int64_t t, double *reading) {
        const double growth = transitions(t);
        if (!(std::fabs(growth) <= largest_growth_of_doubles)) return false;
        lost[t] = lost_after(lost[t - 1], seq.step(t), growth, smallest < smallest_share);
        log_total[t] = log_total[t - 1] + growth;
        if (lost[t] >= largest_regrowth) return false;
        top_vectors(t);
        for (int64_t i = 0; i < C * at.columns; ++i) reading[i] = a[t * C + i / at.columns] * E[i * at.times + t];
        return true;
    }

    Outcome run(const Outputs &out) {
        start();
        for (int64_t t = 1; t <= seq.n; ++t) {
            if (!step(t, out.readings + (t - 1) * C * at.columns)) return {t - 1, false};
            out.log_weight[t - 1] = log_total[t];
        }
        return {seq.n, true};
    }

private:
    const Sequence &seq;
    const Layout &at;
    double *const a, *const inverse, *const lost, *const log_total, *const pi, *const rho, *const solve_rho, *const E;
    const Rows R, W;
    double *const top, *const done;
    double smallest = 0;  // of the numbers written by this step that are not zero by construction

    // (1) to (4); log Σ α_t.
    double transitions(int64_t t) {
        const StepWeights<Q, S> weights(seq.step(t), a + (t - 1) * C);
        double popped[C] = {};
        smallest = INFINITY;
        R.clear(t), W.clear(t);
        if (weights.pops()) {
            popped_slots(t, weights);
            uncovered(t, popped);
        }
        return normalise(t, weights, popped);
    }

    // (1)
    void popped_slots(int64_t t, const StepWeights<Q, S> &weights) {
        constexpr int PARTS = (C + VL - 1) / VL;
        double *first = done + (t - 1) * Q * at.width;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) first[r * at.width + c] = weights.pop[c * Q + r];
        const int64_t stride = R.stride(t), low = at.low(t);
        double *row = R.row(t);
        triangular_solve<Q, S>(row, stride, t - 1, low, W, solve_rho, C * at.width, done, at.width);
        V least = splat(smallest);
        for (int r = 0; r < Q; ++r)
            for (int p = 0; p < PARTS; ++p) {
                const VI real = lane_numbers() < splat(C - p * VL);
                for (int64_t j = low; j < t; ++j) {
                    const V x = load(done + (j * Q + r) * at.width + p * VL);
                    least = real & (x < least) ? x : least;
                }
            }
        smallest = least_lane(least);
        for (int r = 0; r < Q; ++r)
            for (int c = 0; c < C; ++c) {
                double *to = row + (r * C + c) * stride;
                const double *from = done + r * at.width + c;
                std::fill(to + at.first(t), to + low, 0.0);
                for (int64_t j = low; j < t; ++j) to[j] = from[j * Q * at.width];
                std::fill(to + t, to + at.first(t) + stride, 0.0);
            }
    }

    // (2): D_t, left in W's row, and its sum for each configuration.
    void uncovered(int64_t t, double *popped) {
        const int64_t stride = R.stride(t);
        const double *from = R.row(t) + 1;
        double *to = W.row(t);
        V sum[C] = {};
        for (int64_t k = at.first(t); k < t - 1; k += VL) {
            V slot[Q][C];
            for (int r = 0; r < Q; ++r)
                for (int d = 0; d < C; ++d) slot[r][d] = load(from + (r * C + d) * stride + k);
            for (int c = 0; c < C; ++c) {
                V D[Q] = {};
                for (int d = 0; d < C; ++d) {
                    const V share = load(pi + (c * C + d) * at.times + k + 1);
                    for (int r = 0; r < Q; ++r) D[r] += share * slot[r][d];
                }
                for (int r = 0; r < Q; ++r) {
                    store(to + (r * C + c) * stride + k, D[r]);
                    sum[r * S + c % S] += D[r];
                }
            }
        }
        for (int c = 0; c < C; ++c) popped[c] = sum_lanes(sum[c]);
    }

    // (3) and (4); log Σ α_t.
    double normalise(int64_t t, const StepWeights<Q, S> &weights, const double *popped) {
        const StepShares<Q, S> shares(weights, popped, a + (t - 1) * C, smallest_share);
        if (shares.growth == -INFINITY) return shares.growth;
        smallest = std::min(smallest, shares.smallest);
        std::copy_n(shares.a, C, a + t * C), std::copy_n(shares.inverse, C, inverse + t * C);
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < C; ++d) {
                pi[(c * C + d) * at.times + t] = shares.pushed[c * C + d];
                rho[(t * C + c) * at.width + d] = shares.replaced[c * C + d];
                solve_rho[(t * C + d) * at.width + c] = shares.replaced[c * C + d];
            }
        if (weights.pops()) divide_uncovered(t);
        return shares.growth;
    }

    // W_t from D_t
    void divide_uncovered(int64_t t) {
        const int64_t first = at.first(t), low = at.low(t) - 1;
        V least = splat(smallest);
        for (int slot = 0; slot < SLOTS; ++slot) {
            const V factor = splat(inverse[t * C + slot / C * S + slot % S]);
            double *row = W.row(t) + slot * W.stride(t);
            // At time 0 there is only one configuration, the first.
            const V from = splat(double(low == 0 && slot % C > 0 ? 1 : low)), end = splat(double(t - 1));
            for (int64_t k = first; k < t - 1; k += VL) {
                const V D = load(row + k), x = D * factor, lower = D < x ? D : x, time = lane_numbers() + splat(double(k));
                least = (time >= from) & (time < end) & (lower < least) ? lower : least;
                store(row + k, x);
            }
        }
        smallest = least_lane(least);
    }

    // (5) for COUNT columns from m on and slots with symbol y: sums over all k and u.
    template <int COUNT>
    void add_uncovered(int64_t t, int y, int64_t m) {
        V sum[Q][COUNT] = {};
        const int64_t stride = W.stride(t), first = std::max(seq.first_time(m) / VL * VL, at.first(t));
        for (int u = 0; u < Q; ++u)
            for (int64_t k = first; k < t - 1; k += VL) {
                V w[Q];
                for (int r = 0; r < Q; ++r) w[r] = load(W.row(t) + (r * C + u * S + y) * stride + k);
                for (int i = 0; i < COUNT; ++i) {
                    const V value = load(E + ((u * S + y) * at.columns + m + i) * at.times + k);
                    for (int r = 0; r < Q; ++r) sum[r][i] += w[r] * value;
                }
            }
        for (int r = 0; r < Q; ++r)
            for (int i = 0; i < COUNT; ++i) top[(r * S + y) * at.columns + m + i] += sum_lanes(sum[r][i]);
    }

    void top_vectors(int64_t t) {
        const int64_t M = at.columns, reach = seq.values ? M : std::min(M, t + 1);
        std::fill_n(top, C * M, 0.0);
        for (int c = 0; c < C; ++c) {
            double pushed = 0;
            for (int d = 0; d < C; ++d) pushed += pi[(d * C + c) * at.times + t];
            for (int64_t m = 0; m < reach; ++m) {
                double sum = pushed * seq.value(t, m);
                for (int d = 0; d < C; ++d) sum += rho[(t * C + d) * at.width + c] * E[(d * M + m) * at.times + t - 1];
                top[c * M + m] = sum;
            }
        }
        for (int y = 0; y < S; ++y) {
            int64_t m = 0;
            for (; m + 4 <= reach; m += 4) add_uncovered<4>(t, y, m);
            for (; m < reach; ++m) add_uncovered<1>(t, y, m);
        }
        for (int64_t i = 0; i < C * M; ++i) E[i * at.times + t] = top[i];
    }
};

}  // namespace fast
