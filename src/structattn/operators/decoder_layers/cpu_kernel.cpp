// One step of a transformer decoder, for all its layers: norms, projections, attention to cached rows, residual sums.
//
// Legend: M rows (one per hypothesis), d the width of the model, K inputs and N outputs of a linear layer. Weights are laid
// out once in panels of ``panel`` outputs: the biases of the panel, then for each input its weights. A product keeps a tile
// of ``tile`` rows by one panel in registers.
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/kernels.h"
#include "common/lengths.h"
#include "common/rows.h"
#include "common/scratch.h"
#include "softmax_attention/rows.h"

namespace {

#if defined(__AVX512F__)
constexpr int wide = 16, tile = 12;
#elif defined(__AVX2__)
constexpr int wide = 8, tile = 6;
#else
constexpr int wide = 4, tile = 6;
#endif
constexpr int64_t panel = 2 * wide;
typedef float Wide __attribute__((vector_size(wide * 4)));

inline Wide load_wide(const float *from) {
    Wide vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}
inline void store_wide(float *to, Wide vector) { std::memcpy(to, &vector, sizeof vector); }

int64_t packed_size(int64_t outputs, int64_t inputs) { return (outputs + panel - 1) / panel * panel * (inputs + 1); }

// ``bias`` is 0 where there is none.
void pack(uintptr_t weight, uintptr_t bias, uintptr_t packed, int64_t outputs, int64_t inputs) {
    const float *from = reinterpret_cast<const float *>(weight), *added = reinterpret_cast<const float *>(bias);
    float *to = reinterpret_cast<float *>(packed);
    for (int64_t first = 0; first < outputs; first += panel) {
        const int64_t count = std::min(panel, outputs - first);
        for (int64_t n = 0; n < panel; ++n) *to++ = added && n < count ? added[first + n] : 0;
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t n = 0; n < panel; ++n) *to++ = n < count ? from[(first + n) * inputs + k] : 0;
    }
}

// y = x W^T + b for R rows and one panel, of which ``count`` outputs exist.
template <int R>
inline void multiply_tile(const float *x, int64_t inputs, const float *weights, float *y, int64_t outputs, int64_t count,
                          bool relu) {
    Wide sums[R][2];
    for (int i = 0; i < R; ++i) sums[i][0] = load_wide(weights), sums[i][1] = load_wide(weights + wide);
    for (int64_t k = 0; k < inputs; ++k) {
        weights += panel;
        const Wide first = load_wide(weights), second = load_wide(weights + wide);
#pragma GCC unroll 12
        for (int i = 0; i < R; ++i) {
            const float factor = x[i * inputs + k];
            sums[i][0] += factor * first, sums[i][1] += factor * second;
        }
    }
    for (int i = 0; i < R; ++i) {
        float row[panel];
        const Wide zero{};
        for (int j = 0; j < 2; ++j) store_wide(row + j * wide, relu ? (sums[i][j] > zero ? sums[i][j] : zero) : sums[i][j]);
        std::memcpy(y + i * outputs, row, count * sizeof(float));
    }
}

// y = x W^T + b, with packed weights.
void multiply(const float *x, int64_t rows, int64_t inputs, const float *weights, float *y, int64_t outputs,
              bool relu = false) {
    for (int64_t n = 0; n < outputs; n += panel, weights += panel * (inputs + 1)) {
        const int64_t count = std::min(panel, outputs - n);
        int64_t r = 0;
        auto at = [&](int64_t row) { return x + row * inputs; };
        for (; r + tile <= rows; r += tile)
            multiply_tile<tile>(at(r), inputs, weights, y + r * outputs + n, outputs, count, relu);
        for (; r + 4 <= rows; r += 4) multiply_tile<4>(at(r), inputs, weights, y + r * outputs + n, outputs, count, relu);
        for (; r < rows; ++r) multiply_tile<1>(at(r), inputs, weights, y + r * outputs + n, outputs, count, relu);
    }
}

// Scale and shift of a layer norm; no norm where the address is 0.
struct Norm {
    const float *scale, *shift;
    float epsilon;

    void apply(const float *x, int64_t rows, int64_t size, float *y) const {
        for (int64_t r = 0; r < rows; ++r, x += size, y += size) {
            Lanes<float> sums{}, squares{};
            const int64_t whole = size / lanes<float> * lanes<float>;
            float rest = 0;
            for (int64_t c = 0; c < whole; c += lanes<float>) sums += load(x + c);
            for (int64_t c = whole; c < size; ++c) rest += x[c];
            const float mean = (sum_lanes<float>(sums) + rest) / size;
            rest = 0;
            for (int64_t c = 0; c < whole; c += lanes<float>) squares += (load(x + c) - mean) * (load(x + c) - mean);
            for (int64_t c = whole; c < size; ++c) rest += (x[c] - mean) * (x[c] - mean);
            const float factor = 1 / std::sqrt((sum_lanes<float>(squares) + rest) / size + epsilon);
            for (int64_t c = 0; c < size; ++c) y[c] = (x[c] - mean) * factor * scale[c] + shift[c];
        }
    }
};

// The addresses of a layer, in the order of ``_addresses`` in __init__.py.
enum Part : int {
    own_projection, own_output, own_scale, own_shift, cross_query, cross_output, cross_scale, cross_shift, hidden, output,
    feedforward_scale, feedforward_shift, cached, memory_keys, memory_values, num_parts
};
using Layer = std::array<uintptr_t, num_parts>;

struct Sizes {
    int64_t rows, width, hidden, own_heads, cross_heads, past, sources, memory_stride;
    bool pre_norm;
    float epsilon;
};

inline float *numbers(uintptr_t address) { return reinterpret_cast<float *>(address); }

