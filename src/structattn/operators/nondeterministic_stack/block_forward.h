// Equations (1) to (5) of DERIVATION.md in double precision for 16 steps at a time, for compile-time Q and S: see "Blocks"
// there.
#pragma once

#include <algorithm>
#include <cmath>

#include "nondeterministic_stack/block_layout.h"
#include "nondeterministic_stack/block_product.h"
#include "nondeterministic_stack/range.h"
#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/step_weights.h"

namespace fast {

// Index of configuration (q, x) of the callers' arrays in the tables of blocks, where the symbol comes first.
template <int Q, int S>
constexpr int by_symbol(int c) {
    return c % S * Q + c / S;
}

template <int Q, int S>
class BlockForward {
    static constexpr int C = Q * S, ROW = Q * C * STEPS, LINE = Q * STEPS, PARTS = STEPS / VL;

public:
    // Working memory.
    static int64_t room(const BlockLayout &at) { return C * at.width * STEPS; }

    BlockForward(const Sequence &seq, const BlockLayout &at, double *tables, double *room)
        : seq(seq), at(at), M(at.columns), a(tables + at.a), inverse(tables + at.inverse), stays(tables + at.stays),
          E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, sums(room) {}

    // False where a total is zero or out of range, or if too much precision may have been lost: then no result is valid.
    bool run(const Outputs &out) {
        std::fill_n(a, C, 0.0), std::fill_n(E, C * at.width, 0.0);
        a[0] = 1;
        for (int64_t m = 0; m < M; ++m) E[m] = seq.value(0, m);
        for (int64_t block = 0; block < at.blocks; ++block) {
            begin = at.first(block), end = at.last(block);
            least = INFINITY;
            if (!provisional_weights(block)) return false;
            for (int64_t earlier = block; earlier >= 0 && at.first(earlier) + STEPS > at.low(begin); --earlier)
                solve(block, earlier);
            uncovered(block, at.lowest(block));
            std::fill_n(R.row(block, at.lowest(block)), ROW, 0.0);
            if (!totals(block, out.log_weight)) return false;
            condition(block);
            top_vectors(block);
            for (int64_t t = begin; t <= end; ++t) write_reading(t, out.readings + (t - 1) * C * M);
        }
        return true;
    }

private:
    const Sequence &seq;
    const BlockLayout &at;
    const int64_t M;
    double *const a, *const inverse, *const stays, *const E;
    const BlockTable R, W;
    double *const sums;

    // The current block's first and last step, and numbers of step begin - 1 + i at index i: pops scaled by the largest,
    // provisional shares, the logarithm of their scale, the scale of the pops relative to it, α / provisional share.
    int64_t begin = 0, end = 0;
    double pop[STEPS + 1][C * Q], share[STEPS + 1][C], log_scale[STEPS + 1], pop_ratio[STEPS + 1], correction[STEPS + 1][C];
    double growth[STEPS + 1];
    // Along the lanes: a factor of each configuration, D summed over the times before the block, and one row of D.
    alignas(64) double factor[C * STEPS], past[C * STEPS], uncovered_row[C * STEPS * Q];
    double least = 0;  // of the numbers that are not zero by construction
    double lost = -INFINITY, log_total = 0;

    double *stays_of(int64_t t) const { return stays + t * 2 * C * C; }
    double *E_of(int64_t t) const { return E + t * C * at.width; }

