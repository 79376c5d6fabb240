// One step of a transformer decoder, for all its layers: norms, projections, attention to cached rows, residual sums; and the
// products with packed weights that it is made of.
//
// Legend: M rows (one per hypothesis), d the width of the model.
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <vector>

#include "common/scratch.h"
#include "common/kernels.h"
#include "common/rows.h"
#include "decoder/attention.h"
#include "decoder/layer_norm.h"
#include "decoder/panels.h"

namespace {

// In the order of ``KINDS`` in kernel.py.
enum Kind : int64_t { softmax, hard, gaussian, cross_softmax, cross_hard, cross_gaussian, feedforward };

// A sublayer in the order of ``_fields`` in kernel.py: sizes, and addresses of the linear layers at its start and at its
// end, of its norm, of the first key and value, of the weights of hard-coded heads or the biases of the scores of others, and
// of the rotation of queries and keys.
enum Field : int {
    kind, heads, hidden, first_linear, last_linear, scale, shift, keys, values, stride, weights, angles, interleaved, num_fields
};
using Sublayer = std::array<int64_t, num_fields>;

template <class Number>
inline Number *pointer(int64_t address) {
    return reinterpret_cast<Number *>(address);
}

struct Sizes {
    int64_t rows, width, past, sources;
    bool pre_norm;
    float epsilon;
};

// The inputs of a call, and which of its rows are processed.
struct Step {
    const Sizes &sizes;
    const int64_t *row_indices;  // (M, past), the last one is the new row
    const int64_t *memories;     // (M,) the first row of the memory
    const Lengths &lengths;      // of the memories
    int64_t first, rows;

    const int64_t *chosen(int64_t r) const { return row_indices + (first + r) * sizes.past; }

    // Working memory for these rows.
    struct Buffers {
        float *normalized, *result, *inner, *attended, *attention;
    };

    PackedLinear linear(int64_t address, int64_t outputs, int64_t inputs) const {
        return {pointer<float>(address), outputs, inputs};
    }

    // The projection at the start of self-attention, to ``parts`` * d outputs, of which the last ones are cached.
    void project(const Sublayer &layer, const float *input, int64_t parts, const Buffers &to) const {
        const int64_t d = sizes.width;
        linear(layer[first_linear], parts * d, d).multiply(input, rows, to.inner);
        const Rotation rotation{pointer<float>(layer[angles]), layer[interleaved] != 0};
        for (int64_t r = 0; r < rows; ++r) {
            if (rotation.angles) rotation.apply(to.inner + r * parts * d, 2 * layer[heads], d / layer[heads]);
            const int64_t at = chosen(r)[sizes.past - 1] * layer[stride];
            const float *values_of_row = to.inner + (r + 1) * parts * d - d;
            if (parts == 3) std::copy_n(values_of_row - d, d, pointer<float>(layer[keys]) + at);
            std::copy_n(values_of_row, d, pointer<float>(layer[values]) + at);
        }
    }

    void attend(const Sublayer &layer, const float *input, const Buffers &to) const {
        const int64_t d = sizes.width, value_offset = pointer<float>(layer[values]) - pointer<float>(layer[keys]);
        auto past_of = [&](int64_t part) {
            return [&, part](int64_t r) {
                return ChosenRows<const float>{{pointer<float>(layer[part]), layer[stride]}, chosen(r)};
            };
        };
        auto memory_of = [&](int64_t part) {
            return [&, part](int64_t r) {
                return Rows<const float>{pointer<float>(layer[part]) + memories[first + r] * layer[stride], layer[stride]};
            };
        };
        auto all = [&](int64_t) { return sizes.past; };
        auto length = [&](int64_t r) { return lengths[first + r]; };
        const float *of_heads = pointer<float>(layer[weights]);
        const bool is_hard = layer[kind] == hard || layer[kind] == cross_hard;
        switch (layer[kind]) {
            case softmax:
            case hard:
                project(layer, input, 3, to);
                learned_attend(to.inner, 3 * d, rows, layer[heads], d, past_of(keys), value_offset, all, is_hard, of_heads,
                               sizes.past, to.attention, to.attended);
                break;
            case gaussian:
                project(layer, input, 1, to);
                gaussian_attend(of_heads, sizes.past, rows, layer[heads], d, past_of(values), all, to.attention, to.attended);
                break;
            case cross_softmax:
            case cross_hard:
                linear(layer[first_linear], d, d).multiply(input, rows, to.inner);
                learned_attend(to.inner, d, rows, layer[heads], d, memory_of(keys), value_offset, length, is_hard, of_heads,
                               sizes.sources, to.attention, to.attended);
                break;
            default:
                gaussian_attend(of_heads, sizes.sources, rows, layer[heads], d, memory_of(values), length, to.attention,
                                to.attended);
        }
        linear(layer[last_linear], d, d).multiply(to.attended, rows, to.result);
    }

