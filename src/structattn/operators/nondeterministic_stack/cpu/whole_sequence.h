// One sequence computed at once, given by its logits or by the rows of a projection. The functions are compiled with the
// operator's own kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "nondeterministic_stack/cpu/sequence.h"

// What the tables of a sequence hold: nothing, so that the backward pass computes them again, or blocks of doubles or floats.
enum class Form { recomputed, blocks, blocks_of_floats };

// The number type of a sequence and the form of its tables, stored before them.
constexpr int64_t HEADER = 8;  // a cache line

struct Forwarded {
    Mode mode;
    Outcome outcome;
    Form form;
};

struct Header {
    double *at;
    void set(const Forwarded &done) const {
        at[0] = double(int(done.mode)), at[1] = double(int(done.form));
    }
    Mode mode() const { return Mode(int(at[0])); }
    Form form() const { return Form(int(at[1])); }
    // Whether the backward pass reads the logits, and not the tables alone.
    bool reads_logits() const { return form() == Form::recomputed; }
};

// Computes the readings in the first number type and form that can be trusted. ``floats``: whether tables of floats are
// precise enough; ``only_wide``: whether the range must be unlimited.
Forwarded forward_whole(const Sequence &seq, double *tables, const Outputs &out, bool floats, bool only_wide);
// The gradients, for tables as ``forward_whole`` left them.
void backward_whole(const Sequence &seq, const Header &header, const double *tables, const Cotangents &cot, const InputGradients &grad);
// The doubles that the tables of a sequence of n steps may need, the header included.
int64_t whole_tables_size(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window);

// The inputs of one sequence as doubles, and its results.
struct WholeSequence {
    int64_t n, Q, S, window, columns, first_bad;  // first_bad: the first step (from 0) with NaN or +inf; n if none has
    bool has_values;
    std::vector<double> push, repl, pop, values;

    // With room for `logits` steps, n or none.
    WholeSequence(int64_t n, int64_t Q, int64_t S, int64_t window, int64_t columns, bool has_values, int64_t logits)
        : n(n), Q(Q), S(S), window(window), columns(columns), first_bad(n), has_values(has_values), push(logits * C() * C()),
          repl(logits * C() * C()), pop(logits * C() * Q), values(has_values ? (n + 1) * columns : 0) {}
    int64_t C() const { return Q * S; }
    int64_t width() const { return C() * columns; }

    // Call it when the inputs are there.
    void find_bad_steps() {
        for (int64_t t = n - 1; t >= 0; --t)
            if (!usable(push, t) || !usable(repl, t) || !usable(pop, t)) first_bad = t;
    }
    // Readings [n][Q][S][columns] and log-weights [n]: 0 and -inf without possible transitions, NaN from a bad step on.
    void forward(double *table, double *readings, double *log_weight, bool floats, bool only_wide) const {
        Forwarded done = forward_whole(view(), table + HEADER, {readings, log_weight}, floats, only_wide);
        const int64_t live = done.outcome.live;
        const bool bad = first_bad < n && live == first_bad;
        std::fill(readings + live * width(), readings + n * width(), bad ? NAN : 0.0);
        std::fill(log_weight + live, log_weight + n, bad ? NAN : -INFINITY);
        if (bad) done.mode = Mode::not_a_number;
        Header{table}.set(done);
    }
    // The gradients of the inputs from the cotangents of the outputs, which are scaled.
    void backward(double *table, double *reading_, double *log_weight_, WholeSequence &to) const {
        const Header header{table};
        if (header.mode() == Mode::not_a_number) {
            for (auto *found : {&to.push, &to.repl, &to.pop, &to.values}) std::fill(found->begin(), found->end(), NAN);
            return;
        }
        // Divided by a power of two of their size, they leave the range of floats to what they are multiplied with.
        const double size = header.form() == Form::blocks_of_floats ? size_of(reading_, log_weight_) : 1;
        scale(reading_, n * width(), 1 / size), scale(log_weight_, n, 1 / size);
        backward_whole(view(), header, table + HEADER, {reading_, log_weight_},
                       {to.push.data(), to.repl.data(), to.pop.data(), has_values ? to.values.data() : nullptr});
        for (auto *found : {&to.push, &to.repl, &to.pop, &to.values}) scale(found->data(), found->size(), size);
    }

    // The steps before the first bad one.
    Sequence view() const {
        return {first_bad, Q, S, window, push.data(), repl.data(), pop.data(), columns, has_values ? values.data() : nullptr};
    }

private:
    bool usable(const std::vector<double> &logits, int64_t t) const {
        const int64_t width = logits.size() / n;
        const double *row = logits.data() + t * width;
        bool some = false;
        for (int64_t i = 0; i < width; ++i) some |= !(row[i] < INFINITY);
        return !some;
    }
    double size_of(const double *reading_, const double *log_weight_) const {
        double largest = 0;
        for (int64_t i = 0; i < n * width(); ++i) largest = std::max(largest, std::fabs(reading_[i]));
        for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(log_weight_[i]));
        return largest > 0 && std::isfinite(largest) ? std::ldexp(1.0, std::ilogb(largest)) : 1;
    }
    static void scale(double *x, int64_t count, double factor) {
        for (int64_t i = 0; i < count && factor != 1; ++i) x[i] *= factor;
    }
};

namespace projected {

enum class Activation { sigmoid, exp };

struct Stack {
    int64_t Q, S, m, window;
    Activation activation;
    const double *offsets;  // added to the logits

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
        const double *offset = stack.offsets;
        for (int64_t c = 0; c < C && logits; ++c) {
            for (int64_t i = 0; i < C; ++i) *push++ = double(*from++) + *offset++;
            for (int64_t i = 0; i < C; ++i) *repl++ = double(*from++) + *offset++;
            for (int64_t r = 0; r < Q; ++r) *pop++ = double(*from++) + *offset++;
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
