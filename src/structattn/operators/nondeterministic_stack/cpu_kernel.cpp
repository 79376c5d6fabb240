// Nondeterministic stack attention on a CPU: batches of sequences in the caller's precision, computed in floats or doubles.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/huge_pages.h"
#include "common/kernels.h"
#include "common/lengths.h"
#include "common/scratch.h"
#include "nondeterministic_stack/best_run.h"
#include "nondeterministic_stack/block_backward.h"
#include "nondeterministic_stack/block_forward.h"
#include "nondeterministic_stack/fast_backward.h"
#include "nondeterministic_stack/fast_forward.h"
#include "nondeterministic_stack/general.h"
#include "nondeterministic_stack/record.h"
#include "nondeterministic_stack/sizes.h"
#include "nondeterministic_stack/step_batches.h"

namespace nb = nanobind;

namespace {

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
template <class T>
using In = Array<const T>;
template <class T>
using Optional = std::optional<Array<T>>;

// What the tables of a sequence hold: single steps in doubles, or blocks in doubles or floats.
enum class Form { steps, blocks, blocks_of_floats };

// The number type of a sequence and the form of its tables, stored before them.
constexpr int64_t HEADER = LANES;

struct Forwarded {
    Mode mode;
    Outcome outcome;
    Form form;
};

struct Header {
    double *at;
    void set(const Forwarded &done) const {
        at[0] = double(int(done.mode)), at[1] = double(done.outcome.live), at[2] = double(int(done.form));
    }
    Mode mode() const { return Mode(int(at[0])); }
    int64_t live() const { return int64_t(at[1]); }
    Form form() const { return Form(int(at[2])); }
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

// One sequence of the batch as doubles.
template <class T>
class Doubles {
public:
    Doubles(const Batch<T> &batch, int64_t b) : n(batch.lengths[b]) {
        const int64_t C = batch.C(), T_ = batch.T_(), pushes = C * C, pops = C * batch.Q();
        copy(push, batch.push.data() + b * T_ * pushes, n * pushes);
        copy(repl, batch.repl.data() + b * T_ * pushes, n * pushes);
        copy(pop, batch.pop.data() + b * T_ * pops, n * pops);
        if (batch.values) {
            const int64_t m = batch.columns();
            values.assign(batch.bottom->data(), batch.bottom->data() + m);
            const T *first = batch.values->data() + b * T_ * m;
            values.insert(values.end(), first, first + n * m);
        }
        first_bad = n;
        for (int64_t t = n - 1; t >= 0; --t)
            if (!usable(push, t, pushes) || !usable(repl, t, pushes) || !usable(pop, t, pops)) first_bad = t;
        view = Sequence{first_bad, batch.Q(), batch.S(), batch.window, push.data(), repl.data(), pop.data(), batch.columns(),
                        batch.values ? values.data() : nullptr};
    }
    int64_t n;
    int64_t first_bad;  // the first step (from 0) whose logits hold NaN or +inf; n if none does
    Sequence view;

private:
    std::vector<double> push, repl, pop, values;

