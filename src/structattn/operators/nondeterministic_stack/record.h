// The stored state of one sequence that is processed step by step, and its adjoint.
//
// A record has capacity for a number of steps. It holds their logits and vectors, the number type that each step required,
// and the fast kernel's tables. Step t writes only its own column, so later steps do not change the record of the first
// t steps.
#pragma once

#include <algorithm>

#include "nondeterministic_stack/fast_backward.h"
#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/sizes.h"
#include "nondeterministic_stack/tables.h"

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
