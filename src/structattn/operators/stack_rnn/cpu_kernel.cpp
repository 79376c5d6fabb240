// Recurrent networks with stacks, forward and backward. The recurrences and their adjoints are in DERIVATION.md.
//
// Some sequences are processed by one thread, step by step together, so that their products with the weight matrices read
// these once; nothing that is computed for one depends on the others. The matrices are packed once for the batch. The backward kernel returns the
// adjoints of the gates and outputs at every step; torch computes the gradients of the matrices as matrix products.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "common/kernels.h"
#include "common/rows.h"
#include "stack_rnn/network.h"
#include "stack_rnn/nondeterministic_lanes.h"
#include "stack_rnn/stacks.h"

namespace {

using namespace stack_rnn;
using Addresses = std::vector<uintptr_t>;

Sizes sizes_of(const std::vector<int64_t> &given) {
    return {given[0], given[1], given[2], Cell(given[3]), StackName(given[4]), Pushed(given[5]),
            given[6], given[7], given[8], given[9], given[10]};
}

// Arrays written by every step and used by the backward pass.
template <class Number>
struct Kept {
    Series<Number> hiddens, sources, gates, cells, actions, values;
    uintptr_t bottom;

    Kept(const Sizes &sizes, uintptr_t hiddens, uintptr_t sources, uintptr_t gates, uintptr_t cells, uintptr_t actions,
         uintptr_t values, uintptr_t bottom)
        : hiddens(hiddens, sizes, sizes.units), sources(sources, sizes, sizes.sources()), gates(gates, sizes, sizes.gates()),
          cells(cells, sizes, sizes.cells()), actions(actions, sizes, sizes.actions()),
          values(values, sizes, sizes.vector), bottom(bottom) {}

