// A step of one sequence, forward and backward, in the number type that it requires.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/scratch.h"
#include "nondeterministic_stack/fast_backward.h"
#include "nondeterministic_stack/fast_forward.h"
#include "nondeterministic_stack/general.h"
#include "nondeterministic_stack/record.h"
#include "nondeterministic_stack/sizes.h"

namespace steps {

inline void start(const Record &record) {
    record.set_mode(0, Mode::doubles);
    const Sequence none = record.steps(0);
    with_sizes(record.at.Q, record.at.S, [&](auto q, auto s) {
        fast::Forward<q, s>(none, record.at.table, record.tables(), nullptr).start();
    });
}

// Recomputes all steps; false if the last reading is unreliable or does not exist.
template <class Real>
bool recompute(const Record &record, int64_t t, double *reading) {
    const Sequence seq = record.steps(t);
    const int64_t width = record.at.C() * record.at.m;
    std::vector<double> readings(t * width), log_weight(t);
    const Outcome outcome = general::Tables<Real>(seq).forward({readings.data(), log_weight.data()});
    std::copy_n(readings.end() - width, width, reading);
    return outcome.trusted && outcome.live == t;
}

inline bool forward_in_doubles(const Record &record, int64_t t, double *reading) {
    bool trusted = false;
    const bool compiled = with_sizes(record.at.Q, record.at.S, [&](auto q, auto s) {
        using Forward = fast::Forward<q, s>;
        Scratch room(8 * Forward::room(record.at.table));
        trusted = Forward(record.steps(t), record.at.table, record.tables(), room.as<double>()).step(t, reading);
    });
    return compiled ? trusted : recompute<Plain>(record, t, reading);
}

// The reading of step t, whose logits and vector are already in the record.
inline void forward(const Record &record, int64_t t, double *reading) {
    Mode mode = record.mode(t - 1);
    if (mode != Mode::nothing_allowed && !record.steps(t).step(t).usable()) mode = Mode::not_a_number;
    if (mode == Mode::doubles && !forward_in_doubles(record, t, reading)) mode = Mode::wide;
    if (mode == Mode::wide && !recompute<Wide>(record, t, reading)) mode = Mode::nothing_allowed;
    const int64_t width = record.at.C() * record.at.m;
    if (mode == Mode::not_a_number) std::fill_n(reading, width, NAN);
    if (mode == Mode::nothing_allowed) std::fill_n(reading, width, 0.0);
    record.set_mode(t, mode);
}

// Adds the gradients of one reading, of all inputs up to its step, to the adjoint's inputs.
template <class Real>
void add_gradients_of_all(const Record &record, const Record &adjoint, int64_t t, const double *reading_) {
    const Sequence seq = record.steps(t);
    const int64_t width = record.at.C() * record.at.m;
    std::vector<double> readings(t * width), log_weight(t), gradients(record.at.tables);
    general::Tables<Real> tables(seq);
    const Outcome outcome = tables.forward({readings.data(), log_weight.data()});
    std::fill(readings.begin(), readings.end(), 0.0), std::fill(log_weight.begin(), log_weight.end(), 0.0);
    std::copy_n(reading_, width, readings.end() - width);
    const Record grad{record.at, gradients.data()};
    tables.backward(outcome, {readings.data(), log_weight.data()}, {grad.push(1), grad.repl(1), grad.pop(1), grad.value(0)});
    grad.add_inputs_to(adjoint, t);
}

inline void add_nan(const Record &record, const Record &adjoint, int64_t t) {
    const std::vector<double> bad(record.at.tables, NAN);
    Record{record.at, const_cast<double *>(bad.data())}.add_inputs_to(adjoint, t);
}

// W transposed and reversed, for the backward solve: a number of rows, and a table.
inline int64_t mirror_size(const RecordLayout &at) { return at.compiled() ? LANES + at.table.rows_size() : 0; }

template <class Backward>
Backward backward_of(const Sequence &seq, const Record &record, const Record &adjoint, double *mirror, double *room) {
    return {seq, record.at.table, record.at.table_adjoint, record.tables(), mirror + LANES, adjoint.tables(), room};
}

inline bool backward_in_doubles(const Record &record, const Record &adjoint, double *mirror, int64_t t,
                                const double *reading_, const fast::StepGradients &grad) {
    return with_sizes(record.at.Q, record.at.S, [&](auto q, auto s) {
        using Backward = fast::Backward<q, s>;
        const Sequence seq = record.steps(t);
        Scratch room(8 * Backward::room(record.at.table));
        auto backward = backward_of<Backward>(seq, record, adjoint, mirror, room.as<double>());
        const int64_t mirrored = int64_t(mirror[0]);
        if (mirrored < t) backward.mirror_tables(mirrored + 1, t), mirror[0] = double(t);
        backward.step(t, reading_, 0, grad);
    });
}

// The gradients of step t and the adjoint of the record up to t - 1, from that up to t and that of the reading (null:
// zeros).
inline void backward(const Record &record, const Record &adjoint, double *mirror, int64_t t, const double *reading_,
                     const fast::StepGradients &grad) {
    const Mode mode = record.mode(t);
    const bool fast = mode == Mode::doubles && backward_in_doubles(record, adjoint, mirror, t, reading_, grad);
    if (reading_ && mode == Mode::doubles && !fast) add_gradients_of_all<Plain>(record, adjoint, t, reading_);
    if (reading_ && mode == Mode::wide) add_gradients_of_all<Wide>(record, adjoint, t, reading_);
    if (reading_ && mode == Mode::not_a_number) add_nan(record, adjoint, t);
    const int64_t C = record.at.C();
    auto finish = [&](double *to, const double *from, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[i] = (fast ? to[i] : 0) + from[i];
    };
    finish(grad.push, adjoint.push(t), C * C), finish(grad.repl, adjoint.repl(t), C * C);
    finish(grad.pop, adjoint.pop(t), C * record.at.Q), finish(grad.value, adjoint.value(t), record.at.m);
}

// Adds the adjoint of a copy of the first t steps to that of the record they were copied from.
inline void backward_of_copy(const Record &copy, const Record &adjoint, const Record &to, int64_t t) {
    adjoint.add_inputs_to(to, t);
    with_sizes(copy.at.Q, copy.at.S, [&](auto q, auto s) {
        using Backward = fast::Backward<q, s>;
        const Sequence seq = copy.steps(t);
        Scratch room(8 * Backward::room(copy.at.table));
        backward_of<Backward>(seq, copy, adjoint, room.as<double>(), room.as<double>()).settle(t);
        fast::add_adjoint(copy.at.table, adjoint.tables(), to.at.table, to.tables(), t);
    });
}

// The adjoint of the bottom vector, from that of the record of no steps.
inline void backward_of_bottom(const Record &adjoint, double *value_) {
    const RecordLayout &at = adjoint.at;
    std::copy_n(adjoint.value(0), at.m, value_);
    const double *E_ = adjoint.tables() + at.table_adjoint.E_;
    for (int64_t i = 0; i < at.m && at.compiled(); ++i) value_[i] += E_[i * at.table.times];
}

}  // namespace steps