    // Weights of the block's transitions for provisional shares of the configurations, which leave pops out.
    bool provisional_weights(int64_t block) {
        constexpr double smallest_provisional_share = 1e-6;
        for (int c = 0; c < C; ++c) share[0][c] = a[(begin - 1) * C + c];
        log_scale[0] = 0;
        std::fill_n(factor, C * STEPS, 0.0), std::fill_n(past, C * STEPS, 0.0);
        for (int64_t t = begin; t <= end; ++t) {
            const int i = int(t - begin) + 1;
            double before[C], sum[C] = {}, total = 0;
            for (int c = 0; c < C; ++c) before[c] = share[i - 1][by_symbol<Q, S>(c)];
            const StepWeights<Q, S> weights(seq, t, before);
            if (weights.stay_scale == -INFINITY) return false;
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < C; ++d) sum[d] += weights.stay[c * 2 * C + d] + weights.stay[c * 2 * C + C + d];
            for (int d = 0; d < C; ++d) total += sum[d];
            for (int d = 0; d < C; ++d) sum[d] = sum[d] / total + smallest_provisional_share;
            double inverse_sum[C];
            for (int d = 0; d < C; ++d) share[i][by_symbol<Q, S>(d)] = sum[d], inverse_sum[d] = 1 / (total * sum[d]);
            for (int c = 0; c < C; ++c)
                for (int kind = 0; kind < 2; ++kind)
                    for (int d = 0; d < C; ++d) {
                        const double x = weights.stay[c * 2 * C + kind * C + d] * inverse_sum[d];
                        if (before[c] > 0) least = std::min(least, x);
                        stays_of(t)[kind * C * C + by_symbol<Q, S>(c) * C + by_symbol<Q, S>(d)] = x;
                    }
            log_scale[i] = log_scale[i - 1] + weights.stay_scale + std::log(total);
            const bool pops = weights.pop_scale > -INFINITY;
            pop_ratio[i] = pops ? std::exp(weights.pop_scale - weights.stay_scale) / total : 0;
            for (int c = 0; c < C; ++c)
                for (int r = 0; r < Q; ++r) pop[i][by_symbol<Q, S>(c) * Q + r] = pops ? weights.pop[c * Q + r] : 0;
            for (int z = 0; z < S; ++z)
                for (int r = 0; r < Q; ++r)
                    factor[(z * Q + r) * STEPS + i - 1] = pop_ratio[i] / share[i][z * Q + r];
        }
        return true;
    }

    // (1) and (2) for the rows of one block of times, for all steps of the current block.
    void solve(int64_t block, int64_t earlier) {
        const int64_t low = std::max(at.first(earlier), at.low(begin)), high = std::min(at.last(earlier), end - 1);
        if (low > high) return;
        for (int64_t middle = earlier + 1; middle < block && at.lowest(middle) <= high; ++middle) {
            const int64_t from = std::max(low, at.lowest(middle));
            const bool first = middle == earlier + 1;
            if (first) std::fill_n(R.row(block, low), (from - low) * ROW, 0.0);
            const auto add = first ? add_products<Sum::new_one> : add_products<Sum::added>;
            add(W.row(middle, from), R.row(block, at.first(middle)), R.row(block, from), high - from + 1, STEPS);
        }
        const bool started = block > earlier + 1 && at.lowest(earlier + 1) <= high;
        if (!started) std::fill(R.row(block, low), R.row(block, high) + ROW, 0.0);
        for (int64_t j = high; j >= low; --j) {
            double *x = R.row(block, j);
            uncovered(block, j);
            if (j + 1 < end) add_replacements(x, R.row(block, j + 1), stays_of(j + 1));
            const int64_t beside = at.last(earlier) - (j + 1);
            if (beside > 0 && earlier < block)
                add_products(W.row(earlier, j) + j + 2 - at.first(earlier), R.row(block, j + 2), x, 1, beside);
            const int64_t own = std::max(begin, j + 2);
            if (own < end) add_products(W.row(block, j) + own - begin, R.row(block, own), x, 1, end - own);
            finish(x, j);
        }
    }

    // row (+)= Σ W x for `rows` rows and `times` times.
    template <Sum SUM = Sum::added>
    static void add_products(const double *table, const double *x, double *row, int64_t rows, int64_t times) {
        for (int z = 0; z < S; ++z)
            multiply<SUM, Q, Q, LINE>(row + z * Q * LINE, ROW, LINE, table + z * Q * LINE, {ROW, LINE, 1, STEPS},
                                    x + z * Q * LINE, ROW, LINE, rows, times);
    }
    static void add_replacements(double *row, const double *next, const double *stays) {
        multiply<Sum::added, 1, 1, LINE, C>(row, LINE, 0, stays + C * C, {C, 0, 1, 0}, next, LINE, 0, C, C);
    }

    // The lanes whose steps lie in low..high.
    VI lanes_between(int part, int64_t low, int64_t high) const {
        const V step = lane_numbers() + splat(double(begin + part * VL));
        return (step >= splat(double(low))) & (step <= splat(double(high)));
    }

