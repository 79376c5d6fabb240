// Stacks whose logits and vectors are the rows of one projection: for each configuration push (r, y), replace (r, y) and
// pop (r), then the vector before its activation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "nondeterministic_stack/whole_sequence.h"

namespace projected {

enum class Activation { sigmoid, exp };

struct Stack {
    int64_t Q, S, m, window;
    Activation activation;
    double pop_offset;  // added to the logits of pops

    int64_t C() const { return Q * S; }
    int64_t outputs() const { return C() * (2 * C() + Q) + m; }
    int64_t reading() const { return C() * m; }
};

inline double activated(Activation activation, double x) {
    return activation == Activation::exp ? std::exp(x) : 1 / (1 + std::exp(-x));
}
inline double slope(Activation activation, double y) { return activation == Activation::exp ? y : y * (1 - y); }

// The sequence of n rows, `stride` apart, with its logits or without them; ``bottom`` is the bottom vector before its sigmoid.
template <class Number>
WholeSequence sequence(const Stack &stack, int64_t n, const Number *rows, int64_t stride, const Number *bottom, bool logits = true) {
    const int64_t C = stack.C(), Q = stack.Q;
    WholeSequence one(n, Q, stack.S, stack.window, stack.m, true, logits ? n : 0);
    double *push = one.push.data(), *repl = one.repl.data(), *pop = one.pop.data(), *value = one.values.data();
    for (int64_t i = 0; i < stack.m; ++i) *value++ = activated(Activation::sigmoid, bottom[i]);
    for (int64_t t = 0; t < n; ++t, rows += stride) {
        const Number *from = rows;
        for (int64_t c = 0; c < C && logits; ++c) {
            push = std::copy_n(from, C, push), repl = std::copy_n(from + C, C, repl);
            for (int64_t r = 0; r < Q; ++r) *pop++ = double(from[2 * C + r]) + stack.pop_offset;
            from += 2 * C + Q;
        }
        for (int64_t i = 0; i < stack.m; ++i) *value++ = activated(stack.activation, rows[C * (2 * C + Q) + i]);
    }
    one.find_bad_steps();
    return one;
}

template <class Number>
void forward(const Stack &stack, int64_t n, const Number *rows, int64_t stride, const Number *bottom, double *table,
             Number *readings, int64_t reading_stride) {
    const WholeSequence one = sequence(stack, n, rows, stride, bottom);
    std::vector<double> reading(n * stack.reading()), log_weight(n);
    one.forward(table, reading.data(), log_weight.data(), sizeof(Number) == sizeof(float), false);
    for (int64_t t = 0; t < n; ++t)
        std::copy_n(reading.data() + t * stack.reading(), stack.reading(), readings + t * reading_stride);
}

// Writes the gradient of the rows, and adds that of the bottom vector before its sigmoid.
template <class Number>
void backward(const Stack &stack, int64_t n, const Number *rows, int64_t stride, const Number *bottom, double *table,
              const Number *grad_readings, int64_t reading_stride, Number *grad_rows, Number *grad_bottom) {
    const int64_t C = stack.C(), Q = stack.Q, m = stack.m;
    const WholeSequence one = sequence(stack, n, rows, stride, bottom, Header{table}.reads_logits());
    WholeSequence found(n, Q, stack.S, stack.window, m, true, n);
    std::vector<double> reading_(n * stack.reading()), log_weight_(n);
    for (int64_t t = 0; t < n; ++t)
        std::copy_n(grad_readings + t * reading_stride, stack.reading(), reading_.data() + t * stack.reading());
    one.backward(table, reading_.data(), log_weight_.data(), found);
    const double *push = found.push.data(), *repl = found.repl.data(), *pop = found.pop.data();
    for (int64_t i = 0; i < m; ++i) grad_bottom[i] += Number(found.values[i] * slope(Activation::sigmoid, one.values[i]));
    for (int64_t t = 0; t < n; ++t, grad_rows += stride) {
        Number *to = grad_rows;
        for (int64_t c = 0; c < C; ++c, push += C, repl += C, pop += Q)
            to = std::copy_n(pop, Q, std::copy_n(repl, C, std::copy_n(push, C, to)));
        for (int64_t i = (t + 1) * m; i < (t + 2) * m; ++i)
            *to++ = Number(found.values[i] * slope(stack.activation, one.values[i]));
    }
}

}  // namespace projected
