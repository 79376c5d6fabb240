// Equations (1) to (5) of DERIVATION.md for 16 steps at a time, with tables of floats or doubles, for compile-time Q and S:
// see "Blocks" there.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "nondeterministic_stack/cpu/block_tables.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/transitions.h"

namespace fast {

// Index of configuration (q, x) of the callers' arrays in the tables of blocks, where the symbol comes first.
template <int Q, int S>
constexpr int by_symbol(int c) {
    return c % S * Q + c / S;
}

template <class Real, int Q, int S>
class BlockForward {
    static constexpr int VL = lanes_in<Real>, PARTS = STEPS / VL, C = Q * S, ROW = Q * C * STEPS, LINE = Q * STEPS;
    static constexpr double smallest_share = Range<Real>::smallest_share;
    using Layout = BlockLayout<Real>;
    using V = Vector<Real>;
    using VI = VectorMask<Real>;

public:
    // Working memory.
    static int64_t room(const Layout &at) { return C * at.width * STEPS; }

    BlockForward(const Sequence &seq, const Layout &at, Real *tables, Real *room)
        : seq(seq), at(at), M(at.columns), a(tables + at.a), inverse(tables + at.inverse), stays(tables + at.stays),
          E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, sums(room) {}

    // False where a total is zero or out of range, or if too much precision may have been lost: then no result is valid.
    bool run(const Outputs &out) {
        std::fill_n(a, C, Real(0)), std::fill_n(E, C * at.width, Real(0));
        a[0] = 1;
        for (int64_t m = 0; m < M; ++m) E[m] = Real(seq.value(0, m));
        for (int64_t block = 0; block < at.blocks; ++block) {
            begin = at.first(block), end = at.last(block);
            if (!estimate_scale() || !provisional_tables(block)) return false;
            if (drift > Range<Real>::retry_drift) {
                correct_scale();
                if (!provisional_tables(block)) return false;
            }
            if (!(drift < Range<Real>::largest_drift) || !grow(out.log_weight)) return false;
            lost.push_back(lost_in(block));
            condition(block);
            top_vectors(block);
            for (int64_t t = begin; t <= end; ++t) write_reading(t, out.readings + (t - 1) * C * M);
        }
        return regrown(out.log_weight) <= Range<Real>::largest_loss;
    }

private:
    const Sequence &seq;
    const Layout &at;
    const int64_t M;
    Real *const a, *const inverse, *const stays, *const E;
    const BlockTable<Real> R, W;
    Real *const sums;

    // The current block's first and last step, and numbers of step begin - 1 + i at index i: provisional weights of the
    // configurations, as shares and the logarithm of their scale, pops scaled by the largest, the scale of the pops
    // relative to the provisional one, α / provisional weight, and Σ α relative to the provisional scale.
    int64_t begin = 0, end = 0;
    double share[STEPS + 1][C], log_scale[STEPS + 1], pop[STEPS + 1][C * Q], pop_ratio[STEPS + 1], correction[STEPS + 1][C];
    double total[STEPS + 1];
    StepWeights<Q, S> step_weights[STEPS];  // for the provisional weights of the configurations
    // Along the lanes: a factor of each configuration, D summed over the times before the block, and one row of D.
    alignas(64) Real factor[C * STEPS], past[C * STEPS], uncovered_row[C * STEPS * Q];
    V lows{};              // the least of the provisional numbers that are not zero by construction, by lane
    bool cut = false;      // a share was too small to keep
    double drift = 0;      // the largest quotient of a true number and a provisional one
    double log_total = 0;  // log Σ α up to the block
    std::vector<double> lost;  // by block: see lost_in()

    Real *stays_of(int64_t t) const { return stays + t * 2 * C * C; }
    Real *E_of(int64_t t) const { return E + t * C * at.width; }

    static constexpr double smallest_provisional_share = 1e-6;

