// Recurrent networks with stacks, forward and backward. The recurrences and their adjoints are in DERIVATION.md.
//
// A sequence is processed by one thread; the weight matrices are packed once for the batch. The backward kernel returns the
// adjoints of the gates and outputs at every step; torch computes the gradients of the matrices as matrix products.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/kernels.h"
#include "common/lengths.h"
#include "common/scratch.h"
#include "stack_rnn/cells.h"
#include "stack_rnn/map.h"
#include "stack_rnn/network.h"
#include "stack_rnn/stacks.h"

namespace {

using namespace stack_rnn;
using Addresses = std::vector<uintptr_t>;

struct OfStacks;  // a Purpose for their memory: the steps of the nondeterministic stack use the common Scratch

Sizes sizes_of(const std::vector<int64_t> &given) {
    return {given[0], given[1], given[2], Cell(given[3]), StackName(given[4]), Pushed(given[5]),
            given[6], given[7], given[8], given[9], given[10], given[11]};
}

// Arrays written by every step and used by the backward pass.
template <class Number>
struct Kept {
    Series<Number> hiddens, sources, gates, cells, actions, values;
    uintptr_t tables, bottom;
    int64_t table_stride;

    Kept(const Sizes &sizes, uintptr_t hiddens, uintptr_t sources, uintptr_t gates, uintptr_t cells, uintptr_t actions,
         uintptr_t values, uintptr_t tables, uintptr_t bottom)
        : hiddens(hiddens, sizes, sizes.units), sources(sources, sizes, sizes.sources()), gates(gates, sizes, sizes.gates()),
          cells(cells, sizes, sizes.cells()), actions(actions, sizes, sizes.kept_actions()),
          values(values, sizes, sizes.vector), tables(tables), bottom(bottom), table_stride(sizes.table_stride) {}

    StackArrays<Number> stack(int64_t b) const {
        return {actions.of(b), values.of(b), reinterpret_cast<double *>(tables) + b * table_stride,
                reinterpret_cast<const Number *>(bottom)};
    }
    // c and tanh c of the previous step; null at the first step.
    const Number *before(int64_t b, int64_t t) const { return t > 0 ? cells.row(b, t - 1) : nullptr; }
};

template <class Number>
struct Forward {
    const Sizes &sizes;
    const Kept<Number> kept;
    const Series<const Number> inputs;
    const Map<Number> recurrent, heads;
    const Number *bias;
    const Lengths lengths;

    template <class Stack>
    void run(int64_t b) const {
        const int64_t n = lengths[b], steps = std::max<int64_t>(n - 1, 0);
        kept.hiddens.zeros_from(b, n), kept.sources.zeros_from(b, n);
        if (n == 0) return;
        ScratchFor<OfStacks> scratch(8 * Stack::room(sizes, steps, false));
        Stack stack(sizes, steps, kept.stack(b), scratch.template as<double>());
        std::vector<Number> gates(Map<Number>::padded(sizes.gates())), outputs(Map<Number>::padded(sizes.outputs()));
        Number *source = kept.sources.row(b, 0);
        std::fill_n(source, sizes.units, Number(0));
        stack.start(source + sizes.units);
        for (int64_t t = 0;; ++t) {
            Number *hidden = kept.hiddens.row(b, t);
            std::copy_n(inputs.row(b, t), sizes.gates(), gates.data());
            recurrent.add_product(source, gates.data());
            go_on(b, t, gates.data(), hidden);
            if (t == steps) return;
            source = kept.sources.row(b, t + 1);
            std::copy_n(hidden, sizes.units, source);
            std::copy_n(bias, sizes.outputs(), outputs.data());
            heads.add_product(hidden, outputs.data());
            stack.advance(t + 1, outputs.data(), source + sizes.units);
        }
    }

private:
    void go_on(int64_t b, int64_t t, Number *gates, Number *hidden) const {
        if (sizes.cell == Cell::lstm) lstm_forward(sizes.units, gates, kept.before(b, t), kept.cells.row(b, t), hidden);
        else elman_forward(sizes.cell, sizes.units, gates, hidden);
        std::copy_n(gates, sizes.gates(), kept.gates.row(b, t));
    }
};

template <class Number>
struct Backward {
    const Sizes &sizes;
    const Kept<Number> kept;
    const Series<const Number> cotangent;
    const Map<Number> recurrent, heads;
    const Lengths lengths;
    const Series<Number> gates_, outputs_;
    Number *const bottom_;

