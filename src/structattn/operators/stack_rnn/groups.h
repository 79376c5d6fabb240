// The stacks of some sequences that take steps together. A group has the interface of a stack (stacks.h), with the numbers of
// the sequences in the group and all moves of a step at once.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "common/scratch.h"
#include "stack_rnn/stacks.h"

namespace stack_rnn {

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
