// The stack of one sequence, step by step, forward and backward: three kinds with the same interface.
//
// A stack receives its arrays, where the forward pass leaves what the backward pass needs, and working memory: room(...)
// uninitialized numbers.
//   start(reading)                        before the first step; returns the first reading
//   advance(t, outputs, reading)          step t = 1.. with the outputs of the network
//   begin_way_back()                      before the first retreat, of the last step
//   retreat(t, reading_, outputs_)        computes the adjoint of the outputs from that of the reading
//   finish(reading_, bottom_)             the gradient of the bottom vector, given the adjoint of the first reading
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/scratch.h"
#include "nondeterministic_stack/cpu/steps.h"
#include "stack_rnn/network.h"
#include "stratified_stack/steps.h"
#include "superposition_stack/tile.h"

namespace stack_rnn {

// The arrays of a stack: stored actions (T, A) and vectors (T, m), and the bottom vector (m).
template <class Number>
struct StackArrays {
    Number *actions, *values;
    const Number *bottom;
};

template <class Number>
class SuperpositionStack {
public:
    SuperpositionStack(const Sizes &sizes, int64_t steps, const StackArrays<Number> &arrays, double *room)
        : sizes(sizes), steps(steps), arrays(arrays), room_(room) {}

    static int64_t room(const Sizes &sizes, int64_t steps, bool way_back) {
        int64_t numbers = 0;
        for (int64_t column = 0; column < sizes.vector; column += superposition::widest_tile)
            numbers += (way_back ? steps + 3 : 2) * tile_at(sizes, steps, {}, column).stack_size();
        return numbers;
    }
    void start(Number *reading) {
        std::fill_n(reading, sizes.vector, Number(0));
        for_each_tile(2, [&](const auto &tile, auto stacks, int64_t) { superposition::begin(tile, stacks, 0); });
    }
    void advance(int64_t t, const Number *outputs, Number *reading) {
        Number *action = arrays.actions + 3 * (t - 1), *value = arrays.values + (t - 1) * sizes.vector;
        softmax(outputs, action);
        std::copy_n(outputs + 3, sizes.vector, value);
        push_vector(sizes.pushed, value, sizes.vector);
        for_each_tile(2, [&](const auto &tile, auto stacks, int64_t column) {
            superposition::advance(tile, t, stacks, (t - 1) % 2, t % 2);
            std::copy_n(stacks.rows(t % 2), tile.columns, reading + column);
        });
    }
    void begin_way_back() {
        for_each_tile(steps + 3, [&](const auto &tile, auto adjoints, int64_t) {
            superposition::Stacks stacks = adjoints.after(2);
            superposition::begin(tile, stacks, 0);
            for (int64_t t = 1; t < steps; ++t) superposition::advance(tile, t, stacks, t - 1, t);
            tile.copy_value(steps, stacks.slot(steps - 1));
            adjoints.make_empty(0), adjoints.make_empty(1);
        });
    }
    void retreat(int64_t t, const Number *reading_, Number *outputs_) {
        const Number *action = arrays.actions + 3 * (t - 1), *value = arrays.values + (t - 1) * sizes.vector;
        double products[3] = {};
        for_each_tile(steps + 3, [&](const auto &tile, auto adjoints, int64_t column) {
            double *adjoint = adjoints.rows(t % 2);
            for (int64_t k = 0; k < tile.columns; ++k) {
                adjoint[k] += reading_[column + k];
                const double value_ = action[0] * adjoint[k];
                outputs_[3 + column + k] = Number(value_ * push_slope(sizes.pushed, value[column + k]));
            }
            double *before = adjoints.after(2).rows(t - 1);
            superposition::retreat(tile, t, before, adjoint, adjoints.rows((t - 1) % 2), products);
        });
        double mean = 0;
        for (int i = 0; i < 3; ++i) mean += products[i] * action[i];
        for (int i = 0; i < 3; ++i) outputs_[i] = Number(action[i] * (products[i] - mean));
    }
    void finish(const Number *, Number *bottom_) { std::fill_n(bottom_, sizes.vector, Number(0)); }

private:
    const Sizes &sizes;
    const int64_t steps;
    const StackArrays<Number> arrays;
    double *const room_;

