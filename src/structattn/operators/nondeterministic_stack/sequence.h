// One sequence as arrays of doubles, with time as the outermost axis.
//
// Legend (DuSell & Chiang 2024, section 3.2.2): Q states, S = |Γ| stack symbols, n steps. q, x: state and top symbol
// before a step; r, y: after it. j, k, t: times; step t = 1..n leads from time t-1 to time t.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// The numbers that a sequence, or a step, required.
enum class Mode { doubles, wide, not_a_number, nothing_allowed };

// The logits of one step.
struct StepLogits {
    int64_t C, Q;
    const double *push, *repl;  // [C][C]
    const double *pop;          // [C][Q]
    bool pops;                  // whether there is an item to pop: not in the first step

    bool usable() const {
        const auto below_infinity = [](const double *x, int64_t count) {
            return std::all_of(x, x + count, [](double logit) { return logit < INFINITY; });
        };
        return below_infinity(push, C * C) && below_infinity(repl, C * C) && below_infinity(pop, C * Q);
    }
};

struct Sequence {
    int64_t n, Q, S;
    int64_t window;             // a pop at t removes only slots pushed at t - window or later
    const double *push, *repl;  // [n][Q][S][Q][S] logits
    const double *pop;          // [n][Q][S][Q] logits
    int64_t columns;            // of the readings: the size m of a vector, or n_max + 1 for the attention weights
    const double *values;       // [n + 1][columns], row 0 the bottom vector; null: the identity matrix

    int64_t configurations() const { return Q * S; }
    StepLogits step(int64_t t) const {
        const int64_t C = configurations(), i = (t - 1) * C;
        return {C, Q, push + i * C, repl + i * C, pop + i * Q, t > 1};
    }
    // The value of column c of the vector pushed at time k.
    double value(int64_t k, int64_t c) const { return values ? values[k * columns + c] : double(k == c); }
    // The first time whose vector can be nonzero in column c.
    int64_t first_time(int64_t c) const { return values ? 0 : c; }
    // The earliest push that a pop at t can undo.
    int64_t low(int64_t t) const { return std::max<int64_t>(t - window, 1); }
};

struct Outputs {
    double *readings;    // [n][Q][S][columns]
    double *log_weight;  // [n]
};

struct Cotangents {
    const double *readings;    // as in Outputs
    const double *log_weight;
};

struct InputGradients {
    double *push, *repl, *pop;  // like the logits
    double *values;             // [n + 1][columns]; null with Sequence::values
};

// Status of a forward pass.
struct Outcome {
    int64_t live;   // steps before the first without possible transitions; n if there is none
    bool trusted;   // false: numbers may have left the range of a double, and the result must not be used
};
