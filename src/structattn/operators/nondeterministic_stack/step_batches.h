// Steps of a batch, on arrays given by address: passing tensors costs more than the arithmetic.
#pragma once

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "common/kernels.h"
#include "nondeterministic_stack/steps.h"

namespace steps {

// The records of a batch, stored contiguously, or their adjoints.
struct Batch {
    RecordLayout at;
    int64_t count;

    Batch(int64_t count, int64_t capacity, int64_t Q, int64_t S, int64_t m, int64_t window)
        : at(capacity, Q, S, m, window), count(count) {}
    Record record(uintptr_t address, int64_t b) const { return {at, reinterpret_cast<double *>(address) + b * at.size}; }
    Record adjoint(uintptr_t address, int64_t b) const {
        return {at, reinterpret_cast<double *>(address) + b * at.adjoint_size};
    }
    double *mirror(uintptr_t address, int64_t b) const { return reinterpret_cast<double *>(address) + b * mirror_size(at); }
    // Threads pay off only if a step takes much longer than creating a thread, some 20 µs.
    int useful_threads(int threads, int64_t t) const {
        const int64_t reach = std::min(t, at.window);
        return count * reach * reach * at.C() * at.Q * at.Q < 2000000 ? 1 : threads;
    }
};

// Contiguous rows (B, C, any) with these strides.
template <class Number>
struct Rows {
    uintptr_t address;
    int64_t batch_step, row_step;

    Number *row(int64_t b, int64_t c) const { return reinterpret_cast<Number *>(address) + b * batch_step + c * row_step; }
};

// Logits in the caller's precision, or their gradients.
template <class Number>
struct Transitions {
    Rows<Number> push, repl, pop;

