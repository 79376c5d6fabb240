// The weights of one step's transitions, scaled so that none overflows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/vector.h"
#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/tables.h"

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

}  // namespace fast
