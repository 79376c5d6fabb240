// The logistic function and the hyperbolic tangent of arrays, computed in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/vector.h"
#include "stack_rnn/network.h"

namespace stack_rnn {

inline V magnitude(V x) { return x < V{} ? -x : x; }

// 1 / (1 + e^-x)
struct Logistic {
    static V of(V x) {
        const V e = exp_of_negative(-magnitude(x));
        const V y = (x < V{} ? e : splat(1)) / (splat(1) + e);
        return x == x ? y : x;
    }
};

// (1 - e^-2x) / (1 + e^-2x)
struct Tangent {
    static V of(V x) {
        const V e = exp_of_negative(splat(-2) * magnitude(x));
        const V y = (splat(1) - e) / (splat(1) + e);
        return x == x ? (x < V{} ? -y : y) : x;
    }
};

template <class Function, class Number>
void apply_to_vector(Number *x) {
    typedef Number Given __attribute__((vector_size(VL * sizeof(Number))));
    Given given;
    std::memcpy(&given, x, sizeof given);
    given = __builtin_convertvector(Function::of(__builtin_convertvector(given, V)), Given);
    std::memcpy(x, &given, sizeof given);
}

// x[i] = f(x[i])
template <class Function, class Number>
void apply(Number *x, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) apply_to_vector<Function>(x + i);
    if (i == count) return;
    Number rest[VL] = {};
    std::copy(x + i, x + count, rest);
    apply_to_vector<Function>(rest);
    std::copy_n(rest, count - i, x + i);
}

// The pushed vector from the output of the network.
template <class Number>
void push_vector(Pushed pushed, Number *x, int64_t count) {
    if (pushed == Pushed::sigmoid) apply<Logistic>(x, count);
    if (pushed == Pushed::tanh) apply<Tangent>(x, count);
    if (pushed == Pushed::exp)
        for (int64_t i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

// The derivative of that, as a function of its result.
inline double push_slope(Pushed pushed, double y) {
    switch (pushed) {
        case Pushed::sigmoid: return y * (1 - y);
        case Pushed::tanh: return 1 - y * y;
        case Pushed::exp: return y;
        default: return 1;
    }
}

}  // namespace stack_rnn