    template <class Stack>
    void run(int64_t b) const {
        const int64_t n = lengths[b], steps = std::max<int64_t>(n - 1, 0), units = sizes.units;
        Number *of_bottom = bottom_ + b * sizes.vector;
        gates_.zeros_from(b, n), outputs_.zeros_from(b, steps);
        if (n == 0) std::fill_n(of_bottom, sizes.vector, Number(0));
        if (n == 0) return;
        ScratchFor<OfStacks> scratch(8 * Stack::room(sizes, steps, true));
        Stack stack(sizes, steps, kept.stack(b), scratch.template as<double>());
        stack.begin_way_back();
        std::vector<Number> hidden_(Map<Number>::padded(units)), memory_(units);
        std::vector<Number> source_(Map<Number>::padded(sizes.sources()));
        for (int64_t t = steps; t >= 0; --t) {
            for (int64_t k = 0; k < units; ++k) hidden_[k] = cotangent.row(b, t)[k] + source_[k];
            if (t < steps) {
                stack.retreat(t + 1, source_.data() + units, outputs_.row(b, t));
                heads.add_product(outputs_.row(b, t), hidden_.data());
            }
            go_back(b, t, hidden_.data(), memory_.data());
            std::fill(source_.begin(), source_.end(), Number(0));
            recurrent.add_product(gates_.row(b, t), source_.data());
        }
        stack.finish(source_.data() + units, of_bottom);
    }

private:
    void go_back(int64_t b, int64_t t, const Number *hidden_, Number *memory_) const {
        const Number *gates = kept.gates.row(b, t);
        Number *result = gates_.row(b, t);
        if (sizes.cell == Cell::lstm)
            lstm_backward(sizes.units, gates, kept.before(b, t), kept.cells.row(b, t), hidden_, memory_, result);
        else elman_backward(sizes.cell, sizes.units, gates, hidden_, result);
    }
};

// One thread per 400,000 multiply-adds (some 40 µs), which takes longer than creating a thread.
int useful_threads(const Sizes &sizes, int threads) {
    const int64_t maps = sizes.gates() * sizes.sources() + sizes.outputs() * sizes.units;
    return int(std::min<int64_t>(threads, 1 + sizes.count * sizes.allotted * maps / 400000));
}

template <class Number, class Pass>
void run_all(const Sizes &sizes, const Pass &pass, int threads) {
    for_each_sequence(sizes.count, useful_threads(sizes, threads), [&](int64_t b) {
        switch (sizes.stack) {
            case StackName::superposition: return pass.template run<SuperpositionStack<Number>>(b);
            case StackName::stratified: return pass.template run<StratifiedStack<Number>>(b);
            case StackName::nondeterministic: return pass.template run<NondeterministicStack<Number>>(b);
        }
    });
}

void require_room(const Sizes &sizes) {
    if (sizes.nondeterministic() && NondeterministicStack<double>::layout(sizes).size > sizes.table_stride)
        throw std::length_error("stack_rnn: the tables are too small for the layout");
}

// Addresses: inputs, recurrent, heads, bias, bottom, lengths; hiddens, sources, gates, cells, actions, values, tables.
template <class Number>
void forward(const Addresses &at, const std::vector<int64_t> &given, int threads) {
    const Sizes sizes = sizes_of(given);
    require_room(sizes);
    const auto matrix = [&](int i) { return reinterpret_cast<const Number *>(at[i]); };
    const Forward<Number> pass{sizes,
                               Kept<Number>(sizes, at[6], at[7], at[8], at[9], at[10], at[11], at[12], at[4]),
                               Series<const Number>(at[0], sizes, sizes.gates()),
                               Map<Number>(matrix(1), sizes.gates(), sizes.sources(), true),
                               Map<Number>(matrix(2), sizes.outputs(), sizes.units, true),
                               matrix(3),
                               {at[5], sizes.count, sizes.allotted}};
    run_all<Number>(sizes, pass, threads);
}

// Addresses: cotangent, recurrent, heads, lengths, hiddens, gates, cells, actions, values, tables; the adjoints of gates,
// of outputs and of the bottom vector.
template <class Number>
void backward(const Addresses &at, const std::vector<int64_t> &given, int threads) {
    const Sizes sizes = sizes_of(given);
    const auto matrix = [&](int i) { return reinterpret_cast<const Number *>(at[i]); };
    const Backward<Number> pass{sizes,
                                Kept<Number>(sizes, at[4], 0, at[5], at[6], at[7], at[8], at[9], 0),
                                Series<const Number>(at[0], sizes, sizes.units),
                                Map<Number>(matrix(1), sizes.gates(), sizes.sources(), false),
                                Map<Number>(matrix(2), sizes.outputs(), sizes.units, false),
                                {at[3], sizes.count, sizes.allotted},
                                Series<Number>(at[10], sizes, sizes.gates()),
                                Series<Number>(at[11], sizes, sizes.outputs()),
                                reinterpret_cast<Number *>(at[12])};
    run_all<Number>(sizes, pass, threads);
}

}  // namespace

void register_stack_rnn(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("stack_rnn_forward_float32", &forward<float>, Unlocked());
    module.def("stack_rnn_forward_float64", &forward<double>, Unlocked());
    module.def("stack_rnn_backward_float32", &backward<float>, Unlocked());
    module.def("stack_rnn_backward_float64", &backward<double>, Unlocked());
}