    static superposition::Tile<Number> tile_at(const Sizes &sizes, int64_t steps, const StackArrays<Number> &arrays,
                                               int64_t column) {
        const int64_t columns = std::min(superposition::widest_tile, sizes.vector - column);
        const int64_t width = superposition::width_of(columns);
        return {arrays.actions, arrays.values + column, nullptr, steps, sizes.vector, columns, width, sizes.depth};
    }
    // Calls body(tile, its `count` stacks, its first column); does nothing without steps.
    template <class Body>
    void for_each_tile(int64_t count, const Body &body) {
        double *numbers = room_;
        for (int64_t column = 0; column < sizes.vector && steps > 0; column += superposition::widest_tile) {
            const auto tile = tile_at(sizes, steps, arrays, column);
            body(tile, superposition::Stacks(numbers, tile.stack_size(), tile.width), column);
            numbers += count * tile.stack_size();
        }
    }
    static void softmax(const Number *logits, Number *shares) {
        const double top = std::max({logits[0], logits[1], logits[2]});
        double weights[3], sum = 0;
        for (int i = 0; i < 3; ++i) sum += weights[i] = std::exp(logits[i] - top);
        for (int i = 0; i < 3; ++i) shares[i] = Number(weights[i] / sum);
    }
};

template <class Number>
class StratifiedStack {
public:
    StratifiedStack(const Sizes &sizes, int64_t steps, const StackArrays<Number> &arrays, double *room)
        : m(sizes.vector), pushed(sizes.pushed), steps(steps), stride(steps + 1), arrays(arrays), rows(room),
          strengths_(rows + (steps + 1) * stride), of_room(strengths_ + stride), values_(of_room + stride),
          reading(values_ + steps * m) {}

    static int64_t room(const Sizes &sizes, int64_t steps, bool) {
        return (steps + 3) * (steps + 1) + (steps + 1) * sizes.vector;
    }
    void start(Number *first) { std::fill_n(first, m, Number(0)); }
    void advance(int64_t t, const Number *outputs, Number *result) {
        Number *action = arrays.actions + 2 * (t - 1), *value = arrays.values + (t - 1) * m;
        std::copy_n(outputs, 2, action);
        apply<Logistic>(action, 2);
        std::copy_n(outputs + 2, m, value);
        push_vector(pushed, value, m);
        step(t);
        stratified::read(rows + t * stride, t, arrays.values, m, reading);
        std::copy_n(reading, m, result);
    }
    void begin_way_back() {
        for (int64_t t = 1; t <= steps; ++t) step(t);
        std::fill_n(strengths_, stride, 0.0), std::fill_n(values_, steps * m, 0.0);
    }
    void retreat(int64_t t, const Number *reading_, Number *outputs_) {
        const Number *action = arrays.actions + 2 * (t - 1), *value = arrays.values + (t - 1) * m;
        std::copy_n(reading_, m, reading);
        stratified::read_backward(rows + t * stride, t, arrays.values, m, reading, strengths_, values_, of_room);
        const double push_ = strengths_[t - 1];
        const double pop_ = stratified::retreat(rows + (t - 1) * stride, t - 1, action[1], strengths_, of_room);
        outputs_[0] = Number(push_ * action[0] * (1 - action[0])), outputs_[1] = Number(pop_ * action[1] * (1 - action[1]));
        for (int64_t k = 0; k < m; ++k) outputs_[2 + k] = Number(values_[(t - 1) * m + k] * push_slope(pushed, value[k]));
    }
    void finish(const Number *, Number *bottom_) { std::fill_n(bottom_, m, Number(0)); }

private:
    const int64_t m;
    const Pushed pushed;
    const int64_t steps, stride;
    const StackArrays<Number> arrays;
    double *const rows, *const strengths_, *const of_room, *const values_, *const reading;

    void step(int64_t t) {
        const Number *action = arrays.actions + 2 * (t - 1);
        stratified::advance(rows + (t - 1) * stride, t - 1, action[0], action[1], rows + t * stride);
    }
};

// Stores the log-weights and the pushed vector of a nondeterministic stack's step.
template <class Number>
void keep_step(const Sizes &sizes, const StackArrays<Number> &arrays, int64_t t, const Number *outputs) {
    Number *value = arrays.values + (t - 1) * sizes.vector;
    std::copy_n(outputs, sizes.actions(), arrays.actions + (t - 1) * sizes.actions());
    std::copy_n(outputs + sizes.actions(), sizes.vector, value);
    push_vector(sizes.pushed, value, sizes.vector);
}

// The outputs have, for each configuration, the log-weights of pushes, replacements and pops.
template <class Number>
void copy_logits(const Sizes &sizes, const Number *outputs, double *push, double *repl, double *pop) {
    const int64_t C = sizes.configurations(), Q = sizes.states;
    for (int64_t c = 0; c < C; ++c, outputs += 2 * C + Q) {
        std::copy_n(outputs, C, push + c * C);
        std::copy_n(outputs + C, C, repl + c * C);
        std::copy_n(outputs + 2 * C, Q, pop + c * Q);
    }
}

// In doubles. Its tables are not kept: the backward pass computes them again.
template <class Number>
class NondeterministicStack {
public:
    NondeterministicStack(const Sizes &sizes, int64_t steps, const StackArrays<Number> &arrays, double *room)
        : sizes(sizes), steps(steps), m(sizes.vector), at(layout(sizes, steps)), arrays(arrays), record{at, room},
          adjoint{at, room + at.size}, mirror(room + at.size + at.adjoint_size) {}

