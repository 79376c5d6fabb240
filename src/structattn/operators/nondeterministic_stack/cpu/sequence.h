// One sequence as arrays of doubles, with time as the outermost axis; the sizes that are compiled; the guard of the
// range.
//
// Legend (DuSell & Chiang 2024, section 3.2.2): Q states, S = |Γ| stack symbols, n steps. q, x: state and top symbol
// before a step; r, y: after it. j, k, t: times; step t = 1..n leads from time t-1 to time t.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

constexpr int64_t LANES = 8;  // of the widest instruction set; the layout is the same for all

inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

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

constexpr bool has_compiled_form(int64_t Q, int64_t S) { return Q <= 3 && S <= 3; }

// Calls body(q, s) with the sizes as compile-time constants, and returns whether the kernel is compiled for them.
template <class Body>
bool with_sizes(int64_t Q, int64_t S, const Body &body) {
    auto with = [&](auto q) {
        switch (S) {
            case 1: body(q, std::integral_constant<int, 1>{}); return true;
            case 2: body(q, std::integral_constant<int, 2>{}); return true;
            case 3: body(q, std::integral_constant<int, 3>{}); return true;
            default: return false;
        }
    };
    switch (Q) {
        case 1: return with(std::integral_constant<int, 1>{});
        case 2: return with(std::integral_constant<int, 2>{});
        case 3: return with(std::integral_constant<int, 3>{});
        default: return false;
    }
}

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
