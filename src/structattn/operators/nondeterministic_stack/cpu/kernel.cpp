// Nondeterministic stack attention on a CPU: batches of sequences in the caller's precision, computed in floats or doubles.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/flush_denormals.h"
#include "common/scratch.h"
#include "common/kernels.h"
#include "common/rows.h"
#include "nondeterministic_stack/cpu/block_backward.h"
#include "nondeterministic_stack/cpu/block_forward.h"
#include "nondeterministic_stack/cpu/general.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/steps.h"
#include "nondeterministic_stack/cpu/whole_sequence.h"

namespace nb = nanobind;

namespace {

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
template <class T>
using In = Array<const T>;
template <class T>
using Optional = std::optional<Array<T>>;

// The run of maximum weight: the recurrences with max instead of sum, in log space, and backtracking.
//
// Only the tables are stored: backtracking searches the term that equals a maximum, which costs no more than a step of
// the recurrence. Ties go to push, replace, pop in that order, then to the lowest index.
class BestRun {
public:
    explicit BestRun(const Sequence &s) : seq(s), C(s.configurations()), Q(s.Q), S(s.S), n(s.n), best((n + 1) * C, -INFINITY) {
        best[0] = 0;
        popped.resize(n + 2), uncovered.resize(n + 2);
        for (int64_t t = 1; t <= n; ++t) {
            popped[t].assign((t - first(t)) * C * Q, -INFINITY);
            uncovered[t].assign((t - first(t)) * C * Q, -INFINITY);
            fill_popped(t);
            fill_uncovered(t);
            fill_best(t);
        }
    }

    // Writes n actions (0 push, 1 replace, 2 pop), states and symbols; -inf and zeros where no run exists.
    double write(int64_t *actions, int64_t *states, int64_t *symbols) {
        const double *last = &best[n * C];
        const int64_t end = std::max_element(last, last + C) - last;
        if (n == 0) return 0;
        if (last[end] == -INFINITY) return -INFINITY;
        action = actions, state = states, symbol = symbols;
        trace_prefix(n, end);
        return last[end];
    }

private:
    const Sequence &seq;
    const int64_t C, Q, S, n;
    std::vector<double> best;                              // of all runs to configuration c at time t
    std::vector<std::vector<double>> popped, uncovered;    // as R and D in DERIVATION.md, with max instead of sum
    int64_t *action = nullptr, *state = nullptr, *symbol = nullptr;

    double push(int64_t t, int64_t from, int64_t to) const { return seq.push[((t - 1) * C + from) * C + to]; }
    double repl(int64_t t, int64_t from, int64_t to) const { return seq.repl[((t - 1) * C + from) * C + to]; }
    double &slot(std::vector<std::vector<double>> &table, int64_t t, int64_t j, int64_t c, int64_t r) {
        return table[t][((j - first(t)) * C + c) * Q + r];
    }
    int64_t first(int64_t t) const { return seq.low(t) - 1; }