    // Provisional weights: α as it would be if all stacks had infinitely many items of every symbol.
    bool estimate_scale() {
        constexpr double most_pops = 9;  // the logarithm of their weight relative to the others'; there may be none
        for (int c = 0; c < C; ++c) share[0][c] = a[(begin - 1) * C + c];
        log_scale[0] = 0;
        for (int64_t t = begin; t <= end; ++t) {
            const int i = int(t - begin) + 1;
            const StepWeights<Q, S> &weights = weigh(t);
            double stays[2 * C] = {}, pops[Q] = {};
            for (int c = 0; c < C; ++c)
                for (int d = 0; d < 2 * C; ++d) stays[d] += weights.stay[c * 2 * C + d];
            for (int d = 0; d < C; ++d) stays[d] += stays[C + d];
            for (int j = 0; j < C * Q && weights.pop_scale > -INFINITY; ++j) pops[j % Q] += weights.pop[j];
            const double stay_sum = sum_of(stays, C), pop_sum = sum_of(pops, Q);
            const double stay_log = weights.stay_scale + std::log(stay_sum);
            double pop_log = weights.pop_scale + std::log(pop_sum);
            if (stay_log > -INFINITY) pop_log = std::min(pop_log, stay_log + most_pops);
            const double highest = std::max(stay_log, pop_log);
            if (!(highest > -INFINITY)) return false;
            const double log_step = highest + std::log(std::exp(stay_log - highest) + std::exp(pop_log - highest));
            const double of_stays = stay_sum > 0 ? std::exp(stay_log - log_step) / stay_sum : 0;
            const double of_pops = pop_sum > 0 ? std::exp(pop_log - log_step) / (pop_sum * S) : 0;
            for (int d = 0; d < C; ++d)
                share[i][by_symbol<Q, S>(d)] = of_stays * stays[d] + of_pops * pops[d / S] + smallest_provisional_share;
            log_scale[i] = log_scale[i - 1] + log_step;
        }
        return true;
    }
    static double sum_of(const double *x, int count) {
        double sum = 0;
        for (int i = 0; i < count; ++i) sum += x[i];
        return sum;
    }

    // Provisional weights: α as found with other provisional weights.
    void correct_scale() {
        for (int i = 1; i <= end - begin + 1; ++i) {
            for (int c = 0; c < C; ++c)
                share[i][c] = share[i][c] * correction[i][c] / total[i] + smallest_provisional_share;
            log_scale[i] += std::log(total[i]);
        }
        for (int64_t t = begin + 1; t <= end; ++t) weigh(t);
    }

    const StepWeights<Q, S> &weigh(int64_t t) {
        double before[C];
        for (int c = 0; c < C; ++c) before[c] = share[t - begin][by_symbol<Q, S>(c)];
        return step_weights[t - begin] = StepWeights<Q, S>(seq.step(t), before);
    }

    // (1) to (3) with provisional weights, and their drift. False if a total is zero or out of range.
    bool provisional_tables(int64_t block) {
        lows = splat_to<Real>(INFINITY);
        std::fill_n(factor, C * STEPS, Real(0)), std::fill_n(past, C * STEPS, Real(0));
        for (int64_t t = begin; t <= end; ++t) provisional_weights(t);
        for (int64_t earlier = block; earlier >= 0 && at.first(earlier) + STEPS > at.low(begin); --earlier)
            solve(block, earlier);
        uncovered(block, at.lowest(block));
        std::fill_n(R.row(block, at.lowest(block)), ROW, Real(0));
        return totals(block);
    }

    // The block's transitions for provisional weights of the configurations.
    void provisional_weights(int64_t t) {
        const int i = int(t - begin) + 1;
        const StepWeights<Q, S> &weights = step_weights[i - 1];
        const double log_step = log_scale[i] - log_scale[i - 1];
        const double scale = std::exp(weights.stay_scale - log_step);
        double inverse_share[2 * C], smallest[2 * C];  // of each kind, so that they are vectors with the weights
        for (int d = 0; d < 2 * C; ++d) inverse_share[d] = scale / share[i][by_symbol<Q, S>(d % C)], smallest[d] = INFINITY;
        for (int c = 0; c < C; ++c) {
            const bool possible = share[i - 1][by_symbol<Q, S>(c)] > 0;
            for (int d = 0; d < 2 * C; ++d) {
                const double x = weights.stay[c * 2 * C + d] * inverse_share[d];
                smallest[d] = possible && x < smallest[d] ? x : smallest[d];
                stays_of(t)[d / C * C * C + by_symbol<Q, S>(c) * C + by_symbol<Q, S>(d % C)] = Real(x);
            }
        }
        lows[0] = std::min(lows[0], Real(*std::min_element(smallest, smallest + 2 * C)));
        const bool pops = weights.pop_scale > -INFINITY;
        pop_ratio[i] = pops ? std::exp(weights.pop_scale - log_step) : 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) pop[i][by_symbol<Q, S>(c) * Q + r] = pops ? weights.pop[c * Q + r] : 0;
        for (int c = 0; c < C; ++c) factor[c * STEPS + i - 1] = Real(pop_ratio[i] / share[i][c]);
    }

