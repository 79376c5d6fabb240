// Residual sublayers with a layer norm before them, forward and backward: softmax self-attention,
// feed-forward and nondeterministic stacks.
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "common/kernels.h"
#include "residual_sublayers/attention.h"
#include "residual_sublayers/feedforward.h"
#include "residual_sublayers/parts.h"
#include "residual_sublayers/stack.h"

namespace {

// The address of each parameter, in the order of ``Parameters``; 0 for one that is absent.
using Six = std::array<int64_t, 6>;

template <class Number>
Number *numbers(int64_t address) {
    return reinterpret_cast<Number *>(address);
}
template <class Number>
Parameters<Number> parameters(const Six &at) {
    return {numbers<Number>(at[0]), numbers<Number>(at[1]), numbers<Number>(at[2]),
            numbers<Number>(at[3]), numbers<Number>(at[4]), numbers<Number>(at[5])};
}

// Threads pay off only if the total work takes longer than creating a thread, some 20 µs.
int useful_threads(int64_t products, int threads) { return products < 1000000 ? 1 : threads; }

// Arguments of a call besides x and the weights. Addresses are 0 for tensors that are absent.
struct AttentionCall {
    AttentionSizes sizes;
    double epsilon, rate;
    int64_t dropped;  // see Mask
    uint64_t seed;    // of the weights' dropout
    int64_t lengths, mask_numbers, projected, readings;  // addresses

    int threads(int threads) const {
        const int64_t positions = sizes.batch * sizes.time;
        return useful_threads(positions * sizes.width * (4 * sizes.width + sizes.time), threads);
    }
    template <class Number>
    AttentionSublayer<Number> sublayer(const Weights<Number> &weights, int64_t x) const {
        return {sizes, {seed, rate},
                {sizes.time, weights, Number(epsilon), Mask<Number>(mask_numbers, dropped), Lengths(lengths, sizes.batch, sizes.time),
                 numbers<const Number>(x), numbers<Number>(projected), numbers<Number>(readings)}};
    }
};

template <class Number>
void attention_forward(const AttentionCall &call, int64_t x, const Six &given, int64_t y, int threads) {
    with_weights<Number>(call.sizes.weights(), parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x);
        for_each_sequence(call.sizes.batch, call.threads(threads),
                          [&](int64_t b) { sublayer.forward(b, numbers<Number>(y)); });
    });
}

template <class Number>
void attention_backward(const AttentionCall &call, int64_t x, const Six &given, int64_t grad_y, int64_t grad_x,
                        const Six &found, int threads) {
    const WeightSizes sizes = call.sizes.weights();
    with_weights<Number>(sizes, parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x);
        auto add = [&](int64_t first, int64_t end, const Gradients<Number> &gradients) {
            for (int64_t b = first; b < end; ++b)
                sublayer.backward(b, numbers<const Number>(grad_y), numbers<Number>(grad_x), gradients);
        };
        sum_over_parts<Number>(sizes, call.sizes.batch, call.threads(threads), parameters<Number>(found), add);
    });
}

struct FeedForwardCall {
    FeedForwardSizes sizes;
    double epsilon;
    int64_t hidden_dropped, dropped;                 // see Mask
    int64_t hidden_mask_numbers, mask_numbers, hidden;  // addresses

    int threads(int threads) const { return useful_threads(2 * sizes.rows * sizes.width * sizes.hidden, threads); }
    template <class Number>
    FeedForwardSublayer<Number> sublayer(const Weights<Number> &weights, int64_t x) const {
        return {sizes,
                weights,
                Number(epsilon),
                Mask<Number>(hidden_mask_numbers, hidden_dropped),
                Mask<Number>(mask_numbers, dropped),
                numbers<const Number>(x),
                numbers<Number>(hidden)};
    }
};

template <class Number>
void feedforward_forward(const FeedForwardCall &call, int64_t x, const Six &given, int64_t y, int threads) {
    with_weights<Number>(call.sizes.weights(), parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x);
        for_each_part(call.sizes.rows, call.threads(threads), [&](int64_t, int64_t first, int64_t end) {
            sublayer.forward(first, end, numbers<Number>(y));
        });
    });
}

template <class Number>
void feedforward_backward(const FeedForwardCall &call, int64_t x, const Six &given, int64_t grad_y, int64_t grad_x,
                          const Six &found, int threads) {
    const WeightSizes sizes = call.sizes.weights();
    with_weights<Number>(sizes, parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x);
        auto add = [&](int64_t first, int64_t end, const Gradients<Number> &gradients) {
            sublayer.backward(first, end, numbers<const Number>(grad_y), numbers<Number>(grad_x), gradients);
        };
        sum_over_parts<Number>(sizes, call.sizes.rows, call.threads(threads), parameters<Number>(found), add);
    });
}

