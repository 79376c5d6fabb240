// Linear layers with packed weights; quantization of rows to int8, and the scales of products of such rows.
#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/huge_pages.h"
#include "common/kernels.h"
#include "common/scratch.h"
#include "linear/matrix_product.h"
#include "linear/packed.h"
#include "linear/quantization.h"
#include "linear/selected.h"

namespace {

int threads_for(int64_t numbers, int threads) { return numbers < 1000000 ? 1 : threads; }

// scales[r] = max |x[r]| / 127; quantized[r] = round(x[r] / scales[r]), zeros where the scale is 0 or not finite.
void quantize_rows(uintptr_t x, int64_t stride, uintptr_t quantized, uintptr_t scales, int64_t rows, int64_t size,
                   int threads) {
    for_each_sequence(rows, threads_for(rows * size, threads), [&](int64_t r) {
        const float *row = reinterpret_cast<const float *>(x) + r * stride;
        uint8_t *to = reinterpret_cast<uint8_t *>(quantized) + r * size;
        reinterpret_cast<float *>(scales)[r] = quantize_row(row, size, 0, to);
    });
}

// y[r] = y[r] * scales[r] + bias; without bias where its address is 0.
void scale_rows(uintptr_t y, uintptr_t scales, uintptr_t bias, int64_t rows, int64_t size, int threads) {
    const float *added = reinterpret_cast<const float *>(bias);
    for_each_sequence(rows, threads_for(rows * size, threads), [&](int64_t r) {
        float *row = reinterpret_cast<float *>(y) + r * size;
        const float scale = reinterpret_cast<const float *>(scales)[r];
        if (added)
            for (int64_t c = 0; c < size; ++c) row[c] = row[c] * scale + added[c];
        else
            for (int64_t c = 0; c < size; ++c) row[c] *= scale;
    });
}

int64_t packed_size(int64_t outputs, int64_t inputs, int64_t precision) { return PackedLinear{nullptr, outputs, inputs, Precision(precision)}.bytes(); }

// ``bias`` is 0 where there is none. Returns false where the weights have no scales for int8.
bool pack(uintptr_t weight, uintptr_t bias, uintptr_t packed, int64_t outputs, int64_t inputs, int64_t precision) {
    std::vector<uint8_t> row(inputs + 3);
    return PackedLinear{reinterpret_cast<uint8_t *>(packed), outputs, inputs, Precision(precision)}.pack(
        reinterpret_cast<const float *>(weight), reinterpret_cast<const float *>(bias), row.data());
}

// y = x W^T + b. Threads take different outputs: their number changes no sum.
void packed_linear(uintptr_t x, uintptr_t packed, uintptr_t y, int64_t rows, int64_t outputs, int64_t inputs, int64_t precision,
                   int threads) {
    const PackedLinear layer{reinterpret_cast<uint8_t *>(packed), outputs, inputs, Precision(precision)};
    Scratch memory(PackedLinear::prepared_size(rows, inputs, Precision(precision)));
    const int64_t panels = num_panels(outputs);
    const int64_t parts = std::clamp<int64_t>(panels, 1, threads_for(rows * inputs * outputs, threads));
    layer.prepare(reinterpret_cast<const float *>(x), rows, reinterpret_cast<float *>(y), false, memory.as<void>(),
                  [&](const auto &multiply) {
                      for_each_sequence(parts, threads, [&](int64_t part) {
                          multiply(part * panels / parts, (part + 1) * panels / parts);
                      });
                  });
}

// y (M, N) = a (M, K) b (K, N) + bias; ``steps`` are those of the rows and columns of a and b. Threads take different outputs.
void matrix_product(uintptr_t a, uintptr_t b, uintptr_t bias, uintptr_t y, const std::array<int64_t, 3> &sizes,
                    const std::array<int64_t, 4> &steps, int threads) {
    const auto [rows, terms, columns] = sizes;
    const MatrixProduct product{{reinterpret_cast<const float *>(a), steps[0], steps[1]},
                                {reinterpret_cast<const float *>(b), steps[2], steps[3]},
                                reinterpret_cast<const float *>(bias), reinterpret_cast<float *>(y), rows, terms, columns};
    const int64_t groups = product.num_groups(), units = (rows + tile - 1) / tile, used = threads_for(rows * terms * columns, threads);
    const int64_t parts = std::clamp<int64_t>((used + groups - 1) / groups, 1, units);
    for_each_sequence(groups * parts, used, [&](int64_t task) {
        const int64_t part = task / groups;
        product.run(task % groups, part * units / parts * tile, std::min(product.rows, (part + 1) * units / parts * tile));
    });
}

// y = W_2 relu(W_1 x + b_1) + b_2 with f hidden units, for a few rows at a time, whose hidden units stay in the cache.
void packed_feedforward(uintptr_t x, uintptr_t first, uintptr_t last, uintptr_t y, int64_t rows, int64_t size, int64_t units,
                        int64_t precision, int threads) {
    constexpr int64_t together = 8 * tile;
    const PackedLinear to_units{reinterpret_cast<uint8_t *>(first), units, size, Precision(precision)};
    const PackedLinear from_units{reinterpret_cast<uint8_t *>(last), size, units, Precision(precision)};
    for_each_sequence((rows + together - 1) / together, threads_for(rows * size * units, threads), [&](int64_t block) {
        const int64_t begin = block * together, count = std::min(together, rows - begin);
        Scratch memory(count * units * sizeof(float) + PackedLinear::prepared_size(count, std::max(size, units), Precision(precision)));
        float *hidden = memory.as<float>(), *prepared = hidden + count * units;
        to_units.multiply(reinterpret_cast<const float *>(x) + begin * size, count, hidden, prepared, true);
        from_units.multiply(hidden, count, reinterpret_cast<float *>(y) + begin * size, prepared);
    });
}

// y = the outputs of x that are in the list of each row; see ``SelectedLinear``. Consecutive rows with one list share a part.
void selected_linear(uintptr_t x, uintptr_t weight, int64_t stride, uintptr_t bias, uintptr_t lists, uintptr_t list_of_row,
                     uintptr_t y, const std::array<int64_t, 5> &sizes, int threads) {
    const auto [rows, outputs, inputs, num_lists, width] = sizes;
    const SelectedLinear layer{{reinterpret_cast<const float *>(weight), stride}, reinterpret_cast<const float *>(bias),
                               reinterpret_cast<const int64_t *>(lists), outputs, inputs, width};
    const int64_t *lists_of_rows = checked_numbers(list_of_row, rows, num_lists, "list_of_row");
    std::vector<int64_t> starts;
    for (int64_t r = 0; r < rows; ++r)
        if (r == 0 || lists_of_rows[r] != lists_of_rows[r - 1]) starts.push_back(r);
    starts.push_back(rows);
    const int64_t size = inputs, row_size = padded<float>(inputs), columns = width;
    for_each_sequence(int64_t(starts.size()) - 1, threads_for(rows * inputs * width, threads), [&](int64_t part) {
        const int64_t first = starts[part], count = starts[part + 1] - first;
        Scratch memory(count * row_size * sizeof(float));
        float *from = memory.as<float>();
        for (int64_t r = 0; r < count; ++r) {
            float *end = std::copy_n(reinterpret_cast<const float *>(x) + (first + r) * size, size, from + r * row_size);
            std::fill(end, from + (r + 1) * row_size, 0.0f);
        }
        const int64_t *list = layer.lists + lists_of_rows[first] * columns;
        layer.multiply(from, row_size, count, list, reinterpret_cast<float *>(y) + first * columns);
    });
}

}  // namespace

void register_linear(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.attr("has_reduced_precision") = has_reduced_precision;
    module.def("has_amx", &has_amx);
    module.def("packed_size_float32", &packed_size);
    module.def("advise_huge_pages", &advise_huge_pages);
    module.def("pack_float32", &pack, Unlocked());
    module.def("packed_linear_float32", &packed_linear, Unlocked());
    module.def("matrix_product_float32", &matrix_product, Unlocked());
    module.def("packed_feedforward_float32", &packed_feedforward, Unlocked());
    module.def("selected_linear_float32", &selected_linear, Unlocked());
    module.def("quantize_rows_float32", &quantize_rows, Unlocked());
    module.def("scale_rows_float32", &scale_rows, Unlocked());
}
