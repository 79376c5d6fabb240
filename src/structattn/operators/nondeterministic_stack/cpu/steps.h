// Single steps of a batch of sequences, forward and backward, each in the number type that it requires, on arrays given by
// address: passing tensors costs more than the arithmetic.
//
// A record has capacity for a number of steps. It holds their logits and vectors, the number type that each step required,
// and the tables of single steps. Step t writes only its own column, so later steps do not change the record of the first
// t steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/kernels.h"
#include "common/scratch.h"
#include "nondeterministic_stack/cpu/general.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/step_backward.h"
#include "nondeterministic_stack/cpu/step_forward.h"

// Logits and vectors, or their adjoints, followed by tables, or their adjoints.
struct RecordLayout {
    int64_t capacity, Q, S, m, window;
    Layout table;
    fast::AdjointLayout table_adjoint;
    int64_t mode, push, repl, pop, values, tables, size, adjoint_size;

    RecordLayout(int64_t capacity, int64_t Q, int64_t S, int64_t m, int64_t window)
        : capacity(capacity), Q(Q), S(S), m(m), window(window), table(capacity, Q, S, m, window), table_adjoint(table) {
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t begin = end; end += padded(count); return begin; };
        mode = take(capacity + 1);
        push = take(capacity * C() * C());
        repl = take(capacity * C() * C());
        pop = take(capacity * C() * Q);
        values = take((capacity + 1) * m);
        tables = end;
        size = end + (compiled() ? table.size : 0);
        adjoint_size = end + (compiled() ? table_adjoint.size : 0);
    }
    int64_t C() const { return Q * S; }
    bool compiled() const { return has_compiled_form(Q, S); }
};

struct Record {
    const RecordLayout &at;
    double *base;

    double *push(int64_t t) const { return base + at.push + (t - 1) * at.C() * at.C(); }
    double *repl(int64_t t) const { return base + at.repl + (t - 1) * at.C() * at.C(); }
    double *pop(int64_t t) const { return base + at.pop + (t - 1) * at.C() * at.Q; }
    double *value(int64_t t) const { return base + at.values + t * at.m; }
    double *tables() const { return base + at.tables; }

    Mode mode(int64_t t) const { return Mode(int(base[at.mode + t])); }
    void set_mode(int64_t t, Mode mode) const { base[at.mode + t] = int(mode); }

    Sequence steps(int64_t t) const {
        return {t, at.Q, at.S, at.window, base + at.push, base + at.repl, base + at.pop, at.m, base + at.values};
    }
    // Adds the logits and vectors of t steps, or their adjoints, to those of another record.
    void add_inputs_to(const Record &to, int64_t t) const {
        auto add = [&](double *from, double *sum, int64_t count) {
            for (int64_t i = 0; i < count; ++i) sum[i] += from[i];
        };
        const int64_t C = at.C();
        add(push(1), to.push(1), t * C * C), add(repl(1), to.repl(1), t * C * C), add(pop(1), to.pop(1), t * C * at.Q);
        add(value(0), to.value(0), (t + 1) * at.m);
    }
};

// Copies the first t steps to a record of another capacity.
inline void copy_record(const Record &from, const Record &to, int64_t t) {
    const int64_t C = from.at.C();
    std::copy_n(from.base + from.at.mode, t + 1, to.base + to.at.mode);
    std::copy_n(from.push(1), t * C * C, to.push(1));
    std::copy_n(from.repl(1), t * C * C, to.repl(1));
    std::copy_n(from.pop(1), t * C * from.at.Q, to.pop(1));
    std::copy_n(from.value(0), (t + 1) * from.at.m, to.value(0));
    if (from.at.compiled()) copy_tables(from.at.table, from.tables(), to.at.table, to.tables(), t);
}

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
        backward.step(t, reading_, grad);
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