// Sublayers one after the other. What each of them keeps for the backward pass, and its input, are pieces of one memory;
// its random numbers follow those of the one before it, in the order in which the modules draw them.
class SublayerSequence {
public:
    // For each step, the number of hidden units, 0 for attention, and its options.
    SublayerSequence(std::array<int64_t, 3> sizes, const std::vector<int64_t> &units, const std::vector<std::vector<double>> &options)
        : batch_(sizes[0]), time_(sizes[1]), width_(sizes[2]) {
        for (size_t s = 0; s < units.size(); ++s) add(units[s], options.at(s));
    }
    // Numbers of the memory.
    int64_t kept() const { return kept_; }
    // 64-bit random numbers.
    int64_t draws() const { return draws_; }

    // ``given`` and ``found``: the addresses of the parameters of each step, and of their gradients.
    template <class Number>
    void forward(int64_t x, const std::vector<Six> &given, int64_t lengths, int64_t drawn, int64_t kept, int64_t y,
                 int threads) const {
        for (size_t s = 0; s < steps_.size(); ++s) {
            const Step &step = steps_[s];
            const int64_t from = step.input < 0 ? x : kept + step.input * sizeof(Number);
            const int64_t to = s + 1 == steps_.size() ? y : kept + steps_[s + 1].input * sizeof(Number);
            if (step.heads) attention_forward<Number>(attention<Number>(step, lengths, drawn, kept), from, given[s], to, threads);
            else feedforward_forward<Number>(feedforward<Number>(step, drawn, kept), from, given[s], to, threads);
        }
    }
    // The gradient of each input takes the place of that of the output.
    template <class Number>
    void backward(int64_t x, const std::vector<Six> &given, int64_t lengths, int64_t drawn, int64_t kept, int64_t grad_y,
                  int64_t grad_x, const std::vector<Six> &found, int threads) const {
        for (size_t s = steps_.size(); s-- > 0; grad_y = grad_x) {
            const Step &step = steps_[s];
            const int64_t from = step.input < 0 ? x : kept + step.input * sizeof(Number);
            if (step.heads)
                attention_backward<Number>(attention<Number>(step, lengths, drawn, kept), from, given[s], grad_y, grad_x,
                                           found[s], threads);
            else
                feedforward_backward<Number>(feedforward<Number>(step, drawn, kept), from, given[s], grad_y, grad_x,
                                             found[s], threads);
        }
    }

private:
    struct Step {
        int64_t heads = 0, units = 0;
        bool causal = false;
        double epsilon = 0, rate = 0;
        int64_t hidden_dropped = 0, dropped = 0;
        int64_t input = -1, tables[2] = {-1, -1};  // offsets in the memory; the first input is x itself
        int64_t draws[2] = {-1, -1};  // of the seed or of hidden units, and of the output
    };

    void add(int64_t units, const std::vector<double> &options) {
        const int64_t rows = batch_ * time_;
        Step step;
        if (!steps_.empty()) step.input = take(rows * width_);
        if (units) {
            step.units = units, step.epsilon = options.at(0);
            step.hidden_dropped = int64_t(options.at(1)), step.dropped = int64_t(options.at(2));
            if (step.hidden_dropped) step.draws[0] = draw(rows * units);
            step.tables[0] = take(rows * padded_row(units));
        } else {
            step.heads = int64_t(options.at(0)), step.causal = options.at(1) != 0, step.epsilon = options.at(2);
            step.rate = options.at(3), step.dropped = int64_t(options.at(4));
            if (step.rate > 0) step.draws[0] = draws_++;
            step.tables[0] = take(rows * padded_row(3 * width_)), step.tables[1] = take(rows * padded_row(width_));
        }
        if (step.dropped) step.draws[1] = draw(rows * width_);
        steps_.push_back(step);
    }
    int64_t take(int64_t count) {
        const int64_t first = kept_;
        kept_ += (count + 15) / 16 * 16;
        return first;
    }
    // A random number serves four elements.
    int64_t draw(int64_t elements) {
        const int64_t first = draws_;
        draws_ += (elements + 3) / 4;
        return first;
    }
    static int64_t address(int64_t drawn, int64_t first) { return first < 0 ? 0 : drawn + first * 8; }

    template <class Number>
    AttentionCall attention(const Step &step, int64_t lengths, int64_t drawn, int64_t kept) const {
        constexpr uint64_t seeds = (uint64_t(1) << 63) - 1;  // as torch.randint(seeds) takes a number modulo its limit
        const uint64_t seed = step.draws[0] < 0 ? 0 : *numbers<const uint64_t>(address(drawn, step.draws[0])) % seeds;
        return {{batch_, time_, width_, step.heads, step.causal}, step.epsilon, step.rate, step.dropped, seed, lengths,
                address(drawn, step.draws[1]), kept + step.tables[0] * int64_t(sizeof(Number)),
                kept + step.tables[1] * int64_t(sizeof(Number))};
    }
    template <class Number>
    FeedForwardCall feedforward(const Step &step, int64_t drawn, int64_t kept) const {
        return {{batch_ * time_, width_, step.units}, step.epsilon, step.hidden_dropped, step.dropped,
                address(drawn, step.draws[0]), address(drawn, step.draws[1]),
                kept + step.tables[0] * int64_t(sizeof(Number))};
    }