    Member<Number> member(int64_t b, int64_t steps) const {
        return {steps, {actions.of(b), values.of(b), reinterpret_cast<const Number *>(bottom)}};
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

    struct Sequence {
        int64_t b, steps;
        Number *source;
        std::vector<Number> gates, outputs;

        Sequence(const Forward &pass, int64_t b, int64_t steps)
            : b(b), steps(steps), source(pass.kept.sources.row(b, 0)), gates(Map<Number>::padded(pass.sizes.gates())),
              outputs(Map<Number>::padded(pass.sizes.outputs())) {
            std::fill_n(source, pass.sizes.units, Number(0));
        }
    };

    // For sequences from ``first`` to ``end``.
    template <class Stacks>
    void run(int64_t first, int64_t end) const {
        std::vector<Sequence> all;
        std::vector<Member<Number>> members;
        for (int64_t b = first; b < end; ++b) {
            const int64_t n = lengths[b];
            kept.hiddens.zeros_from(b, n), kept.sources.zeros_from(b, n);
            if (n == 0) continue;
            all.emplace_back(*this, b, n - 1);
            members.push_back(kept.member(b, n - 1));
        }
        Stacks stacks(sizes, members, false);
        for (size_t i = 0; i < all.size(); ++i) stacks.start(i, all[i].source + sizes.units);
        std::vector<typename Map<Number>::Product> products;
        std::vector<Move<Number>> moves;
        for (int64_t t = 0;; ++t) {
            products.clear();
            for (auto &one : all) {
                if (t > one.steps) continue;
                std::copy_n(inputs.row(one.b, t), sizes.gates(), one.gates.data());
                products.push_back({one.source, one.gates.data()});
            }
            if (products.empty()) return;
            recurrent.add_products(products);
            products.clear(), moves.clear();
            for (size_t i = 0; i < all.size(); ++i) {
                Sequence &one = all[i];
                if (t > one.steps) continue;
                Number *hidden = kept.hiddens.row(one.b, t);
                go_on(one.b, t, one.gates.data(), hidden);
                if (t == one.steps) continue;
                one.source = kept.sources.row(one.b, t + 1);
                std::copy_n(hidden, sizes.units, one.source);
                std::copy_n(bias, sizes.outputs(), one.outputs.data());
                products.push_back({hidden, one.outputs.data()});
                moves.push_back({int64_t(i), one.outputs.data(), one.source + sizes.units});
            }
            heads.add_products(products);
            if (!moves.empty()) stacks.advance(t + 1, moves);
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

    struct Sequence {
        int64_t b, steps;
        std::vector<Number> hidden_, memory_, source_;

        Sequence(const Backward &pass, int64_t b, int64_t steps)
            : b(b), steps(steps), hidden_(Map<Number>::padded(pass.sizes.units)), memory_(pass.sizes.units),
              source_(Map<Number>::padded(pass.sizes.sources())) {}
    };

    // For sequences from ``first`` to ``end``.
    template <class Stacks>
    void run(int64_t first, int64_t end) const {
        std::vector<Sequence> all;
        std::vector<Member<Number>> members;
        int64_t t = -1;
        for (int64_t b = first; b < end; ++b) {
            const int64_t n = lengths[b], steps = std::max<int64_t>(n - 1, 0);
            gates_.zeros_from(b, n), outputs_.zeros_from(b, steps);
            if (n == 0) std::fill_n(bottom_ + b * sizes.vector, sizes.vector, Number(0));
            if (n == 0) continue;
            all.emplace_back(*this, b, steps);
            members.push_back(kept.member(b, steps));
            t = std::max(t, steps);
        }
        Stacks stacks(sizes, members, true);
        stacks.begin_way_back();
        std::vector<typename Map<Number>::Product> products;
        std::vector<Move<Number>> moves;
        for (; t >= 0; --t) {
            products.clear(), moves.clear();
            for (size_t i = 0; i < all.size(); ++i) {
                Sequence &one = all[i];
                if (t > one.steps) continue;
                for (int64_t k = 0; k < sizes.units; ++k) one.hidden_[k] = cotangent.row(one.b, t)[k] + one.source_[k];
                if (t == one.steps) continue;
                moves.push_back({int64_t(i), one.source_.data() + sizes.units, outputs_.row(one.b, t)});
                products.push_back({outputs_.row(one.b, t), one.hidden_.data()});
            }
            if (!moves.empty()) stacks.retreat(t + 1, moves);
            heads.add_products(products);
            products.clear();
            for (auto &one : all) {
                if (t > one.steps) continue;
                go_back(one.b, t, one.hidden_.data(), one.memory_.data());
                std::fill(one.source_.begin(), one.source_.end(), Number(0));
                products.push_back({gates_.row(one.b, t), one.source_.data()});
            }
            recurrent.add_products(products);
        }
        for (size_t i = 0; i < all.size(); ++i)
            stacks.finish(i, all[i].source_.data() + sizes.units, bottom_ + all[i].b * sizes.vector);
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

// In groups of at most `most` sequences, of fewer if there are threads for them, but of `least` if there are as many.
template <class Stacks, class Pass>
void run_groups(const Sizes &sizes, const Pass &pass, int threads, int64_t least, int64_t most) {
    const int64_t share = (sizes.count + threads - 1) / std::max(threads, 1);
    const int64_t together = std::clamp<int64_t>(share, least, most);
    for_each_sequence((sizes.count + together - 1) / together, threads, [&](int64_t group) {
        const int64_t first = group * together;
        pass.template run<Stacks>(first, std::min(first + together, sizes.count));
    });
}

// Nondeterministic stacks in lanes; empty lanes take as long as others.
template <class Pass>
void run_lanes(const Sizes &sizes, const Pass &pass, int threads) {
    using namespace lanes;
    if (sizes.count > FEW * int64_t(threads))
        return run_groups<NondeterministicLanes<MANY>>(sizes, pass, threads, MANY, MANY);
    run_groups<NondeterministicLanes<FEW>>(sizes, pass, threads, FEW, FEW);
}

template <class Number, class Pass>
void run_all(const Sizes &sizes, const Pass &pass, int threads) {
    threads = useful_threads(sizes, threads);
    switch (sizes.stack) {
        case StackName::superposition:
            return run_groups<OneByOne<Number, SuperpositionStack<Number>>>(sizes, pass, threads, 1, 4);
        case StackName::stratified: return run_groups<OneByOne<Number, StratifiedStack<Number>>>(sizes, pass, threads, 1, 4);
        case StackName::nondeterministic:
            if constexpr (std::is_same_v<Number, float>)
                if (has_compiled_form(sizes.states, sizes.symbols)) return run_lanes(sizes, pass, threads);
            // Tables of two would not stay in the second-level cache.
            return run_groups<OneByOne<Number, NondeterministicStack<Number>>>(sizes, pass, threads, 1, 1);
    }
}

// Addresses: inputs, recurrent, heads, bias, bottom, lengths; hiddens, sources, gates, cells, actions, values.
template <class Number>
void forward(const Addresses &at, const std::vector<int64_t> &given, int threads) {
    const Sizes sizes = sizes_of(given);
    const auto matrix = [&](int i) { return reinterpret_cast<const Number *>(at[i]); };
    const Forward<Number> pass{sizes,
                               Kept<Number>(sizes, at[6], at[7], at[8], at[9], at[10], at[11], at[4]),
                               Series<const Number>(at[0], sizes, sizes.gates()),
                               Map<Number>(matrix(1), sizes.gates(), sizes.sources(), true),
                               Map<Number>(matrix(2), sizes.outputs(), sizes.units, true),
                               matrix(3),
                               {at[5], sizes.count, sizes.allotted}};
    run_all<Number>(sizes, pass, threads);
}

// Addresses: cotangent, recurrent, heads, bottom, lengths, hiddens, gates, cells, actions, values; the adjoints of gates,
// of outputs and of the bottom vector.
template <class Number>
void backward(const Addresses &at, const std::vector<int64_t> &given, int threads) {
    const Sizes sizes = sizes_of(given);
    const auto matrix = [&](int i) { return reinterpret_cast<const Number *>(at[i]); };
    const Backward<Number> pass{sizes,
                                Kept<Number>(sizes, at[5], 0, at[6], at[7], at[8], at[9], at[3]),
                                Series<const Number>(at[0], sizes, sizes.units),
                                Map<Number>(matrix(1), sizes.gates(), sizes.sources(), false),
                                Map<Number>(matrix(2), sizes.outputs(), sizes.units, false),
                                {at[4], sizes.count, sizes.allotted},
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