    void fill_popped(int64_t t) {
        for (int64_t j = t - 1; j >= seq.low(t); --j)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r) {
                    double &top = slot(popped, t, j, c, r);
                    if (j == t - 1) {
                        top = seq.pop[((t - 1) * C + c) * Q + r];
                        continue;
                    }
                    for (int64_t d = 0; d < C; ++d) top = std::max(top, repl(j + 1, c, d) + slot(popped, t, j + 1, d, r));
                    for (int64_t k = j + 2; k < t; ++k)
                        for (int64_t u = 0; u < Q; ++u)
                            top = std::max(top, slot(uncovered, k, j, c, u) + slot(popped, t, k, u * S + c % S, r));
                }
    }
    void fill_uncovered(int64_t t) {
        for (int64_t k = first(t); k <= t - 2; ++k)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r)
                    for (int64_t d = 0; d < C; ++d) {
                        double &top = slot(uncovered, t, k, c, r);
                        top = std::max(top, push(k + 1, c, d) + slot(popped, t, k + 1, d, r));
                    }
    }
    void fill_best(int64_t t) {
        for (int64_t c = 0; c < C; ++c) {
            double &top = best[t * C + c];
            for (int64_t d = 0; d < C; ++d)
                top = std::max(top, best[(t - 1) * C + d] + std::max(push(t, d, c), repl(t, d, c)));
            for (int64_t k = first(t); k <= t - 2; ++k)
                for (int64_t u = 0; u < Q; ++u) {
                    const int64_t below = u * S + c % S;
                    top = std::max(top, best[k * C + below] + slot(uncovered, t, k, below, c / S));
                }
        }
    }

    void record(int64_t t, int64_t what, int64_t configuration) {
        action[t - 1] = what, state[t - 1] = configuration / S, symbol[t - 1] = configuration % S;
    }

    void trace_prefix(int64_t t, int64_t c) {
        while (t > 0) {
            const double target = best[t * C + c];
            int64_t from = -1;
            for (int64_t d = 0; d < C && from < 0; ++d)
                if (best[(t - 1) * C + d] + push(t, d, c) == target) record(t, 0, c), from = d;
            for (int64_t d = 0; d < C && from < 0; ++d)
                if (best[(t - 1) * C + d] + repl(t, d, c) == target) record(t, 1, c), from = d;
            if (from >= 0) {
                --t, c = from;
                continue;
            }
            const int64_t end = t, reached = c;
            for (int64_t k = first(end); k <= end - 2 && t == end; ++k)
                for (int64_t u = 0; u < Q && t == end; ++u) {
                    const int64_t below = u * S + reached % S;
                    if (best[k * C + below] + slot(uncovered, end, k, below, reached / S) != target) continue;
                    trace_uncovered(end, k, below, reached / S);
                    t = k, c = below;
                }
            if (t == end) return;  // cannot happen: some term equals the maximum
        }
    }

    // From configuration c at time k: a push, and all steps until that slot is popped at t into state r.
    void trace_uncovered(int64_t t, int64_t k, int64_t c, int64_t r) {
        const double target = slot(uncovered, t, k, c, r);
        int64_t d = 0;
        while (d < C - 1 && push(k + 1, c, d) + slot(popped, t, k + 1, d, r) != target) ++d;
        record(k + 1, 0, d);
        trace_popped(t, k + 1, d, r);
        record(t, 2, r * S + c % S);
    }

    // From configuration c at time j until its top slot is popped at t into state r; the pop itself is the caller's.
    void trace_popped(int64_t t, int64_t j, int64_t c, int64_t r) {
        while (j < t - 1) {
            const double target = slot(popped, t, j, c, r);
            const int64_t start = j;
            for (int64_t d = 0; d < C && j == start; ++d)
                if (repl(start + 1, c, d) + slot(popped, t, start + 1, d, r) == target) {
                    record(start + 1, 1, d);
                    ++j, c = d;
                }
            for (int64_t k = start + 2; k < t && j == start; ++k)
                for (int64_t u = 0; u < Q && j == start; ++u) {
                    const int64_t again = u * S + c % S;
                    if (slot(uncovered, k, start, c, u) + slot(popped, t, k, again, r) != target) continue;
                    trace_uncovered(k, start, c, u);
                    j = k, c = again;
                }
            if (j == start) return;  // cannot happen: some term equals the maximum
        }
    }
};

// The logits of a batch and its values, in the caller's precision.
template <class T>
struct Batch {
    In<T> push, repl, pop;
    std::optional<In<T>> values, bottom;
    int64_t window;
    Lengths lengths;

    Batch(In<T> push, In<T> repl, In<T> pop, std::optional<In<T>> values, std::optional<In<T>> bottom,
          const In<int64_t> &lengths, int64_t window)
        : push(push), repl(repl), pop(pop), values(values), bottom(bottom), window(window),
          lengths(reinterpret_cast<uintptr_t>(lengths.data()), size(), T_()) {}

    int64_t T_() const { return push.shape(1); }
    int64_t Q() const { return push.shape(2); }
    int64_t S() const { return push.shape(3); }
    int64_t C() const { return Q() * S(); }
    int64_t columns() const { return values ? int64_t(values->shape(2)) : T_() + 1; }
    int64_t size() const { return push.shape(0); }
};

// One sequence of the batch as doubles, with its logits or without them.
template <class T>
WholeSequence in_doubles(const Batch<T> &batch, int64_t b, bool logits = true) {
    const int64_t n = batch.lengths[b], T_ = batch.T_(), pushes = batch.C() * batch.C(), pops = batch.C() * batch.Q(), m = batch.columns();
    WholeSequence one(n, batch.Q(), batch.S(), batch.window, m, bool(batch.values), logits ? n : 0);
    std::copy_n(batch.push.data() + b * T_ * pushes, one.push.size(), one.push.begin());
    std::copy_n(batch.repl.data() + b * T_ * pushes, one.repl.size(), one.repl.begin());
    std::copy_n(batch.pop.data() + b * T_ * pops, one.pop.size(), one.pop.begin());
    if (batch.values) {
        std::copy_n(batch.bottom->data(), m, one.values.begin());
        std::copy_n(batch.values->data() + b * T_ * m, n * m, one.values.begin() + m);
    }
    one.find_bad_steps();
    return one;
}