// Attention of one query per row; ``rows_of(r)`` are the keys and values of a row, of which ``count(r)`` are seen.
template <class Keys, class Count>
void attend(const float *queries, int64_t stride, int64_t rows, int64_t heads, int64_t width, const Keys &keys,
            int64_t value_offset, const Count &count, float *scratch, float *y) {
    const int64_t size = width / heads, padded_size = padded<float>(size);
    const float scale = 1 / std::sqrt(float(size));
    float *query = scratch, *product = scratch + padded_size, *weights = product + padded_size;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < heads; ++h) {
            std::fill(query + size, query + padded_size, 0.f);
            for (int64_t c = 0; c < size; ++c) query[c] = queries[r * stride + h * size + c] * scale;
            ChosenRows<const float> here = keys(r);
            here.all.first += h * size;
            const int64_t seen = count(r);
            times_each_row(query, here, seen, size, weights);
            softmax_row(weights, seen, padded<float>(seen));
            here.all.first += value_offset;
            weigh_each_row(weights, here, seen, size, product);
            std::copy_n(product, size, y + r * width + h * size);
        }
}

// Some of the rows of a call.
struct Step {
    const Sizes &sizes;
    const int64_t *row_indices, *memory_indices;  // (M, past), the last one the new row; (M, sources)
    const Lengths &lengths;
    int64_t first, rows;

    void run(const std::vector<Layer> &layers, float *x) const {
        const int64_t d = sizes.width, widest = std::max(3 * d, sizes.hidden);
        const int64_t longest = padded<float>(std::max(sizes.past, sizes.sources)) + 4 * d + 64;
        Scratch memory((rows * (2 * d + widest) + longest) * sizeof(float));
        float *normalized = memory.as<float>(), *result = normalized + rows * d, *inner = result + rows * d;
        float *scratch = inner + rows * widest;
        for (const Layer &layer : layers) {
            auto sublayer = [&](Part scale, const auto &body) {
                const Norm norm{numbers(layer[scale]), numbers(layer[scale + 1]), sizes.epsilon};
                if (sizes.pre_norm) norm.apply(x, rows, d, normalized);
                body(sizes.pre_norm ? normalized : x);
                for (int64_t i = 0; i < rows * d; ++i) x[i] += result[i];
                if (!sizes.pre_norm) norm.apply(x, rows, d, x);
            };
            sublayer(own_scale, [&](const float *input) {
                // The output of attention replaces its queries: row r of width d ends before row r + 1 of width 3 d begins.
                multiply(input, rows, d, numbers(layer[own_projection]), inner, 3 * d);
                const Rows<float> all{numbers(layer[cached]), 2 * d};
                auto chosen = [&](int64_t r) { return row_indices + (first + r) * sizes.past; };
                for (int64_t r = 0; r < rows; ++r)
                    std::copy_n(inner + r * 3 * d + d, 2 * d, all.row(chosen(r)[sizes.past - 1]));
                auto keys = [&](int64_t r) { return ChosenRows<const float>{{all.first, all.stride}, chosen(r)}; };
                attend(inner, 3 * d, rows, sizes.own_heads, d, keys, d, [&](int64_t) { return sizes.past; }, scratch, inner);
                multiply(inner, rows, d, numbers(layer[own_output]), result, d);
            });
            sublayer(cross_scale, [&](const float *input) {
                multiply(input, rows, d, numbers(layer[cross_query]), inner, d);
                const float *first_key = numbers(layer[memory_keys]);
                auto keys = [&](int64_t r) {
                    return ChosenRows<const float>{{first_key, sizes.memory_stride},
                                                   memory_indices + (first + r) * sizes.sources};
                };
                attend(inner, d, rows, sizes.cross_heads, d, keys, numbers(layer[memory_values]) - first_key,
                       [&](int64_t r) { return lengths[first + r]; }, scratch, inner + rows * d);
                multiply(inner + rows * d, rows, d, numbers(layer[cross_output]), result, d);
            });
            sublayer(feedforward_scale, [&](const float *input) {
                multiply(input, rows, d, numbers(layer[hidden]), inner, sizes.hidden, true);
                multiply(inner, rows, sizes.hidden, numbers(layer[output]), result, d);
            });
        }
    }
};

// ``x`` (M, d) is replaced by the output. Row indices and lengths are addresses; ``ends`` is 0 where all sources count.
void step(const std::vector<Layer> &layers, uintptr_t x, const std::array<int64_t, 8> &counts, bool pre_norm,
          double epsilon, uintptr_t row_indices, int64_t stored, uintptr_t memory_indices, int64_t memory_stored,
          uintptr_t ends, int threads) {
    const auto [rows, width, hidden, own_heads, cross_heads, past, sources, memory_stride] = counts;
    const Sizes sizes{rows, width, hidden, own_heads, cross_heads, past, sources, memory_stride, pre_norm, float(epsilon)};
    const int64_t *own = checked_numbers(row_indices, rows * past, stored);
    const int64_t *memory = checked_numbers(memory_indices, rows * sources, memory_stored);
    const Lengths lengths(ends, rows, sources, "memory_lengths");
    const int64_t parts = std::clamp<int64_t>(rows / tile, 1, threads), each = (rows + parts - 1) / parts;
    for_each_sequence(parts, threads, [&](int64_t part) {
        const int64_t first = part * each, count = std::min(each, sizes.rows - first);
        if (count > 0) Step{sizes, own, memory, lengths, first, count}.run(layers, numbers(x) + first * sizes.width);
    });
}

}  // namespace

void register_decoder_layers(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("packed_size_float32", &packed_size);
    module.def("pack_float32", &pack, Unlocked());
    module.def("decoder_layers_float32", &step, Unlocked());
}