    void read(const Record &record, int64_t b, int64_t t) const {
        const int64_t C = record.at.C(), Q = record.at.Q;
        for (int64_t c = 0; c < C; ++c) {
            std::copy_n(push.row(b, c), C, record.push(t) + c * C);
            std::copy_n(repl.row(b, c), C, record.repl(t) + c * C);
            std::copy_n(pop.row(b, c), Q, record.pop(t) + c * Q);
        }
    }
    void write(const fast::StepGradients &grad, int64_t C, int64_t Q, int64_t b) const {
        for (int64_t c = 0; c < C; ++c) {
            std::copy_n(grad.push + c * C, C, push.row(b, c));
            std::copy_n(grad.repl + c * C, C, repl.row(b, c));
            std::copy_n(grad.pop + c * Q, Q, pop.row(b, c));
        }
    }
};

inline std::tuple<int64_t, int64_t, int64_t> sizes(int64_t capacity, int64_t Q, int64_t S, int64_t m, int64_t window) {
    const RecordLayout at(capacity, Q, S, m, window);
    return {at.size, at.adjoint_size, mirror_size(at)};
}

template <class Number>
void start_batch(uintptr_t records, uintptr_t bottom, int64_t count, int64_t capacity, int64_t Q, int64_t S, int64_t m,
                 int64_t window) {
    const Batch batch(count, capacity, Q, S, m, window);
    for (int64_t b = 0; b < count; ++b) {
        const Record record = batch.record(records, b);
        std::copy_n(reinterpret_cast<const Number *>(bottom), m, record.value(0));
        start(record);
    }
}

template <class Number>
void forward_batch(uintptr_t records, uintptr_t push, int64_t push_batch, int64_t push_row, uintptr_t repl,
                   int64_t repl_batch, int64_t repl_row, uintptr_t pop, int64_t pop_batch, int64_t pop_row, uintptr_t value,
                   uintptr_t reading, int64_t t, int64_t count, int64_t capacity, int64_t Q, int64_t S, int64_t m,
                   int64_t window, int threads) {
    const Batch batch(count, capacity, Q, S, m, window);
    const Transitions<const Number> logits{
        {push, push_batch, push_row}, {repl, repl_batch, repl_row}, {pop, pop_batch, pop_row}};
    const int64_t width = Q * S * m;
    for_each_sequence(count, batch.useful_threads(threads, t), [&](int64_t b) {
        const Record record = batch.record(records, b);
        logits.read(record, b, t);
        std::copy_n(reinterpret_cast<const Number *>(value) + b * m, m, record.value(t));
        std::vector<double> result(width);
        forward(record, t, result.data());
        std::copy_n(result.data(), width, reinterpret_cast<Number *>(reading) + b * width);
    });
}

template <class Number>
void backward_batch(uintptr_t records, uintptr_t adjoints, uintptr_t mirrors, uintptr_t reading_, uintptr_t push_,
                    int64_t push_batch, int64_t push_row, uintptr_t repl_, int64_t repl_batch, int64_t repl_row,
                    uintptr_t pop_, int64_t pop_batch, int64_t pop_row, uintptr_t value_, int64_t t, int64_t count,
                    int64_t capacity, int64_t Q, int64_t S, int64_t m, int64_t window, int threads) {
    const Batch batch(count, capacity, Q, S, m, window);
    const Transitions<Number> gradients{
        {push_, push_batch, push_row}, {repl_, repl_batch, repl_row}, {pop_, pop_batch, pop_row}};
    const int64_t C = Q * S, width = C * m;
    for_each_sequence(count, batch.useful_threads(threads, t), [&](int64_t b) {
        std::vector<double> cotangent(width), numbers(2 * C * C + C * Q + m);
        if (reading_) std::copy_n(reinterpret_cast<const Number *>(reading_) + b * width, width, cotangent.data());
        double *push = numbers.data(), *repl = push + C * C, *pop = repl + C * C, *value = pop + C * Q;
        const fast::StepGradients grad{push, repl, pop, value};
        backward(batch.record(records, b), batch.adjoint(adjoints, b), batch.mirror(mirrors, b), t,
                 reading_ ? cotangent.data() : nullptr, grad);
        gradients.write(grad, C, Q, b);
        std::copy_n(value, m, reinterpret_cast<Number *>(value_) + b * m);
    });
}

// Copies t steps of the members `chosen` of a batch, with capacity for more.
inline void copy_batch(uintptr_t from, int64_t from_capacity, uintptr_t to, int64_t to_capacity, uintptr_t chosen, int64_t t,
                       int64_t count, int64_t Q, int64_t S, int64_t m, int64_t window) {
    const Batch old(count, from_capacity, Q, S, m, window), fresh(count, to_capacity, Q, S, m, window);
    const int64_t *index = reinterpret_cast<const int64_t *>(chosen);
    for (int64_t b = 0; b < count; ++b) copy_record(old.record(from, index[b]), fresh.record(to, b), t);
}

inline void backward_copy_batch(uintptr_t copies, uintptr_t adjoints, int64_t from_capacity, uintptr_t to, int64_t to_capacity,
                                uintptr_t chosen, int64_t t, int64_t count, int64_t Q, int64_t S, int64_t m, int64_t window) {
    const Batch copy(count, from_capacity, Q, S, m, window), old(count, to_capacity, Q, S, m, window);
    const int64_t *index = reinterpret_cast<const int64_t *>(chosen);
    for (int64_t b = 0; b < count; ++b)
        backward_of_copy(copy.record(copies, b), copy.adjoint(adjoints, b), old.adjoint(to, index[b]), t);
}

template <class Number>
void backward_bottom_batch(uintptr_t adjoints, uintptr_t bottom_, int64_t count, int64_t capacity, int64_t Q, int64_t S,
                           int64_t m, int64_t window) {
    const Batch batch(count, capacity, Q, S, m, window);
    std::vector<double> sum(m), one(m);
    for (int64_t b = 0; b < count; ++b) {
        backward_of_bottom(batch.adjoint(adjoints, b), one.data());
        for (int64_t i = 0; i < m; ++i) sum[i] += one[i];
    }
    std::copy_n(sum.data(), m, reinterpret_cast<Number *>(bottom_));
}

template <class Number>
void define(nanobind::module_ &module, const std::string &dtype) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    auto add = [&](const std::string &name, auto function) {
        module.def(("nondeterministic_stack_" + name + "_" + dtype).c_str(), function, Unlocked());
    };
    add("start", &start_batch<Number>), add("step", &forward_batch<Number>), add("step_backward", &backward_batch<Number>);
    add("bottom_backward", &backward_bottom_batch<Number>);
}

inline void define_all(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    define<float>(module, "float32"), define<double>(module, "float64");
    module.def("nondeterministic_stack_copy", &copy_batch, Unlocked());
    module.def("nondeterministic_stack_copy_backward", &backward_copy_batch, Unlocked());
    module.def("nondeterministic_stack_record_sizes", &sizes);
}

}  // namespace steps