    // (1) and (2) for the rows of one block of times, for all steps of the current block.
    void solve(int64_t block, int64_t earlier) {
        const int64_t low = std::max(at.first(earlier), at.low(begin)), high = std::min(at.last(earlier), end - 1);
        if (low > high) return;
        for (int64_t middle = earlier + 1; middle < block && at.lowest(middle) <= high; ++middle) {
            const int64_t from = std::max(low, at.lowest(middle));
            const bool first = middle == earlier + 1;
            if (first) std::fill_n(R.row(block, low), (from - low) * ROW, Real(0));
            const auto add = first ? add_products<Sum::new_one> : add_products<Sum::added>;
            add(W.row(middle, from), R.row(block, at.first(middle)), R.row(block, from), high - from + 1, STEPS);
        }
        const bool started = block > earlier + 1 && at.lowest(earlier + 1) <= high;
        if (!started) std::fill(R.row(block, low), R.row(block, high) + ROW, Real(0));
        for (int64_t j = high; j >= low; --j) {
            Real *x = R.row(block, j);
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
    static void add_products(const Real *table, const Real *x, Real *row, int64_t rows, int64_t times) {
        for (int z = 0; z < S; ++z)
            multiply<SUM, Q, Q, LINE>(row + z * Q * LINE, ROW, LINE, table + z * Q * LINE, {ROW, LINE, 1, STEPS},
                                    x + z * Q * LINE, ROW, LINE, rows, times);
    }
    static void add_replacements(Real *row, const Real *next, const Real *stays) {
        multiply<Sum::added, 1, 1, LINE, C>(row, LINE, 0, stays + C * C, {C, 0, 1, 0}, next, LINE, 0, C, C);
    }

    // The lanes whose steps lie in low..high.
    VI lanes_between(int part, int64_t low, int64_t high) const {
        const V step = lane_numbers_of<Real>() + Real(begin + part * VL);
        return (step >= Real(low)) & (step <= Real(high));
    }

    // Adds the pops of the top slot; clears what lies outside the window.
    void finish(Real *x, int64_t j) {
        if (j + 1 >= begin)
            for (int i = 0; i < C * Q; ++i) x[i * STEPS + j + 1 - begin] = Real(pop[j + 2 - begin][i]);
        const int64_t last = std::min(end, j + at.window);
        for (int part = 0; part < PARTS; ++part) {
            const VI inside = lanes_between(part, j + 1, last);
            V low = splat_to<Real>(INFINITY);
            for (int i = 0; i < C * Q; ++i) {
                V number = load(x + i * STEPS + part * VL);
                low = number < low ? number : low;
                if (last < end) store(x + i * STEPS + part * VL, inside ? number : V{});
            }
            note_least(inside, low);
        }
    }

    void note_least(VI inside, V numbers) { lows = inside & (numbers < lows) ? numbers : lows; }

    // (2): row j of W with provisional shares.
    void uncovered(int64_t block, int64_t j) {
        Real *to = W.row(block, j);
        if (j + 1 >= end) {
            std::fill_n(to, ROW, Real(0));
            return;
        }
        multiply<Sum::new_one, 1, 1, LINE, C>(uncovered_row, LINE, 0, stays_of(j + 1), {C, 0, 1, 0}, R.row(block, j + 1), LINE, 0,
                                           C, C);
        const bool earlier = j < begin;
        for (int part = 0; part < PARTS; ++part) {
            V low = splat_to<Real>(INFINITY);
            for (int z = 0; z < S; ++z)
                for (int r = 0; r < Q; ++r) {
                    const int64_t after = (z * Q + r) * STEPS + part * VL;
                    V sum{};
                    for (int s = 0; s < Q; ++s) {
                        const int64_t i = (z * Q + s) * LINE + r * STEPS + part * VL;
                        const V number = load(uncovered_row + i) * load(factor + after);
                        // At time 0 there is only one configuration, the first.
                        if (j > 0 || (z == 0 && s == 0)) low = number < low ? number : low;
                        store(to + i, number);
                        sum += number;
                    }
                    if (earlier) store(past + after, load(past + after) + sum);
                }
            note_least(lanes_between(part, j + 2, std::min(end, j + 1 + at.window)), low);
        }
    }

    // (3), and the drift: what counts as small in a provisional number is less than drift times that of all runs.
    bool totals(int64_t block) {
        double highest = 1, lowest = 1;
        for (int c = 0; c < C; ++c) correction[0][c] = 1;
        cut = false;
        for (int64_t t = begin; t <= end; ++t) {
            const int i = int(t - begin) + 1;
            total[i] = alpha(block, t);
            if (!(total[i] > 0 && std::isfinite(total[i]) && std::isfinite(pop_ratio[i]))) return false;
            for (int c = 0; c < C; ++c) highest = std::max(highest, correction[i][c]);
            lowest = std::min({lowest, total[i], total[i] / pop_ratio[i]});
        }
        drift = highest / lowest;
        return true;
    }

    // The logarithms of Σ α.
    bool grow(double *log_weight) {
        for (int i = 1; i <= end - begin + 1; ++i) {
            const double before = i > 1 ? std::log(total[i - 1]) : 0;
            const double growth = log_scale[i] - log_scale[i - 1] + std::log(total[i]) - before;
            if (!(std::fabs(growth) <= largest_growth_of_doubles)) return false;
            log_weight[begin + i - 2] = log_total += growth;
        }
        return true;
    }

    // A bound of all that was lost in this block, as a fraction of all runs up to its steps.
    double lost_in(int64_t block) const {
        double highest = 1, lowest = 1;
        for (int i = 1; i <= end - begin + 1; ++i)
            for (int c = 0; c < C; ++c)
                if (correction[i][c] > 0)
                    highest = std::max(highest, correction[i][c]), lowest = std::min(lowest, correction[i][c]);
        const double least = least_lane_of<Real>(lows);
        // Numbers are small as provisional ones, or as true ones, which are stored afterwards.
        if (!cut && least * lowest / highest >= smallest_share && least >= smallest_share) return 0;
        return double(2 * (end - at.lowest(block)) + 2) * ROW * smallest_share * drift;
    }

    // A bound of the fraction of all runs that what was lost can have become in a later step. No configuration, with any
    // stack, can have a weight in some later step that is more than `most` times that of all runs.
    double regrown(const double *log_weight) const {
        double sum = 0, most[C], ones[C];
        for (int c = 0; c < C; ++c) most[c] = ones[c] = 1;
        if (std::all_of(lost.begin(), lost.end(), [](double x) { return x == 0; })) return 0;
        for (int64_t t = at.n; t >= 1; --t) {
            const double highest = *std::max_element(most, most + C);
            if (lost[at.block_of(t)] > 0) sum += lost[at.block_of(t)] * highest;
            const StepWeights<Q, S> weights(seq.step(t), ones);
            const double growth = log_weight[t - 1] - (t > 1 ? log_weight[t - 2] : 0);
            const double of_stays = std::exp(weights.stay_scale - growth);
            const double of_pops = weights.pop_scale > -INFINITY ? std::exp(weights.pop_scale - growth) : 0;
            double after[Q], sums[C];
            for (int r = 0; r < Q; ++r) after[r] = of_pops * *std::max_element(most + r * S, most + (r + 1) * S);
            for (int c = 0; c < C; ++c) {
                sums[c] = 0;
                for (int d = 0; d < C; ++d)
                    sums[c] += (weights.stay[c * 2 * C + d] + weights.stay[c * 2 * C + C + d]) * most[d] * of_stays;
                for (int r = 0; r < Q && of_pops > 0; ++r) sums[c] += weights.pop[c * Q + r] * after[r];
            }
            for (int c = 0; c < C; ++c) most[c] = std::max(sums[c], 1.0);
        }
        return sum;
    }

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
            const bool kept = weight > smallest_share * total && std::isfinite(Real(1 / correction[i][c]));
            cut |= !kept;
            a[t * C + c] = kept ? Real(weight / total) : 0;
            inverse[t * C + c] = kept ? Real(pop_ratio[i] / weight) : 0;
            if (!std::isfinite(inverse[t * C + c])) return NAN;
            if (!kept) correction[i][c] = 0;
        }
        return total;
    }
    // (4): from provisional shares to a. R is defined up to a factor for each step, which `inverse` contains.
    void condition(int64_t block) {
        auto divided = [](double x, double by) { return by > 0 ? x / by : 0; };
        for (int64_t t = begin; t <= end; ++t) {
            const double *before = correction[t - begin], *after = correction[t - begin + 1];
            for (int from = 0; from < 2 * C; ++from)
                for (int c = 0; c < C; ++c) {
                    Real &x = stays_of(t)[from * C + c];
                    x = Real(divided(x * before[from % C], after[c]));
                }
            for (int c = 0; c < C; ++c) factor[c * STEPS + t - begin] = Real(divided(1, after[c]));
        }
        for (int64_t j = at.lowest(block); j < end; ++j)
            for (int c = 0; c < C; ++c) {
                const V known = splat_to<Real>(j < begin ? 1 : Real(correction[j - begin + 1][c]));
                Real *row = W.row(block, j) + c * LINE, *x = R.row(block, j) + c * LINE;
                for (int lane = 0; lane < LINE; lane += VL)
                    store(row + lane, load(row + lane) * load(factor + c / Q * LINE + lane) * known);
                for (int lane = 0; lane < LINE && j >= begin; lane += VL) store(x + lane, load(x + lane) * known);
            }
    }

