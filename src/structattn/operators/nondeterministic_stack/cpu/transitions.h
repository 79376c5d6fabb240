// The weights of one step's transitions, scaled so that none overflows, and the shares of the total after the step: equations
// (3) and (4) of DERIVATION.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/vector.h"
#include "nondeterministic_stack/cpu/sequence.h"

namespace fast {

// share[c] exp(logit - scale) for each transition out of each configuration c, where scale is the largest
// logit + log share of the possible transitions, or -inf if there are none. Pops have a separate scale: the bottom can't
// be popped, so a pop may have a huge logit but no effect.
template <int Q, int S>
struct StepWeights {
    static constexpr int C = Q * S;

    double stay_scale, pop_scale = -INFINITY;
    double stay[C * 2 * C + LANES];  // of each configuration: pushes, then replacements
    double pop[C * Q + LANES];

    StepWeights() = default;
    StepWeights(const StepLogits &logits, const double *share) {
        double log_share[C];
        for (int c = 0; c < C; ++c) log_share[c] = share[c] > 0 ? std::log(share[c]) : -INFINITY;
        for (int c = 0; c < C; ++c) {
            std::copy_n(logits.push + c * C, C, stay + c * 2 * C);
            std::copy_n(logits.repl + c * C, C, stay + c * 2 * C + C);
        }
        stay_scale = weigh<2 * C>(stay, log_share);
        if (!logits.pops) return;
        std::copy_n(logits.pop, C * Q, pop);
        pop_scale = weigh<Q>(pop, log_share);
    }

    bool pops() const { return pop_scale > -INFINITY; }

private:
    // Converts logits to weights in place, those of the padding to zeros.
    template <int WIDTH>
    static double weigh(double *x, const double *log_share) {
        double scale = -INFINITY;
        std::fill_n(x + C * WIDTH, LANES, -INFINITY);
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < WIDTH; ++d) scale = std::max(scale, x[c * WIDTH + d] += log_share[c]);
        // All zero if the scale is -inf, where logit - scale would be NaN.
        const V shift = splat(scale == -INFINITY ? 0.0 : scale);
        for (int d = 0; d < C * WIDTH; d += VL) store(x + d, exp_of_negative(load(x + d) - shift));
        return scale;
    }
};

template <int Q, int S>
struct StepShares {
    static constexpr int C = Q * S;

    double growth;                       // log Σ α_t; -inf without possible transitions, and nothing else is set
    double a[C], inverse[C];             // of each configuration; W_t is D_t times `inverse`
    double pushed[C * C], replaced[C * C];  // π_t and ρ_t: [from][to]
    double smallest = INFINITY;          // of these numbers, without those that are zero by construction

    // popped: the sums of D_t. before: a_{t-1}. Shares of at most `smallest_share`, and smaller sums of pops, become zero.
    StepShares(const StepWeights<Q, S> &weights, const double *popped, const double *before, double smallest_share) {
        double stay[C] = {}, stay_sum = 0, popped_sum = 0, total = 0, alpha[C];
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < 2 * C; ++d) stay[d % C] += weights.stay[c * 2 * C + d];
        for (int c = 0; c < C; ++c) stay_sum += stay[c], popped_sum += popped[c];
        const double highest = std::max(stay_sum > 0 ? weights.stay_scale + std::log(stay_sum) : -INFINITY,
                                        popped_sum > 0 ? weights.pop_scale + std::log(popped_sum) : -INFINITY);
        growth = highest;
        if (highest == -INFINITY) return;
        const double from_stay = stay_sum > 0 ? std::exp(weights.stay_scale - highest) : 0;
        const double from_pop = popped_sum > 0 ? std::exp(weights.pop_scale - highest) : 0;
        for (int c = 0; c < C; ++c) total += alpha[c] = from_stay * stay[c] + from_pop * popped[c];
        growth += std::log(total);
        double stay_inverse[C];
        for (int c = 0; c < C; ++c) {
            const bool kept = alpha[c] > smallest_share * total, pops = popped[c] >= smallest_share;
            if (!kept || (popped[c] > 0 && !pops)) smallest = 0;
            a[c] = kept ? alpha[c] / total : 0;
            stay_inverse[c] = kept ? from_stay / alpha[c] : 0;
            inverse[c] = kept && pops ? from_pop / alpha[c] : 0;  // at most 1 / popped
        }
        for (int c = 0; c < C; ++c) {
            const double *weight = weights.stay + c * 2 * C;
            double least = INFINITY;
            for (int d = 0; d < C; ++d) {
                pushed[c * C + d] = weight[d] * stay_inverse[d], replaced[c * C + d] = weight[C + d] * stay_inverse[d];
                least = std::min({least, pushed[c * C + d], replaced[c * C + d]});
            }
            if (before[c] > 0) smallest = std::min(smallest, least);
        }
    }
};

}  // namespace fast