    static RecordLayout layout(const Sizes &sizes, int64_t steps) {
        return {std::max<int64_t>(steps, 1), sizes.states, sizes.symbols, sizes.vector, sizes.window};
    }
    static int64_t room(const Sizes &sizes, int64_t steps, bool way_back) {
        const RecordLayout at = layout(sizes, steps);
        return at.size + (way_back ? at.adjoint_size + ::steps::mirror_size(at) : 0);
    }
    void start(Number *reading) {
        start();
        std::fill(std::copy_n(arrays.bottom, m, reading), reading + at.C() * m, Number(0));
    }
    void advance(int64_t t, const Number *outputs, Number *reading) {
        keep_step(sizes, arrays, t, outputs);
        take_step(t, reading);
    }
    // Takes step t, which is stored.
    void take_step(int64_t t, Number *reading) {
        copy_logits(sizes, arrays.actions + (t - 1) * sizes.actions(), record.push(t), record.repl(t), record.pop(t));
        std::copy_n(arrays.values + (t - 1) * m, m, record.value(t));
        std::vector<double> result(at.C() * m);
        ::steps::forward(record, t, result.data());
        std::copy(result.begin(), result.end(), reading);
    }
    // Takes the stored steps 1..t.
    void replay(int64_t t, Number *reading) {
        start();
        for (int64_t i = 1; i <= t; ++i) take_step(i, reading);
    }
    void begin_way_back() {
        std::vector<Number> reading(at.C() * m);
        replay(steps, reading.data());
        std::fill(adjoint.base, mirror + ::steps::mirror_size(at), 0.0);
    }
    void retreat(int64_t t, const Number *reading_, Number *outputs_) {
        const int64_t C = at.C(), Q = at.Q;
        const std::vector<double> cotangent(reading_, reading_ + C * m);
        std::vector<double> numbers(2 * C * C + C * Q + m);
        double *push = numbers.data(), *repl = push + C * C, *pop = repl + C * C, *value = pop + C * Q;
        ::steps::backward(record, adjoint, mirror, t, cotangent.data(), {push, repl, pop, value});
        for (int64_t c = 0; c < C; ++c, outputs_ += 2 * C + Q) {
            std::copy_n(push + c * C, C, outputs_);
            std::copy_n(repl + c * C, C, outputs_ + C);
            std::copy_n(pop + c * Q, Q, outputs_ + 2 * C);
        }
        const Number *given = arrays.values + (t - 1) * m;
        for (int64_t k = 0; k < m; ++k) outputs_[k] = Number(value[k] * push_slope(sizes.pushed, given[k]));
    }
    void finish(const Number *reading_, Number *bottom_) {
        std::vector<double> sum(m);
        ::steps::backward_of_bottom(adjoint, sum.data());
        for (int64_t k = 0; k < m; ++k) bottom_[k] = Number(sum[k] + reading_[k]);
    }

private:
    const Sizes &sizes;
    const int64_t steps, m;
    const RecordLayout at;
    const StackArrays<Number> arrays;
    const Record record, adjoint;
    double *const mirror;

    void start() {
        std::copy_n(arrays.bottom, m, record.value(0));
        ::steps::start(record);
    }
};

// The stacks of some sequences that take steps together. A group has the interface of a stack, with the numbers of
// the sequences in the group and all moves of a step at once.

struct OfStacks;  // a Purpose for their memory: the steps of the nondeterministic stack use the common Scratch

template <class Number>
struct Member {
    int64_t steps;
    StackArrays<Number> arrays;
};

// Forward the outputs of the network and the reading; backward their adjoints, in the other order.
template <class Number>
struct Move {
    int64_t member;
    const Number *given;
    Number *result;
};

// Stacks that have nothing in common.
template <class Number, class Stack>
class OneByOne {
public:
    OneByOne(const Sizes &sizes, const std::vector<Member<Number>> &members, bool way_back)
        : scratch_(8 * numbers(sizes, members, way_back)) {
        double *room = scratch_.template as<double>();
        for (const Member<Number> &one : members) {
            stacks_.emplace_back(sizes, one.steps, one.arrays, room);
            room += room_of(sizes, one, way_back);
        }
    }
    void start(int64_t member, Number *reading) { stacks_[member].start(reading); }
    void advance(int64_t t, const std::vector<Move<Number>> &moves) {
        for (const Move<Number> &move : moves) stacks_[move.member].advance(t, move.given, move.result);
    }
    void begin_way_back() {
        for (Stack &stack : stacks_) stack.begin_way_back();
    }
    void retreat(int64_t t, const std::vector<Move<Number>> &moves) {
        for (const Move<Number> &move : moves) stacks_[move.member].retreat(t, move.given, move.result);
    }
    void finish(int64_t member, const Number *reading_, Number *bottom_) { stacks_[member].finish(reading_, bottom_); }

private:
    ScratchFor<OfStacks> scratch_;
    std::deque<Stack> stacks_;  // never moved: parts of a stack refer to others

    static int64_t room_of(const Sizes &sizes, const Member<Number> &one, bool way_back) {
        return padded(Stack::room(sizes, one.steps, way_back));
    }
    static int64_t numbers(const Sizes &sizes, const std::vector<Member<Number>> &members, bool way_back) {
        int64_t sum = 0;
        for (const Member<Number> &one : members) sum += room_of(sizes, one, way_back);
        return sum;
    }
};

}  // namespace stack_rnn