    // (5)
    void top_vectors(int64_t block) {
        const int64_t reach = seq.values ? M : std::min(M, end + 1);
        std::fill_n(sums, C * at.width * STEPS, Real(0));
        for (int64_t k = at.lowest(block); k < begin;) {
            const int64_t next = std::min(begin, k + STEPS), rows = seq.values ? M : std::min(M, next);
            for (int z = 0; z < S; ++z)
                multiply<Sum::added, 1, Q, LINE>(sums + z * at.width * LINE, LINE, 0, E_of(k) + z * Q * at.width,
                                        {1, 0, C * at.width, at.width}, W.row(block, k) + z * Q * LINE, ROW, LINE, rows, next - k);
            k = next;
        }
        for (int64_t t = begin; t <= end; ++t) {
            Real *to = E_of(t);
            std::fill_n(to, C * at.width, Real(0));
            for (int c = 0; c < C; ++c) {
                Real pushed = 0, *row = to + c * at.width;
                const Real *from = sums + c / Q * at.width * LINE + c % Q * STEPS + t - begin;
                for (int d = 0; d < C; ++d) pushed += stays_of(t)[d * C + c];
                for (int64_t m = 0; m < reach; ++m) row[m] = from[m * LINE] + pushed * Real(seq.value(t, m));
                add_rows<C>(row, stays_of(t) + C * C + c, C, E_of(t - 1), at.width, reach);
            }
            const int64_t k = std::max(begin, at.low(t) - 1);
            for (int z = 0; z < S && k <= t - 2; ++z)
                for (int64_t m = 0; m < reach; m += Layout::UNIT)
                    multiply<Sum::added, Q, Q, Layout::UNIT>(to + z * Q * at.width + m, 0, at.width,
                                                             W.row(block, k) + z * Q * LINE + t - begin, {0, STEPS, ROW, LINE},
                                                             E_of(k) + z * Q * at.width + m, C * at.width, at.width, 1, t - 1 - k);
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