    int64_t batch_, time_, width_, kept_ = 0, draws_ = 0;
    std::vector<Step> steps_;
};

struct StackCall {
    StackSizes sizes;
    double epsilon;
    int64_t dropped;                                                          // see Mask
    int64_t lengths, mask_numbers, rows, readings, tables, table_size;  // addresses, and the doubles of a table

    // A stack is so much work that threads always pay.
    template <class Number>
    StackSublayer<Number> sublayer(const Weights<Number> &weights, int64_t x, int64_t bottom) const {
        const projected::Stack &stack = sizes.stack;
        if (table_size < whole_tables_size(sizes.time, stack.Q, stack.S, stack.m, stack.window))
            throw std::length_error("residual_stack: the tables are too small for the layout");
        return {sizes, numbers<const Number>(bottom), numbers<double>(tables), table_size,
                {sizes.time, weights, Number(epsilon), Mask<Number>(mask_numbers, dropped), Lengths(lengths, sizes.batch, sizes.time),
                 numbers<const Number>(x), numbers<Number>(rows), numbers<Number>(readings)}};
    }
};

// ``bottom`` and its gradient follow the six parameters.
template <class Number>
void stack_forward(const StackCall &call, int64_t x, const Six &given, int64_t bottom, int64_t y, int threads) {
    with_weights<Number>(call.sizes.weights(), parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x, bottom);
        for_each_sequence(call.sizes.batch, threads, [&](int64_t b) { sublayer.forward(b, numbers<Number>(y)); });
    });
}

template <class Number>
void stack_backward(const StackCall &call, int64_t x, const Six &given, int64_t bottom, int64_t grad_y, int64_t grad_x,
                    const Six &found, int64_t grad_bottom, int threads) {
    const WeightSizes sizes = call.sizes.weights();
    const int64_t m = call.sizes.stack.m;
    with_weights<Number>(sizes, parameters<const Number>(given), [&](const Weights<Number> &weights) {
        const auto sublayer = call.sublayer<Number>(weights, x, bottom);
        std::vector<Number> bottoms(call.sizes.batch * m);
        auto add = [&](int64_t first, int64_t end, const Gradients<Number> &gradients) {
            for (int64_t b = first; b < end; ++b)
                sublayer.backward(b, numbers<const Number>(grad_y), numbers<Number>(grad_x), gradients, bottoms.data() + b * m);
        };
        sum_over_parts<Number>(sizes, call.sizes.batch, threads, parameters<Number>(found), add);
        Number *sum = numbers<Number>(grad_bottom);
        std::fill_n(sum, m, Number(0));
        for (size_t i = 0; i < bottoms.size(); ++i) sum[i % m] += bottoms[i];
    });
}

}  // namespace

void register_residual_sublayers(nanobind::module_ &module) {
    namespace nb = nanobind;
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<SublayerSequence>(module, "ResidualSequence")
        .def(nb::init<std::array<int64_t, 3>, const std::vector<int64_t> &, const std::vector<std::vector<double>> &>())
        .def_prop_ro("kept", &SublayerSequence::kept)
        .def_prop_ro("draws", &SublayerSequence::draws)
        .def("forward_float32", &SublayerSequence::forward<float>, Unlocked())
        .def("forward_float64", &SublayerSequence::forward<double>, Unlocked())
        .def("backward_float32", &SublayerSequence::backward<float>, Unlocked())
        .def("backward_float64", &SublayerSequence::backward<double>, Unlocked());
    nb::class_<StackCall>(module, "ResidualStackCall")
        // ``sizes``: B, T, d, Q, S, m, window; ``addresses``: offsets, lengths, mask numbers, rows, readings, tables; a table's size.
        .def("__init__", [](StackCall *call, std::array<int64_t, 7> sizes, bool exponential, double epsilon, int64_t dropped,
                            std::array<int64_t, 7> addresses) {
            const auto [batch, time, width, states, symbols, vector, window] = sizes;
            const auto [offsets, lengths, mask_numbers, rows, readings, tables, table_size] = addresses;
            const auto activation = exponential ? projected::Activation::exp : projected::Activation::sigmoid;
            const projected::Stack stack{states, symbols, vector, window, activation, numbers<const double>(offsets)};
            new (call) StackCall{{batch, time, width, stack}, epsilon, dropped, lengths, mask_numbers, rows, readings, tables, table_size};
        });
    module.def("residual_stack_forward_float32", &stack_forward<float>, Unlocked());
    module.def("residual_stack_forward_float64", &stack_forward<double>, Unlocked());
    module.def("residual_stack_backward_float32", &stack_backward<float>, Unlocked());
    module.def("residual_stack_backward_float64", &stack_backward<double>, Unlocked());
}