    static void copy(std::vector<double> &to, const T *from, int64_t count) { to.assign(from, from + count); }
    static bool usable(const std::vector<double> &logits, int64_t t, int64_t width) {
        for (int64_t i = t * width; i < (t + 1) * width; ++i)
            if (!(logits[i] < INFINITY)) return false;
        return true;
    }
};

template <class T>
void require_room(const Batch<T> &batch, int64_t room) {
    int64_t needed = 0;
    if (has_compiled_form(batch.Q(), batch.S()))
        needed = std::max(Layout(batch.T_(), batch.Q(), batch.S(), batch.columns(), batch.window).size,
                          BlockLayout<double>(batch.T_(), batch.Q(), batch.S(), batch.columns(), batch.window).size);
    if (room < HEADER + needed) throw std::length_error("nondeterministic_stack: the tables are too small for the layout");
}

template <class Real, int Q, int S>
bool forward_in_blocks(const Sequence &seq, double *tables, const Outputs &out) {
    using Forward = fast::BlockForward<Real, Q, S>;
    const BlockLayout<Real> layout(seq.n, Q, S, seq.columns, seq.window);
    Scratch room(sizeof(Real) * Forward::room(layout));
    return Forward(seq, layout, reinterpret_cast<Real *>(tables), room.as<Real>()).run(out);
}

template <int Q, int S>
Outcome forward_in_steps(const Sequence &seq, double *tables, const Outputs &out) {
    const Layout layout(seq.n, Q, S, seq.columns, seq.window);
    Scratch room(8 * fast::Forward<Q, S>::room(layout));
    return fast::Forward<Q, S>(seq, layout, tables, room.as<double>()).run(out);
}

// In the first form whose numbers are trusted.
template <int Q, int S>
Forwarded forward_compiled(const Sequence &seq, double *tables, const Outputs &out, bool floats) {
    if (floats && forward_in_blocks<float, Q, S>(seq, tables, out)) return {Mode::doubles, {seq.n, true}, Form::blocks_of_floats};
    if (forward_in_blocks<double, Q, S>(seq, tables, out)) return {Mode::doubles, {seq.n, true}, Form::blocks};
    return {Mode::doubles, forward_in_steps<Q, S>(seq, tables, out), Form::steps};
}

// floats: whether tables of floats are precise enough.
Forwarded forward_one(const Sequence &seq, double *tables, const Outputs &out, bool floats, bool only_wide) {
    Forwarded done{Mode::doubles, {0, false}, Form::steps};
    const bool compiled = !only_wide && with_sizes(seq.Q, seq.S, [&](auto q, auto s) {
        done = forward_compiled<q, s>(seq, tables, out, floats);
    });
    if (!compiled && !only_wide) done.outcome = general::Tables<Plain>(seq).forward(out);
    if (done.outcome.trusted) return done;
    return {Mode::wide, general::Tables<Wide>(seq).forward(out), Form::steps};
}

template <class Real, int Q, int S>
void backward_in_blocks(const Sequence &seq, const double *tables, const Cotangents &cot, const Gradients &grad) {
    using Backward = fast::BlockBackward<Real, Q, S>;
    const BlockLayout<Real> layout(seq.n, Q, S, seq.columns, seq.window);
    Scratch room(sizeof(Real) * Backward::room(layout));
    Backward(seq, layout, reinterpret_cast<const Real *>(tables), room.as<Real>()).run(cot, grad);
}

// A power of two of about the size of the cotangents. Divided by it, they leave the whole range of floats to what they are
// multiplied with.
inline double size_of(const Sequence &seq, const Cotangents &cot) {
    double largest = 0;
    for (int64_t i = 0; i < seq.n * seq.configurations() * seq.columns; ++i) largest = std::max(largest, std::fabs(cot.readings[i]));
    for (int64_t i = 0; i < seq.n; ++i) largest = std::max(largest, std::fabs(cot.log_weight[i]));
    return largest > 0 && std::isfinite(largest) ? std::ldexp(1.0, std::ilogb(largest)) : 1;
}

template <int Q, int S>
void backward_in_steps(const Sequence &seq, int64_t live, const double *tables, const Cotangents &cot, const Gradients &grad) {
    using Backward = fast::Backward<Q, S>;
    const Layout layout(seq.n, Q, S, seq.columns, seq.window);
    const fast::AdjointLayout of(layout);
    Scratch memory(8 * (of.size + layout.rows_size() + Backward::room(layout)));
    double *adjoint = memory.as<double>(), *mirror = adjoint + of.size, *room = mirror + layout.rows_size();
    std::fill(adjoint, room, 0.0);
    Backward(seq, layout, of, tables, mirror, adjoint, room).run(live, cot, grad);
}

void backward_one(const Sequence &seq, const Header &header, const double *tables, const Cotangents &cot, const Gradients &grad) {
    if (header.mode() == Mode::doubles && with_sizes(seq.Q, seq.S, [&](auto q, auto s) {
            switch (header.form()) {
                case Form::blocks_of_floats: return backward_in_blocks<float, q, s>(seq, tables, cot, grad);
                case Form::blocks: return backward_in_blocks<double, q, s>(seq, tables, cot, grad);
                case Form::steps: return backward_in_steps<q, s>(seq, header.live(), tables, cot, grad);
            }
        }))
        return;
    // Neither stores its tables: rare or slow cases are recomputed.
    std::vector<double> readings(seq.n * seq.configurations() * seq.columns), log_weight(seq.n);
    const Outputs out{readings.data(), log_weight.data()};
    auto again = [&](auto tables_of_kind) {
        const Outcome outcome = tables_of_kind.forward(out);
        tables_of_kind.backward(outcome, cot, grad);
    };
    if (header.mode() == Mode::wide) again(general::Tables<Wide>(seq));
    else again(general::Tables<Plain>(seq));
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
        const Doubles<T> one(batch, b);
        std::vector<double> reading(one.n * width), weight(one.n);
        double *table = tables.data() + b * tables.shape(1);
        Forwarded done = forward_one(one.view, table + HEADER, {reading.data(), weight.data()},
                                     std::is_same_v<T, float>, only_wide);
        const Outcome outcome = done.outcome;
        const double after = one.first_bad < one.n && outcome.live == one.first_bad ? NAN : 0;
        std::fill(reading.begin() + outcome.live * width, reading.end(), after);
        std::fill(weight.begin() + outcome.live, weight.end(), after == 0 ? -INFINITY : NAN);
        if (after != 0) done.mode = Mode::not_a_number;
        Header{table}.set(done);
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
        const Doubles<T> one(batch, b);
        double *table = tables.data() + b * tables.shape(1);
        const Header header{table};
        const bool bad = header.mode() == Mode::not_a_number;
        const T *reading_from = reading_.data() + b * T_ * width, *weight_from = log_weight_.data() + b * T_;
        std::vector<double> reading_cot(reading_from, reading_from + one.n * width);
        std::vector<double> weight_cot(weight_from, weight_from + one.n);
        std::vector<double> push_out(T_ * C * C), repl_out(T_ * C * C), pop_out(T_ * C * batch.Q()), values_out((T_ + 1) * m);
        if (bad) {
            auto spoil = [&](std::vector<double> &out, int64_t count) { std::fill_n(out.begin(), count, NAN); };
            spoil(push_out, one.n * C * C), spoil(repl_out, one.n * C * C), spoil(pop_out, one.n * C * batch.Q());
            spoil(values_out, (one.n + 1) * m);
        } else {
            const double size = header.form() == Form::blocks_of_floats ? size_of(one.view, {reading_cot.data(), weight_cot.data()}) : 1;
            if (size != 1) for (auto *given : {&reading_cot, &weight_cot}) for (double &x : *given) x /= size;
            const Gradients grad{push_out.data(), repl_out.data(), pop_out.data(), values_ ? values_out.data() : nullptr};
            backward_one(one.view, header, table + HEADER, {reading_cot.data(), weight_cot.data()}, grad);
            if (size != 1)
                for (auto *found : {&push_out, &repl_out, &pop_out, &values_out})
                    for (double &x : *found) x *= size;
        }
        std::copy(push_out.begin(), push_out.end(), push_.data() + b * push_out.size());
        std::copy(repl_out.begin(), repl_out.end(), repl_.data() + b * repl_out.size());
        std::copy(pop_out.begin(), pop_out.end(), pop_.data() + b * pop_out.size());
        if (values_) {
            std::copy_n(values_out.begin(), m, bottom_->data() + b * m);
            std::copy(values_out.begin() + m, values_out.end(), values_->data() + b * T_ * m);
        }
    });
}

