// Products in int8 with weights that were laid out once, for processors with AVX512-VNNI or AMX.
//
// Legend as in panels.h. Inputs are quantized row by row, to q_x + 128, because the instruction multiplies unsigned with
// signed numbers; -128 sum_k q_w, the first value of each sum, makes up for that. A panel holds for its outputs the
// scales, the biases, these first values, and then for each four inputs four weights of every output.
#pragma once

#if defined(__AVX512F__)
#define STRUCTATTN_INT8_PANELS

#include <immintrin.h>

#include <cmath>

#include "linear/amx.h"
#include "linear/panels.h"
#include "linear/quantization.h"

constexpr int64_t together = 4;  // inputs whose products an instruction adds

inline int64_t groups_of(int64_t inputs) { return (inputs + together - 1) / together; }

// The number of bytes of a panel: three rows of numbers, and the weights.
inline int64_t int8_panel_size(int64_t inputs) { return panel * (3 * sizeof(float) + groups_of(inputs) * together); }

inline int64_t int8_panels_size(int64_t outputs, int64_t inputs) { return num_panels(outputs) * int8_panel_size(inputs); }

// ``weight`` is (N, K); ``bias`` is null where there is none. ``row`` has room for K numbers, rounded up to whole groups.
// Returns whether all weights are finite.
inline bool pack_int8_panels(const float *weight, const float *bias, uint8_t *to, int64_t outputs, int64_t inputs,
                             uint8_t *row) {
    const int64_t size = int8_panel_size(inputs), groups = groups_of(inputs);
    bool finite = true;
    std::fill_n(row, groups * together, uint8_t(0));
    for (int64_t n = 0; n < num_panels(outputs) * panel; ++n) {
        uint8_t *here = to + n / panel * size, *weights = here + 3 * panel * sizeof(float) + n % panel * together;
        float *scales = reinterpret_cast<float *>(here) + n % panel, *biases = scales + panel;
        int32_t *firsts = reinterpret_cast<int32_t *>(biases + panel), sum = 0;
        if (n < outputs) *scales = quantize_row(weight + n * inputs, inputs, 0, row);
        else *scales = 0, std::fill_n(row, inputs, uint8_t(0));
        finite = finite && std::isfinite(*scales);
        for (int64_t k = 0; k < inputs; ++k) sum += int8_t(row[k]);
        *biases = bias && n < outputs ? bias[n] : 0;
        *firsts = -128 * sum;
        for (int64_t group = 0; group < groups; ++group)
            std::memcpy(weights + group * panel * together, row + group * together, together);
    }
    return finite;
}

// The rows of an input, quantized: row r at ``numbers`` + r * ``stride``.
struct QuantizedRows {
    uint8_t *numbers;
    float *scales;
    int64_t stride;

    static int64_t stride_of(int64_t inputs) { return groups_of(inputs) * together; }
    static int64_t size(int64_t rows, int64_t inputs) { return rows * (stride_of(inputs) + int64_t(sizeof(float))); }

    // ``memory`` has ``size`` bytes, aligned as floats are.
    QuantizedRows(const float *x, int64_t rows, int64_t inputs, void *memory)
        : numbers(reinterpret_cast<uint8_t *>(reinterpret_cast<float *>(memory) + rows)),
          scales(reinterpret_cast<float *>(memory)),
          stride(stride_of(inputs)) {
        for (int64_t r = 0; r < rows; ++r) {
            scales[r] = quantize_row(x + r * inputs, inputs, 128, numbers + r * stride);
            std::fill(numbers + r * stride + inputs, numbers + (r + 1) * stride, uint8_t(0));  // their weights are 0
        }
    }
};

// Returns sums + the products of four unsigned and four signed numbers. The intrinsic makes GCC copy the sums twice.
__attribute__((target("avx512vnni"))) inline __m512i add_products(__m512i sums, __m512i inputs, __m512i weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(inputs), "v"(weights));
    return sums;
}

