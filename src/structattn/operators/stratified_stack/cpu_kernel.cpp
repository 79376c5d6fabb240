// Stratified stack, forward and backward, of a batch. The equations and their adjoints are in DERIVATION.md; one step of
// each is in steps.h. Strengths and sums are in double precision for all input types.
#include <algorithm>
#include <string>
#include <vector>

#include "common/kernels.h"
#include "common/rows.h"
#include "common/scratch.h"
#include "stratified_stack/steps.h"

namespace {

// The sizes of a call, whose tensors are contiguous and given by address.
template <class Number>
struct Batch {
    Lengths steps;
    int64_t allotted, vector;  // T, m

    template <class Element>
    Element *at(uintptr_t address, int64_t b, int64_t width) const {
        return reinterpret_cast<Element *>(address) + b * allotted * width;
    }
    // Zeros from a sequence's length on.
    void finish(uintptr_t address, int64_t b, int64_t width) const {
        Number *numbers = at<Number>(address, b, width);
        std::fill(numbers + steps[b] * width, numbers + allotted * width, Number(0));
    }
    // Threads pay off only if the work of a sequence takes longer than creating a thread, some 20 µs.
    int useful_threads(int threads) const { return allotted * allotted * (vector + 2) < 200000 ? 1 : threads; }
};

// Sets row t of `rows` to the strengths of t items after step t.
template <class Number>
void fill_strengths(const Number *actions, int64_t steps, int64_t stride, double *rows) {
    for (int64_t t = 1; t <= steps; ++t) {
        const double push = actions[2 * (t - 1)], pop = actions[2 * (t - 1) + 1];
        stratified::advance(rows + (t - 1) * stride, t - 1, push, pop, rows + t * stride);
    }
}

template <class Number>
void forward(const Number *actions, const Number *values, int64_t steps, int64_t m, Number *readings) {
    Scratch scratch((2 * (steps + 1) + m) * sizeof(double));
    double *now = scratch.as<double>(), *next = now + steps + 1, *reading = next + steps + 1;
    for (int64_t t = 1; t <= steps; ++t, std::swap(now, next)) {
        stratified::advance(now, t - 1, actions[2 * (t - 1)], actions[2 * (t - 1) + 1], next);
        stratified::read(next, t, values, m, reading);
        std::copy_n(reading, m, readings + (t - 1) * m);
    }
}

template <class Number>
void backward(const Number *cotangent, const Number *actions, const Number *values, int64_t steps, int64_t m,
              Number *grad_actions, Number *grad_values) {
    const int64_t stride = steps + 1;
    Scratch scratch(((steps + 3) * stride + steps * m + m) * sizeof(double));
    double *rows = scratch.as<double>(), *s_ = rows + (steps + 1) * stride, *of_room = s_ + stride;
    double *values_ = of_room + stride, *reading_ = values_ + steps * m;
    fill_strengths(actions, steps, stride, rows);
    std::fill_n(s_, stride, 0.0), std::fill_n(values_, steps * m, 0.0);
    for (int64_t t = steps; t >= 1; --t) {
        std::copy_n(cotangent + (t - 1) * m, m, reading_);
        stratified::read_backward(rows + t * stride, t, values, m, reading_, s_, values_, of_room);
        grad_actions[2 * (t - 1)] = Number(s_[t - 1]);
        const double pop = actions[2 * (t - 1) + 1];
        grad_actions[2 * (t - 1) + 1] = Number(stratified::retreat(rows + (t - 1) * stride, t - 1, pop, s_, of_room));
    }
    std::copy_n(values_, steps * m, grad_values);
}

template <class Number>
void forward_batch(uintptr_t actions, uintptr_t values, uintptr_t lengths, uintptr_t readings, int64_t count,
                   int64_t allotted, int64_t m, int threads) {
    const Batch<Number> batch{{lengths, count, allotted}, allotted, m};
    for_each_sequence(count, batch.useful_threads(threads), [&](int64_t b) {
        batch.finish(readings, b, m);
        forward(batch.template at<const Number>(actions, b, 2), batch.template at<const Number>(values, b, m),
                batch.steps[b], m, batch.template at<Number>(readings, b, m));
    });
}

template <class Number>
void backward_batch(uintptr_t cotangent, uintptr_t actions, uintptr_t values, uintptr_t lengths, uintptr_t grad_actions,
                    uintptr_t grad_values, int64_t count, int64_t allotted, int64_t m, int threads) {
    const Batch<Number> batch{{lengths, count, allotted}, allotted, m};
    for_each_sequence(count, batch.useful_threads(threads), [&](int64_t b) {
        batch.finish(grad_actions, b, 2), batch.finish(grad_values, b, m);
        backward(batch.template at<const Number>(cotangent, b, m), batch.template at<const Number>(actions, b, 2),
                 batch.template at<const Number>(values, b, m), batch.steps[b], m,
                 batch.template at<Number>(grad_actions, b, 2), batch.template at<Number>(grad_values, b, m));
    });
}

}  // namespace

void register_stratified_stack(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("stratified_stack_forward_float32", &forward_batch<float>, Unlocked());
    module.def("stratified_stack_forward_float64", &forward_batch<double>, Unlocked());
    module.def("stratified_stack_backward_float32", &backward_batch<float>, Unlocked());
    module.def("stratified_stack_backward_float64", &backward_batch<double>, Unlocked());
}