    // Adds the pops of the top slot; clears what lies outside the window.
    void finish(double *x, int64_t j) {
        if (j + 1 >= begin)
            for (int i = 0; i < C * Q; ++i) x[i * STEPS + j + 1 - begin] = pop[j + 2 - begin][i];
        const int64_t last = std::min(end, j + at.window);
        V low = splat(least);
        for (int part = 0; part < PARTS; ++part) {
            const VI inside = lanes_between(part, j + 1, last);
            for (int i = 0; i < C * Q; ++i) {
                V number = load(x + i * STEPS + part * VL);
                low = inside & (number < low) ? number : low;
                if (last < end) store(x + i * STEPS + part * VL, inside ? number : V{});
            }
        }
        least = least_lane(low);
    }

    // (2): row j of W with provisional shares.
    void uncovered(int64_t block, int64_t j) {
        double *to = W.row(block, j);
        if (j + 1 >= end) {
            std::fill_n(to, ROW, 0.0);
            return;
        }
        multiply<Sum::new_one, 1, 1, LINE, C>(uncovered_row, LINE, 0, stays_of(j + 1), {C, 0, 1, 0}, R.row(block, j + 1), LINE, 0,
                                           C, C);
        V low = splat(least);
        const bool earlier = j < begin;
        for (int part = 0; part < PARTS; ++part) {
            const VI inside = lanes_between(part, j + 2, std::min(end, j + 1 + at.window));
            for (int z = 0; z < S; ++z)
                for (int r = 0; r < Q; ++r) {
                    const int64_t after = (z * Q + r) * STEPS + part * VL;
                    V sum{};
                    for (int s = 0; s < Q; ++s) {
                        const int64_t i = (z * Q + s) * LINE + r * STEPS + part * VL;
                        const V number = load(uncovered_row + i) * load(factor + after);
                        // At time 0 there is only one configuration, the first.
                        if (j > 0 || (z == 0 && s == 0)) low = inside & (number < low) ? number : low;
                        store(to + i, number);
                        sum += number;
                    }
                    if (earlier) store(past + after, load(past + after) + sum);
                }
        }
        least = least_lane(low);
    }

    // (3) and the guard. Provisional numbers may differ from true ones by this factor.
    static constexpr double largest_drift = 1e100;

    bool totals(int64_t block, double *log_weight) {
        for (int c = 0; c < C; ++c) correction[0][c] = 1;
        Extent corrections, pops;
        bool small = false;
        double before = 1;
        for (int64_t t = begin; t <= end; ++t) {
            const int i = int(t - begin) + 1;
            const double total = alpha(block, t), largest_pop = largest_true_pop(i);
            if (!(total > 1 / largest_drift && total < largest_drift && pop_ratio[i] < largest_drift)) return false;
            growth[i] = log_scale[i] - log_scale[i - 1] + std::log(total) - std::log(before);
            if (!(std::fabs(growth[i]) <= largest_growth_of_doubles)) return false;
            if (largest_pop > 0) pops.add(largest_pop);
            for (int c = 0; c < C; ++c) {
                if (correction[i][c] > 0) corrections.add(correction[i][c]);
                else small = true;
            }
            before = total;
        }
        // True numbers are the provisional ones times a correction, divided by another one or by the largest pop.
        const double largest_divisor = std::max(corrections.highest, pops.highest);
        const double smallest_divisor = std::min(corrections.lowest, pops.lowest);
        small |= !(least * corrections.lowest / largest_divisor >= smallest_share);
        const double loss = std::log(corrections.highest) - std::log(smallest_divisor);
        for (int64_t t = begin; t <= end; ++t) {
            lost = lost_after(lost, seq, t, growth[t - begin + 1], small);
            if (small) lost = std::max(lost, loss);
            if (!(lost < largest_regrowth)) return false;
            log_weight[t - 1] = log_total += growth[t - begin + 1];
        }
        return true;
    }

    // The smallest and the largest of numbers and 1.
    struct Extent {
        double lowest = 1, highest = 1;
        void add(double x) { lowest = std::min(lowest, x), highest = std::max(highest, x); }
    };

