// Nondeterministic stacks of some sequences in floats, together in the lanes of vectors. A sequence that leaves the range of
// floats is computed alone, in doubles, from its first step.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "common/flush_denormals.h"
#include "common/scratch.h"
#include "nondeterministic_stack/cpu/lanes.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "stack_rnn/stacks.h"

namespace stack_rnn {

// For at most L members.
template <int L>
class NondeterministicLanes {
    using F = lanes::Floats<L>;

public:
    NondeterministicLanes(const Sizes &sizes, const std::vector<Member<float>> &members, bool way_back)
        : sizes(sizes), C(sizes.configurations()), M(sizes.vector), members(members), at(layout(sizes, members)),
          scratch(bytes(at, way_back)), pieces(scratch.as<F>()), tables(at, pieces, way_back), alone(members.size()),
          logits(L * sizes.actions()), readings(C * M) {
        if (way_back) adjoints.emplace(at, pieces), cotangents.resize(members.size() * at.n * C * M);
        std::fill_n(tables.values, M, F{});
        for (size_t i = 0; i < members.size(); ++i) set_lane(members[i].arrays.bottom, i, tables.values, M);
        with_sizes(sizes.states, sizes.symbols, [&](auto q, auto s) { lanes::Forward<q, s, L>(tables).start(lost); });
    }
    void start(int64_t member, float *reading) {
        std::fill(std::copy_n(members[member].arrays.bottom, M, reading), reading + C * M, 0.0f);
    }
    void advance(int64_t t, const std::vector<Move<float>> &moves) {
        for (const Move<float> &move : moves) keep_step(sizes, members[move.member].arrays, t, move.given);
        const Trusted trusted = take_step(t);
        for (const Move<float> &move : moves) {
            std::optional<Alone> &one = alone[move.member];
            if (one) one->stack.take_step(t, move.result);
            else if (trusted[move.member]) copy_lane(readings.data(), C * M, move.member, move.result);
            else one.emplace(sizes, members[move.member], false).stack.replay(t, move.result);
        }
    }
    // Computes the tables again, as the forward pass did.
    void begin_way_back() {
        for (int64_t t = 1; t <= at.n; ++t) {
            const Trusted trusted = take_step(t);
            for (size_t i = 0; i < members.size(); ++i)
                if (t <= members[i].steps && !alone[i] && !trusted[i]) go_back_alone(i, members[i].steps + 1);
        }
        adjoints->clear(at);
    }
    void retreat(int64_t t, const std::vector<Move<float>> &moves) {
        const int64_t of_pops = C * sizes.states;
        std::vector<F> readings_(C * M), gradients(2 * C * C + of_pops + M);
        for (const Move<float> &move : moves) {
            std::copy_n(move.given, C * M, cotangent(move.member, t));
            if (!alone[move.member]) set_lane(move.given, move.member, readings_.data(), C * M);
        }
        F *push = gradients.data(), *repl = push + C * C, *pop = repl + C * C, *value = pop + of_pops;
        if (!all_alone()) {
            const FlushDenormals flush;
            with_sizes(sizes.states, sizes.symbols, [&](auto q, auto s) {
                lanes::Backward<q, s, L>(tables, *adjoints).step(t, readings_.data(), {push, repl, pop, value});
            });
        }
        for (const Move<float> &move : moves) {
            if (!alone[move.member]) {
                write_outputs_(move.member, t, {push, repl, pop, value}, move.result);
                if (all_finite(move.result, sizes.outputs())) continue;
                go_back_alone(move.member, t + 1);
            }
            alone[move.member]->stack.retreat(t, move.given, move.result);
        }
    }
    void finish(int64_t member, const float *reading_, float *bottom_) {
        if (!alone[member]) {
            copy_lane(adjoints->E_, M, member, bottom_);
            for (int64_t k = 0; k < M; ++k) bottom_[k] += reading_[k];
            if (all_finite(bottom_, M)) return;
            go_back_alone(member, 1);
        }
        alone[member]->stack.finish(reading_, bottom_);
    }

private:
    using Trusted = std::array<bool, L>;
    struct Alone {
        std::vector<double> room;
        NondeterministicStack<float> stack;