// The results of a row of sums of a panel, of which ``count`` outputs exist.
inline void store_int8_results(const __m512i (&sums)[2], float scale, const uint8_t *packed, int64_t count, bool relu, float *y) {
    const float *scales = reinterpret_cast<const float *>(packed), *biases = scales + panel;
    Wide results[2];
    for (int j = 0; j < 2; ++j) {
        const __m512 sum = _mm512_cvtepi32_ps(sums[j]);
        Wide products;
        std::memcpy(&products, &sum, sizeof sum);
        results[j] = products * load_wide(scales + j * wide) * scale + load_wide(biases + j * wide);
    }
    store_results(results, count, relu, y);
}

// y = scale_x scale_w (q_x q_w^T) + b for R rows from row r on and one panel, of which ``count`` outputs exist.
template <int R>
__attribute__((target("avx512vnni"))) inline void multiply_int8_tile(const QuantizedRows &x, int64_t r, int64_t inputs,
                                                                     const uint8_t *packed, float *y, int64_t outputs,
                                                                     int64_t count, bool relu) {
    const uint8_t *numbers = x.numbers + r * x.stride;
    __m512i sums[R][2];
    for (int j = 0; j < 2; ++j) {
        const __m512i first = _mm512_loadu_si512(packed + 2 * panel * sizeof(float) + j * wide * together);
        for (int i = 0; i < R; ++i) sums[i][j] = first;
    }
    const uint8_t *weights = packed + 3 * panel * sizeof(float);
    for (int64_t group = 0; group < groups_of(inputs); ++group, weights += panel * together) {
        const __m512i first = _mm512_loadu_si512(weights), second = _mm512_loadu_si512(weights + wide * together);
#pragma GCC unroll 12
        for (int i = 0; i < R; ++i) {
            int32_t four;
            std::memcpy(&four, numbers + i * x.stride + group * together, sizeof four);
            const __m512i factor = _mm512_set1_epi32(four);
            sums[i][0] = add_products(sums[i][0], factor, first);
            sums[i][1] = add_products(sums[i][1], factor, second);
        }
    }
    for (int i = 0; i < R; ++i) store_int8_results(sums[i], x.scales[r + i], packed, count, relu, y + i * outputs);
}

// y = x W^T + b for M rows and the panels from ``begin`` to ``end``, as ``multiply_panels``.
inline void multiply_int8_panels(const QuantizedRows &x, int64_t rows, int64_t inputs, const uint8_t *packed, float *y,
                                 int64_t outputs, int64_t begin, int64_t end, bool relu = false) {
#if defined(STRUCTATTN_AMX)
    if (rows > 1 && inputs % tile_bytes == 0 && has_amx()) {  // the sums are the same: of one row alone, AMX is slower
        const TilePanels weights{packed, int8_panel_size(inputs), 2 * panel * int64_t(sizeof(float)), 3 * panel * int64_t(sizeof(float)),
                                 inputs / tile_bytes};
        return multiply_tiles<true>(x.numbers, x.stride, rows, weights, begin, end, [&](int64_t p, int64_t r, const uint8_t *sums) {
            const __m512i both[2] = {_mm512_load_si512(sums), _mm512_load_si512(sums + tile_bytes)};
            store_int8_results(both, x.scales[r], packed + p * int8_panel_size(inputs), std::min(panel, outputs - p * panel), relu,
                               y + r * outputs + p * panel);
        });
    }
#endif
    for (int64_t p = begin; p < end; ++p) {
        const uint8_t *here = packed + p * int8_panel_size(inputs);
        const int64_t n = p * panel, count = std::min(panel, outputs - n);
        for_each_tile(rows, [&](auto size, int64_t r) {
            multiply_int8_tile<size.value>(x, r, inputs, here, y + r * outputs + n, outputs, count, relu);
        });
    }
}

#endif