template <class T>
void require_room(const Batch<T> &batch, int64_t room) {
    if (room < whole_tables_size(batch.T_(), batch.Q(), batch.S(), batch.columns(), batch.window))
        throw std::length_error("nondeterministic_stack: the tables are too small for the layout");
}

template <class Real, int Q, int S>
bool forward_in_blocks(const Sequence &seq, double *tables, const Outputs &out) {
    using Forward = fast::BlockForward<Real, Q, S>;
    const BlockLayout<Real> layout(seq.n, Q, S, seq.columns, seq.window);
    Scratch room(sizeof(Real) * Forward::room(layout));
    const FlushDenormals flush;  // they count as lost, and are slow
    return Forward(seq, layout, reinterpret_cast<Real *>(tables), room.as<Real>()).run(out);
}

// In the first form whose numbers are trusted.
template <int Q, int S>
Forwarded forward_compiled(const Sequence &seq, double *tables, const Outputs &out, bool floats) {
    if (floats && forward_in_blocks<float, Q, S>(seq, tables, out)) return {Mode::doubles, {seq.n, true}, Form::blocks_of_floats};
    return {Mode::doubles, {seq.n, forward_in_blocks<double, Q, S>(seq, tables, out)}, Form::blocks};
}

template <class Real, int Q, int S>
void backward_in_blocks(const Sequence &seq, const double *tables, const Cotangents &cot, const InputGradients &grad) {
    using Backward = fast::BlockBackward<Real, Q, S>;
    const BlockLayout<Real> layout(seq.n, Q, S, seq.columns, seq.window);
    Scratch room(sizeof(Real) * Backward::room(layout));
    const FlushDenormals flush;
    Backward(seq, layout, reinterpret_cast<const Real *>(tables), room.as<Real>()).run(cot, grad);
}

template <class T>
void forward(In<T> push, In<T> repl, In<T> pop, std::optional<In<T>> values, std::optional<In<T>> bottom,
             In<int64_t> lengths, int64_t window, Array<T> readings, Array<T> log_weight, Array<double> tables, int threads,
             bool only_wide) {
    const Batch<T> batch{push, repl, pop, values, bottom, lengths, window};
    const int64_t T_ = batch.T_(), width = batch.C() * batch.columns();
    require_room(batch, tables.shape(1));
    advise_huge_pages(reinterpret_cast<uintptr_t>(tables.data()), 8 * batch.size() * int64_t(tables.shape(1)));
    for_each_sequence(batch.size(), threads, [&](int64_t b) {
        const WholeSequence one = in_doubles(batch, b);
        std::vector<double> reading(one.n * width), weight(one.n);
        one.forward(tables.data() + b * tables.shape(1), reading.data(), weight.data(), std::is_same_v<T, float>, only_wide);
        T *to = readings.data() + b * T_ * width, *to_weight = log_weight.data() + b * T_;
        std::fill(std::copy(reading.begin(), reading.end(), to), to + T_ * width, T(0));
        std::fill(std::copy(weight.begin(), weight.end(), to_weight), to_weight + T_, T(0));
    });
}

template <class T>
void backward(In<T> push, In<T> repl, In<T> pop, std::optional<In<T>> values, std::optional<In<T>> bottom,
              In<int64_t> lengths, int64_t window, Array<double> tables, In<T> reading_, In<T> log_weight_,
              Array<T> push_, Array<T> repl_, Array<T> pop_, Optional<T> values_, Optional<T> bottom_, int threads) {
    const Batch<T> batch{push, repl, pop, values, bottom, lengths, window};
    const int64_t T_ = batch.T_(), C = batch.C(), m = batch.columns(), width = C * m;
    for_each_sequence(batch.size(), threads, [&](int64_t b) {
        double *table = tables.data() + b * tables.shape(1);
        const WholeSequence one = in_doubles(batch, b, Header{table}.reads_logits());
        const T *reading_from = reading_.data() + b * T_ * width, *weight_from = log_weight_.data() + b * T_;
        std::vector<double> reading_cot(reading_from, reading_from + one.n * width);
        std::vector<double> weight_cot(weight_from, weight_from + one.n);
        WholeSequence found(one.n, one.Q, one.S, one.window, m, bool(values_), one.n);
        one.backward(table, reading_cot.data(), weight_cot.data(), found);
        auto write = [&](const double *from, int64_t count, T *to, int64_t room) {
            std::fill(std::copy_n(from, count, to), to + room, T(0));
        };
        write(found.push.data(), found.push.size(), push_.data() + b * T_ * C * C, T_ * C * C);
        write(found.repl.data(), found.repl.size(), repl_.data() + b * T_ * C * C, T_ * C * C);
        write(found.pop.data(), found.pop.size(), pop_.data() + b * T_ * C * batch.Q(), T_ * C * batch.Q());
        if (values_) {
            write(found.values.data(), m, bottom_->data() + b * m, m);
            write(found.values.data() + m, one.n * m, values_->data() + b * T_ * m, T_ * m);
        }
    });
}

