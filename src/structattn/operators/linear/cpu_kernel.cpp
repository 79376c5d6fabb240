// Quantization of rows to int8, and the scales of products of such rows.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/kernels.h"

namespace {

int threads_for(int64_t numbers, int threads) { return numbers < 1000000 ? 1 : threads; }

// max |x|; NaN if one is NaN. Numbers without sign are ordered as their bits are, with NaN above infinity.
float greatest_magnitude(const float *row, int64_t size) {
    int32_t most = 0;
    for (int64_t c = 0; c < size; ++c) {
        int32_t bits;
        std::memcpy(&bits, row + c, sizeof bits);
        most = std::max(most, bits & 0x7fffffff);
    }
    float magnitude;
    std::memcpy(&magnitude, &most, sizeof magnitude);
    return magnitude;
}

// scales[r] = max |x[r]| / 127; quantized[r] = round(x[r] / scales[r]), zeros where the scale is 0 or not finite.
void quantize_rows(uintptr_t x, int64_t stride, uintptr_t quantized, uintptr_t scales, int64_t rows, int64_t size,
                   int threads) {
    for_each_sequence(rows, threads_for(rows * size, threads), [&](int64_t r) {
        const float *row = reinterpret_cast<const float *>(x) + r * stride;
        int8_t *to = reinterpret_cast<int8_t *>(quantized) + r * size;
        const float scale = greatest_magnitude(row, size) / 127;
        reinterpret_cast<float *>(scales)[r] = scale;
        const float inverse = 1 / scale;
        if (!(inverse > 0) || inverse == __builtin_inff()) {  // of a scale that is infinite or NaN, or about 0
            std::fill_n(to, size, int8_t(0));
            return;
        }
        for (int64_t c = 0; c < size; ++c) {
            const float shifted = row[c] * inverse + 0x1.8p23f;  // its low bits hold the rounded quotient
            int32_t bits;
            std::memcpy(&bits, &shifted, sizeof bits);
            to[c] = int8_t(bits);
        }
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

}  // namespace

void register_linear(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("quantize_rows_float32", &quantize_rows, Unlocked());
    module.def("scale_rows_float32", &scale_rows, Unlocked());
}
