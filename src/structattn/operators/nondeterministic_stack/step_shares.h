// The shares of the total weight after one step: equations (3) and (4) of DERIVATION.md.
#pragma once

#include <algorithm>
#include <cmath>

#include "nondeterministic_stack/step_weights.h"

namespace fast {

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