template <class T>
void best_run(In<T> push, In<T> repl, In<T> pop, In<int64_t> lengths, int64_t window, Array<int64_t> actions,
              Array<int64_t> states, Array<int64_t> symbols, Array<T> log_weight, int threads) {
    const Batch<T> batch{push, repl, pop, {}, {}, lengths, window};
    const int64_t T_ = batch.T_();
    for_each_sequence(batch.size(), threads, [&](int64_t b) {
        const WholeSequence one = in_doubles(batch, b);
        log_weight.data()[b] = one.first_bad < one.n ? T(NAN)
                             : T(BestRun(one.view()).write(actions.data() + b * T_, states.data() + b * T_, symbols.data() + b * T_));
    });
}

template <class T>
void define(nb::module_ &module) {
    using namespace nb::literals;
    const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
    // Without conversion: a copy in another dtype or layout would be a temporary one, also of an output.
    const auto array = [](const char *name) { return nb::arg(name).noconvert(); };
    const auto optional = [](const char *name) { return nb::arg(name).none().noconvert(); };
    module.def("nondeterministic_stack_forward", &forward<T>, array("push"), array("replace"), array("pop"), optional("values"),
               optional("bottom"), array("lengths"), "window"_a, array("readings"), array("log_weight"), array("tables"), "threads"_a,
               "only_wide"_a, unlocked);
    module.def("nondeterministic_stack_backward", &backward<T>, array("push"), array("replace"), array("pop"), optional("values"),
               optional("bottom"), array("lengths"), "window"_a, array("tables"), array("grad_readings"), array("grad_log_weight"),
               array("grad_push"), array("grad_replace"), array("grad_pop"), optional("grad_values"), optional("grad_bottom"),
               "threads"_a, unlocked);
    module.def("nondeterministic_stack_best_run", &best_run<T>, array("push"), array("replace"), array("pop"), array("lengths"),
               "window"_a, array("actions"), array("states"), array("symbols"), array("log_weight"), "threads"_a, unlocked);
}

}  // namespace

Forwarded forward_whole(const Sequence &seq, double *tables, const Outputs &out, bool floats, bool only_wide) {
    Forwarded done{Mode::doubles, {0, false}, Form::recomputed};
    const bool compiled = !only_wide && with_sizes(seq.Q, seq.S, [&](auto q, auto s) {
        done = forward_compiled<q, s>(seq, tables, out, floats);
    });
    if (!compiled && !only_wide) done.outcome = general::Tables<Plain>(seq).forward(out);
    if (done.outcome.trusted) return done;
    return {Mode::wide, general::Tables<Wide>(seq).forward(out), Form::recomputed};
}

void backward_whole(const Sequence &seq, const Header &header, const double *tables, const Cotangents &cot, const InputGradients &grad) {
    with_sizes(seq.Q, seq.S, [&](auto q, auto s) {
        if (header.form() == Form::blocks_of_floats) backward_in_blocks<float, q, s>(seq, tables, cot, grad);
        if (header.form() == Form::blocks) backward_in_blocks<double, q, s>(seq, tables, cot, grad);
    });
    if (header.form() != Form::recomputed) return;
    std::vector<double> readings(seq.n * seq.configurations() * seq.columns), log_weight(seq.n);
    const Outputs out{readings.data(), log_weight.data()};
    auto again = [&](auto tables_of_kind) {
        const Outcome outcome = tables_of_kind.forward(out);
        tables_of_kind.backward(outcome, cot, grad);
    };
    if (header.mode() == Mode::wide) again(general::Tables<Wide>(seq));
    else again(general::Tables<Plain>(seq));
}

int64_t whole_tables_size(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window) {
    if (!has_compiled_form(Q, S)) return HEADER;
    return HEADER + BlockLayout<double>(n, Q, S, columns, window).size;
}

void register_nondeterministic_stack(nb::module_ &module) {
    define<float>(module);
    define<double>(module);
    steps::define_all(module);
}