    // (3): a_t, 1 / α_t and the corrections; Σ α_t relative to the provisional scale.
    double alpha(int64_t block, int64_t t) {
        const int i = int(t - begin) + 1;
        double total = 0;
        for (int c = 0; c < C; ++c) {
            double sum = past[c * STEPS + i - 1];
            for (int d = 0; d < C; ++d)
                sum += (stays_of(t)[d * C + c] + stays_of(t)[(C + d) * C + c]) * correction[i - 1][d];
            for (int64_t k = begin; k <= t - 2; ++k)
                for (int u = 0; u < Q; ++u) {
                    const int below = c / Q * Q + u;
                    sum += W.row(block, k)[below * LINE + c % Q * STEPS + i - 1] * correction[k - begin + 1][below];
                }
            correction[i][c] = sum;
            total += share[i][c] * sum;
        }
        for (int c = 0; c < C; ++c) {
            const double weight = share[i][c] * correction[i][c];
            const bool kept = weight > smallest_share * total;
            a[t * C + c] = kept ? weight / total : 0;
            inverse[t * C + c] = kept ? pop_ratio[i] / weight : 0;
            if (!kept) correction[i][c] = 0;
        }
        return total;
    }
    double largest_true_pop(int i) const {
        double largest = 0;
        for (int slot = 0; slot < C * Q; ++slot) largest = std::max(largest, pop[i][slot] * correction[i - 1][slot / Q]);
        return largest;
    }

    // (4): from provisional shares to a. R is defined up to a factor for each step, which `inverse` contains.
    void condition(int64_t block) {
        auto divided = [](double x, double by) { return by > 0 ? x / by : 0; };
        for (int64_t t = begin; t <= end; ++t) {
            const double *before = correction[t - begin], *after = correction[t - begin + 1];
            for (int from = 0; from < 2 * C; ++from)
                for (int c = 0; c < C; ++c) {
                    double &x = stays_of(t)[from * C + c];
                    x = divided(x * before[from % C], after[c]);
                }
            for (int c = 0; c < C; ++c) factor[c * STEPS + t - begin] = divided(1, after[c]);
        }
        for (int64_t j = at.lowest(block); j < end; ++j)
            for (int c = 0; c < C; ++c) {
                const V known = splat(j < begin ? 1 : correction[j - begin + 1][c]);
                double *row = W.row(block, j) + c * LINE, *x = R.row(block, j) + c * LINE;
                for (int lane = 0; lane < LINE; lane += VL)
                    store(row + lane, load(row + lane) * load(factor + c / Q * LINE + lane) * known);
                for (int lane = 0; lane < LINE && j >= begin; lane += VL) store(x + lane, load(x + lane) * known);
            }
    }

    // (5)
    void top_vectors(int64_t block) {
        const int64_t reach = seq.values ? M : std::min(M, end + 1);
        std::fill_n(sums, C * at.width * STEPS, 0.0);
        for (int64_t k = at.lowest(block); k < begin;) {
            const int64_t next = std::min(begin, k + STEPS), rows = seq.values ? M : std::min(M, next);
            for (int z = 0; z < S; ++z)
                multiply<Sum::added, 1, Q, LINE>(sums + z * at.width * LINE, LINE, 0, E_of(k) + z * Q * at.width,
                                        {1, 0, C * at.width, at.width}, W.row(block, k) + z * Q * LINE, ROW, LINE, rows, next - k);
            k = next;
        }
        for (int64_t t = begin; t <= end; ++t) {
            double *to = E_of(t);
            std::fill_n(to, C * at.width, 0.0);
            for (int c = 0; c < C; ++c) {
                double pushed = 0, *row = to + c * at.width;
                const double *from = sums + c / Q * at.width * LINE + c % Q * STEPS + t - begin;
                for (int d = 0; d < C; ++d) pushed += stays_of(t)[d * C + c];
                for (int64_t m = 0; m < reach; ++m) row[m] = from[m * LINE] + pushed * seq.value(t, m);
                add_rows<C>(row, stays_of(t) + C * C + c, C, E_of(t - 1), at.width, reach);
                for (int64_t k = std::max(begin, at.low(t) - 1); k <= t - 2; ++k)
                    add_rows<Q>(row, W.row(block, k) + c / Q * Q * LINE + c % Q * STEPS + t - begin, LINE,
                                E_of(k) + c / Q * Q * at.width, at.width, reach);
            }
        }
    }

    void write_reading(int64_t t, double *reading) const {
        for (int c = 0; c < C; ++c) {
            const int from = by_symbol<Q, S>(c);
            for (int64_t m = 0; m < M; ++m) reading[c * M + m] = a[t * C + from] * E_of(t)[from * at.width + m];
        }
    }
};

}  // namespace fast