template <class T>
void best_run(In<T> push, In<T> repl, In<T> pop, In<int64_t> lengths, int64_t window, Array<int64_t> actions,
              Array<int64_t> states, Array<int64_t> symbols, Array<T> log_weight, int threads) {
    const Batch<T> batch{push, repl, pop, {}, {}, lengths, window};
    const int64_t T_ = batch.T_();
    for_each_sequence(batch.size(), threads, [&](int64_t b) {
        const Doubles<T> one(batch, b);
        log_weight.data()[b] = one.first_bad < one.n ? T(NAN)
                             : T(BestRun(one.view).write(actions.data() + b * T_, states.data() + b * T_, symbols.data() + b * T_));
    });
}

template <class T>
void define(nb::module_ &module) {
    using namespace nb::literals;
    const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
    module.def("nondeterministic_stack_forward", &forward<T>, "push"_a, "replace"_a, "pop"_a, "values"_a.none(), "bottom"_a.none(),
               "lengths"_a, "window"_a, "readings"_a, "log_weight"_a, "tables"_a, "threads"_a, "only_wide"_a, unlocked);
    module.def("nondeterministic_stack_backward", &backward<T>, "push"_a, "replace"_a, "pop"_a, "values"_a.none(), "bottom"_a.none(),
               "lengths"_a, "window"_a, "tables"_a, "grad_readings"_a, "grad_log_weight"_a, "grad_push"_a, "grad_replace"_a, "grad_pop"_a,
               "grad_values"_a.none(), "grad_bottom"_a.none(), "threads"_a, unlocked);
    module.def("nondeterministic_stack_best_run", &best_run<T>, "push"_a, "replace"_a, "pop"_a, "lengths"_a, "window"_a, "actions"_a, "states"_a,
               "symbols"_a, "log_weight"_a, "threads"_a, unlocked);
}

}  // namespace

void register_nondeterministic_stack(nb::module_ &module) {
    define<float>(module);
    define<double>(module);
    steps::define_all(module);
}
