// Softmax attention, forward and backward, for the sizes of small models: see DERIVATION.md.
//
// Legend: T queries, S keys of one head of one sequence; D, E their components. See head.h.
#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>

#include "common/kernels.h"
#include "common/rows.h"
#include "softmax_attention/head.h"

namespace {

using namespace softmax;

// A tensor (B, H, time, size): its address and the strides of the first three axes; the last is contiguous. All zero if
// there is no tensor.
using View = std::array<int64_t, 4>;

// Arguments of a call besides its tensors.
struct Call {
    int64_t batch, heads, queries, keys, size, value_size;
    bool causal;
    double scale, rate;
    Lengths lengths, memory_lengths;
    int64_t seed;  // address; 0 without dropout
    View bias;

    template <class Number>
    Head<Number> head(int64_t index) const {
        const int64_t b = index / heads, t = lengths[b], s = memory_lengths[b];
        const Dropout dropout{seed ? *reinterpret_cast<const uint64_t *>(seed) : 0, rate};
        const Rows<const Number> added = rows<const Number>(bias, index);
        return {t, s, size, value_size, causal, Number(scale), dropout, uint64_t(index * queries), added, false};
    }
    template <class Number>
    Rows<Number> rows(const View &view, int64_t index) const {
        Number *first = reinterpret_cast<Number *>(view[0]);
        return {first + index / heads * view[1] + index % heads * view[2], view[3]};
    }
    template <class Number>
    Inputs<Number> inputs(const std::array<View, 3> &views, int64_t index) const {
        return {rows<const Number>(views[0], index), rows<const Number>(views[1], index),
                rows<const Number>(views[2], index)};
    }
    // Threads pay off only if the total work takes longer than creating a thread, some 20 µs.
    int useful_threads(int threads) const {
        return batch * heads * queries * keys * (size + value_size) < 1000000 ? 1 : threads;
    }
};

// Writes zeros from row ``first`` on.
template <class Number>
void clear(Rows<Number> rows, int64_t first, int64_t count, int64_t size) {
    for (; first < count; ++first) std::fill_n(rows.row(first), size, Number(0));
}

template <class Number>
void forward(const Call &call, const std::array<View, 3> &inputs, const std::array<View, 2> &outputs, int threads) {
    for_each_sequence(call.batch * call.heads, call.useful_threads(threads), [&](int64_t i) {
        const Head<Number> head = call.head<Number>(i);
        const Outputs<Number> out{call.rows<Number>(outputs[0], i), call.rows<Number>(outputs[1], i)};
        forward_head(head, call.inputs<Number>(inputs, i), out);
        clear(out.readings, head.queries, call.queries, call.value_size);
    });
}

// One query for each sequence, whose keys and values are rows of shared caches; the batch axis of the caches' views is
// ignored. ``slots`` is the address of the row indices, (B, S), which are below ``stored``.
template <class Number>
void forward_stored(const Call &call, const std::array<View, 3> &inputs, const View &outputs, int64_t slots,
                    int64_t stored, int threads) {
    const int64_t *numbers = checked_numbers(slots, call.batch * call.keys, stored);
    for_each_sequence(call.batch * call.heads, call.useful_threads(threads), [&](int64_t i) {
        const Head<Number> head = call.head<Number>(i);
        const Inputs<Number> in = call.inputs<Number>(inputs, i);
        const int64_t *chosen = numbers + i / call.heads * call.keys;
        const ChosenRows<const Number> keys{in.key, chosen}, values{in.value, chosen};
        Scratch scratch(Tables<Number>::bytes(head));
        Tables<Number> tables(head, scratch.as<Number>());
        const Outputs<Number> out{call.rows<Number>(outputs, i), {}};
        Block<1, Number>(head, 0).forward_alone(in.query, keys, values, tables, out);
    });
}

template <class Number>
void backward(const Call &call, const std::array<View, 3> &inputs, const std::array<View, 2> &cotangents,
              const std::array<View, 4> &gradients, int threads) {
    for_each_sequence(call.batch * call.heads, call.useful_threads(threads), [&](int64_t i) {
        const Head<Number> head = call.head<Number>(i);
        const Cotangents<Number> given{call.rows<const Number>(cotangents[0], i),
                                       call.rows<const Number>(cotangents[1], i)};
        const Gradients<Number> found{call.rows<Number>(gradients[0], i), call.rows<Number>(gradients[1], i),
                                      call.rows<Number>(gradients[2], i), call.rows<Number>(gradients[3], i)};
        backward_head(head, call.inputs<Number>(inputs, i), given, found);
        clear(found.query, head.queries, call.queries, call.size);
        clear(found.key, head.keys, call.keys, call.size);
        clear(found.value, head.keys, call.keys, call.value_size);
    });
}

}  // namespace

void register_softmax_attention(nanobind::module_ &module) {
    namespace nb = nanobind;
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Call>(module, "SoftmaxAttentionCall")
        // ``ends``: address of the lengths of queries and then of keys; 0 without lengths.
        .def("__init__", [](Call *call, std::array<int64_t, 6> sizes, bool causal, double scale, double rate,
                            int64_t ends, int64_t seed, const View &bias) {
            const auto [batch, heads, queries, keys, size, value_size] = sizes;
            const uintptr_t of_keys = ends ? uintptr_t(ends + batch * sizeof(int64_t)) : 0;
            new (call) Call{batch, heads, queries, keys, size, value_size, causal, scale, rate,
                            {uintptr_t(ends), batch, queries}, {of_keys, batch, keys, "memory_lengths"}, seed, bias};
        });
    module.def("softmax_attention_forward_float32", &forward<float>, Unlocked());
    module.def("softmax_attention_forward_float64", &forward<double>, Unlocked());
    module.def("softmax_attention_stored_float32", &forward_stored<float>, Unlocked());
    module.def("softmax_attention_stored_float64", &forward_stored<double>, Unlocked());
    module.def("softmax_attention_backward_float32", &backward<float>, Unlocked());
    module.def("softmax_attention_backward_float64", &backward<double>, Unlocked());
}