    void apply(const Sublayer &layer, float *x, const Buffers &to) const {
        const int64_t d = sizes.width;
        const LayerNorm norm{pointer<float>(layer[scale]), pointer<float>(layer[shift]), sizes.epsilon};
        if (sizes.pre_norm) norm.apply(x, rows, d, to.normalized);
        const float *input = sizes.pre_norm ? to.normalized : x;
        if (layer[kind] == feedforward) {
            linear(layer[first_linear], layer[hidden], d).multiply(input, rows, to.inner, true);
            linear(layer[last_linear], d, layer[hidden]).multiply(to.inner, rows, to.result);
        } else {
            attend(layer, input, to);
        }
        for (int64_t i = 0; i < rows * d; ++i) x[i] += to.result[i];
        if (!sizes.pre_norm) norm.apply(x, rows, d, x);
    }

    void run(const std::vector<Sublayer> &layers, float *x) const {
        const int64_t d = sizes.width;
        const int64_t longest = std::max(sizes.past, sizes.sources);
        int64_t widest = 3 * d, attention = 0;
        for (const Sublayer &layer : layers) {
            widest = std::max(widest, layer[hidden]);
            if (layer[kind] != feedforward) attention = std::max(attention, attention_scratch(d, layer[heads], longest));
        }
        const int64_t numbers = rows * (3 * d + widest);
        Scratch memory((numbers + attention) * sizeof(float));
        float *normalized = memory.as<float>(), *result = normalized + rows * d, *attended = result + rows * d;
        float *inner = attended + rows * d, *scratch = inner + rows * widest;
        for (const Sublayer &layer : layers) apply(layer, x, {normalized, result, inner, attended, scratch});
    }
};

// ``x`` (M, d) is replaced by the output. Row indices, memories and lengths are addresses; ``ends`` is 0 where all sources
// count. ``stored`` and ``memory_stored`` are the numbers of rows of the caches.
void step(const std::vector<Sublayer> &layers, uintptr_t x, const std::array<int64_t, 4> &counts, bool pre_norm, double epsilon,
          uintptr_t row_indices, int64_t stored, uintptr_t memories, int64_t memory_stored, uintptr_t ends,
          int threads) {
    const auto [rows, width, past, sources] = counts;
    const Sizes sizes{rows, width, past, sources, pre_norm, float(epsilon)};
    const int64_t *own = checked_numbers(row_indices, rows * past, stored);
    const int64_t *memory = checked_numbers(memories, rows, std::max<int64_t>(memory_stored - sources + 1, 0), "memory.first");
    const Lengths lengths(ends, rows, sources, "memory_lengths");
    const int64_t parts = std::clamp<int64_t>(rows / tile, 1, threads), each = (rows + parts - 1) / parts;
    for_each_sequence(parts, threads, [&](int64_t part) {
        const int64_t first = part * each, count = std::min(each, sizes.rows - first);
        if (count > 0) Step{sizes, own, memory, lengths, first, count}.run(layers, pointer<float>(x) + first * sizes.width);
    });
}

int64_t packed_size(int64_t outputs, int64_t inputs) { return panels_size(outputs, inputs) * sizeof(float); }

// ``bias`` is 0 where there is none.
void pack(uintptr_t weight, uintptr_t bias, uintptr_t packed, int64_t outputs, int64_t inputs) {
    pack_panels(pointer<float>(weight), pointer<float>(bias), pointer<float>(packed), outputs, inputs);
}

// y = x W^T + b. Threads take different outputs: their number changes no sum.
void packed_linear(uintptr_t x, uintptr_t packed, uintptr_t y, int64_t rows, int64_t outputs, int64_t inputs, int threads) {
    const PackedLinear layer{pointer<float>(packed), outputs, inputs};
    const int64_t panels = num_panels(outputs), most = rows * inputs * outputs < 1000000 ? 1 : threads;
    const int64_t parts = std::clamp<int64_t>(panels, 1, most);
    for_each_sequence(parts, threads, [&](int64_t part) {
        layer.multiply(pointer<float>(x), rows, pointer<float>(y), false, part * panels / parts, (part + 1) * panels / parts);
    });
}

}  // namespace

void register_decoder(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("packed_size_float32", &packed_size);
    module.def("advise_huge_pages", &advise_huge_pages);
    module.def("pack_float32", &pack, Unlocked());
    module.def("packed_linear_float32", &packed_linear, Unlocked());
    module.def("decoder_layers_float32", &step, Unlocked());
}
