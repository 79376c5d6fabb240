// The guard of DERIVATION.md, "Range": whether the loss of precision in doubles is negligible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "nondeterministic_stack/sequence.h"

// Entries of the tables, fractions of the weight of all runs so far, count as lost below this.
constexpr double smallest_share = 1e-290;
// Step by step, a lost fraction can grow in each step by the growth of the fastest configuration divided by that of the
// total. Up to this sum of the logarithms, each lost number stays below 1e-290 e^600 < 1e-29 of the total and is negligible.
constexpr double largest_regrowth = 600;
// The same for floats: each lost number stays below 1e-34 e^44 < 1.3e-15 of the total.
constexpr double smallest_share_of_floats = 1e-34, largest_regrowth_of_floats = 44;

// The limits of blocks with tables of float or double: what counts as lost, how large all that is lost may have become, and
// by how much provisional numbers may differ from true ones, before they are computed again and at all.
template <class Real>
struct Range;
template <>
struct Range<double> {
    static constexpr double smallest_share = ::smallest_share, largest_loss = 1e-20, retry_drift = 1e60, largest_drift = 1e100;
};
template <>
struct Range<float> {
    static constexpr double smallest_share = 1e-30, largest_loss = 1e-9, retry_drift = 1e6, largest_drift = 1e12;
};

// The logits that matter are as large as the growth of the total, and the difference of two is rounded to about 1e-16 of
// their size. Up to this size it stays below 1e-10.
constexpr double largest_growth_of_doubles = 1e6;

// No configuration can multiply its weight in a step by more than exp of this.
inline double largest_growth(const StepLogits &logits) {
    const int64_t C = logits.C, pops = logits.pops ? logits.Q : 0;
    double result = -INFINITY;
    for (int64_t c = 0; c < C; ++c) {
        const double *push = logits.push + c * C, *repl = logits.repl + c * C, *pop = logits.pop + c * logits.Q;
        double top = -INFINITY, sum = 0;
        for (int64_t d = 0; d < C; ++d) top = std::max({top, push[d], repl[d]});
        for (int64_t r = 0; r < pops; ++r) top = std::max(top, pop[r]);
        if (top == -INFINITY) continue;
        for (int64_t d = 0; d < C; ++d) sum += std::exp(push[d] - top) + std::exp(repl[d] - top);
        for (int64_t r = 0; r < pops; ++r) sum += std::exp(pop[r] - top);
        result = std::max(result, top + std::log(sum));
    }
    return result;
}

// An upper bound of the loss: the logarithm of its fraction of the total divided by the smallest share; -inf without loss. The
// numbers of pops are relative to the largest pop, which may weigh more than the total; so a step may increase what it loses.
inline double lost_after(double lost, const StepLogits &logits, double growth, bool something_small) {
    if (something_small) lost = std::max(lost, 0.0);
    return lost > -INFINITY ? lost + largest_growth(logits) - growth : lost;
}
