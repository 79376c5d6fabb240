// Residual sublayers with a layer norm before them, forward and backward: softmax self-attention and feed-forward.
#include <nanobind/stl/array.h>

#include <array>

#include "common/kernels.h"
#include "residual_sublayers/attention.h"
#include "residual_sublayers/feedforward.h"
#include "residual_sublayers/parts.h"

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
    int64_t dropped;        // see Mask
    int64_t lengths, seed, mask_numbers, projected, readings;  // addresses

    int threads(int threads) const {
        const int64_t positions = sizes.batch * sizes.time;
        return useful_threads(positions * sizes.width * (4 * sizes.width + sizes.time), threads);
    }
    template <class Number>
    AttentionSublayer<Number> sublayer(const Weights<Number> &weights, int64_t x) const {
        const softmax::Dropout dropout{seed ? *numbers<const uint64_t>(seed) : 0, rate};
        return {sizes, weights, Number(epsilon), dropout, Mask<Number>(mask_numbers, dropped),
                Lengths(lengths, sizes.batch, sizes.time), numbers<const Number>(x), numbers<Number>(projected),
                numbers<Number>(readings)};
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

}  // namespace

void register_residual_sublayers(nanobind::module_ &module) {
    namespace nb = nanobind;
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<AttentionCall>(module, "ResidualAttentionCall")
        // ``addresses``: lengths, seed, mask numbers, projected, readings.
        .def("__init__", [](AttentionCall *call, std::array<int64_t, 4> sizes, bool causal, double epsilon, double rate,
                            int64_t dropped, std::array<int64_t, 5> addresses) {
            const auto [batch, time, width, heads] = sizes;
            const auto [lengths, seed, mask_numbers, projected, readings] = addresses;
            new (call) AttentionCall{{batch, time, width, heads, causal}, epsilon, rate, dropped, lengths, seed,
                                     mask_numbers, projected, readings};
        });
    nb::class_<FeedForwardCall>(module, "ResidualFeedForwardCall")
        // ``addresses``: hidden mask numbers, mask numbers, hidden.
        .def("__init__", [](FeedForwardCall *call, std::array<int64_t, 3> sizes, double epsilon, int64_t hidden_dropped,
                            int64_t dropped, std::array<int64_t, 3> addresses) {
            const auto [rows, width, hidden_units] = sizes;
            const auto [hidden_mask_numbers, mask_numbers, hidden] = addresses;
            new (call) FeedForwardCall{{rows, width, hidden_units}, epsilon, hidden_dropped, dropped,
                                       hidden_mask_numbers, mask_numbers, hidden};
        });
    module.def("residual_attention_forward_float32", &attention_forward<float>, Unlocked());
    module.def("residual_attention_forward_float64", &attention_forward<double>, Unlocked());
    module.def("residual_attention_backward_float32", &attention_backward<float>, Unlocked());
    module.def("residual_attention_backward_float64", &attention_backward<double>, Unlocked());
    module.def("residual_feedforward_forward_float32", &feedforward_forward<float>, Unlocked());
    module.def("residual_feedforward_forward_float64", &feedforward_forward<double>, Unlocked());
    module.def("residual_feedforward_backward_float32", &feedforward_backward<float>, Unlocked());
    module.def("residual_feedforward_backward_float64", &feedforward_backward<double>, Unlocked());
}