        Alone(const Sizes &sizes, const Member<float> &member, bool way_back)
            : room(NondeterministicStack<float>::room(sizes, member.steps, way_back)),
              stack(sizes, member.steps, member.arrays, room.data()) {}
    };

    const Sizes &sizes;
    const int64_t C, M;
    const std::vector<Member<float>> members;
    const lanes::Layout at;
    ScratchFor<OfStacks> scratch;
    Pieces<F> pieces;
    const lanes::Tables<F> tables;
    std::optional<lanes::Adjoints<F>> adjoints;  // on the way back
    std::vector<std::optional<Alone>> alone;
    lanes::Lost<L> lost;
    std::vector<double> logits;     // of the current step
    std::vector<F> readings;        // of the current step
    std::vector<float> cotangents;  // of all readings, on the way back

    static lanes::Layout layout(const Sizes &sizes, const std::vector<Member<float>> &members) {
        int64_t n = 0;
        for (const Member<float> &one : members) n = std::max(n, one.steps);
        return {n, sizes.states, sizes.symbols, sizes.vector, sizes.window};
    }
    static int64_t bytes(const lanes::Layout &at, bool way_back) {
        Pieces<F> pieces(nullptr);
        lanes::Tables<F>(at, pieces, way_back);
        if (way_back) lanes::Adjoints<F>(at, pieces);
        return pieces.bytes();
    }
    static void set_lane(const float *from, int64_t lane, F *to, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[i][lane] = from[i];
    }
    static void copy_lane(const F *from, int64_t count, int64_t lane, float *to) {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i][lane];
    }
    float *cotangent(int64_t member, int64_t t) { return cotangents.data() + (member * at.n + t - 1) * C * M; }

    // Takes the stored step t of all sequences that have not ended or left; the others are not trusted.
    Trusted take_step(int64_t t) {
        std::array<StepLogits, L> steps;
        Trusted trusted{};
        if (all_alone()) return trusted;
        std::fill_n(tables.values + t * M, M, F{});
        for (size_t i = 0; i < members.size(); ++i) {
            if (t > members[i].steps || alone[i]) continue;
            const StackArrays<float> &arrays = members[i].arrays;
            double *push = logits.data() + i * sizes.actions(), *repl = push + C * C, *pop = repl + C * C;
            copy_logits(sizes, arrays.actions + (t - 1) * sizes.actions(), push, repl, pop);
            set_lane(arrays.values + (t - 1) * M, i, tables.values + t * M, M);
            steps[i] = {C, sizes.states, push, repl, pop, t > 1};
            trusted[i] = steps[i].usable();
        }
        const FlushDenormals flush;
        with_sizes(sizes.states, sizes.symbols, [&](auto q, auto s) {
            lanes::Forward<q, s, L>(tables).step(t, steps.data(), lost, trusted.data(), readings.data());
        });
        return trusted;
    }
    // Computes a sequence alone, and retreats from its last step to step t: with its cotangents, gradients overflow in floats.
    void go_back_alone(int64_t member, int64_t t) {
        auto &stack = alone[member].emplace(sizes, members[member], true).stack;
        std::vector<float> outputs_(sizes.outputs());
        stack.begin_way_back();
        for (int64_t later = members[member].steps; later >= t; --later)
            stack.retreat(later, cotangent(member, later), outputs_.data());
    }
    bool all_alone() const {
        return std::all_of(alone.begin(), alone.end(), [](const auto &one) { return one.has_value(); });
    }
    static bool all_finite(const float *x, int64_t count) {
        return std::all_of(x, x + count, [](float number) { return std::isfinite(number); });
    }
    void write_outputs_(int64_t member, int64_t t, const lanes::StepGradients<F> &grad, float *outputs_) const {
        const int64_t Q = sizes.states;
        for (int64_t c = 0; c < C; ++c, outputs_ += 2 * C + Q) {
            copy_lane(grad.push + c * C, C, member, outputs_);
            copy_lane(grad.repl + c * C, C, member, outputs_ + C);
            copy_lane(grad.pop + c * Q, Q, member, outputs_ + 2 * C);
        }
        const float *given = members[member].arrays.values + (t - 1) * M;
        for (int64_t k = 0; k < M; ++k) outputs_[k] = float(grad.value[k][member] * push_slope(sizes.pushed, given[k]));
    }
};

}  // namespace stack_rnn
