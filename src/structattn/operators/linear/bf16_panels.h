// Products in bfloat16 with weights that were laid out once, for processors with AVX512-BF16 or AMX; sums are in float32.
//
// Legend as in panels.h. A panel holds the biases of its outputs, and then for each two inputs two weights of every output.
#pragma once

#if defined(__AVX512F__)
#define STRUCTATTN_BF16_PANELS

#include <immintrin.h>

#include "linear/amx.h"
#include "linear/panels.h"

inline int64_t pairs_of(int64_t inputs) { return (inputs + 1) / 2; }

// The number of bytes of a panel.
inline int64_t bf16_panel_size(int64_t inputs) { return panel * (sizeof(float) + pairs_of(inputs) * 2 * sizeof(uint16_t)); }

inline int64_t bf16_panels_size(int64_t outputs, int64_t inputs) { return num_panels(outputs) * bf16_panel_size(inputs); }

// The nearest bfloat16, ties to even; NaN for NaN.
inline uint16_t to_bf16(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return number == number ? uint16_t(rounded) : uint16_t(bits >> 16 | 0x40);
}

// ``weight`` is (N, K); ``bias`` is null where there is none.
inline void pack_bf16_panels(const float *weight, const float *bias, uint8_t *to, int64_t outputs, int64_t inputs) {
    for (int64_t n = 0; n < num_panels(outputs) * panel; ++n) {
        float *biases = reinterpret_cast<float *>(to + n / panel * bf16_panel_size(inputs));
        uint16_t *weights = reinterpret_cast<uint16_t *>(biases + panel) + n % panel * 2;
        biases[n % panel] = bias && n < outputs ? bias[n] : 0;
        for (int64_t k = 0; k < 2 * pairs_of(inputs); ++k)
            weights[k / 2 * panel * 2 + k % 2] = n < outputs && k < inputs ? to_bf16(weight[n * inputs + k]) : 0;
    }
}

// The rows of an input in bfloat16: row r at ``numbers`` + r * ``stride``.
struct RoundedRows {
    uint16_t *numbers;
    int64_t stride;

    static int64_t size(int64_t rows, int64_t inputs) { return rows * 2 * pairs_of(inputs) * int64_t(sizeof(uint16_t)); }

    // ``memory`` has ``size`` bytes.
    RoundedRows(const float *x, int64_t rows, int64_t inputs, void *memory)
        : numbers(reinterpret_cast<uint16_t *>(memory)), stride(2 * pairs_of(inputs)) {
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < inputs; ++k) numbers[r * stride + k] = to_bf16(x[r * inputs + k]);
            if (inputs < stride) numbers[r * stride + inputs] = 0;
        }
    }
};

// Returns sums + the products of two numbers and two weights. In assembly, so that callers need no other target.
inline __m512 add_pairs(__m512 sums, __m512i inputs, __m512i weights) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(inputs), "v"(weights));
    return sums;
}

// y = x W^T + b for R rows from row r on and one panel, of which ``count`` outputs exist.
template <int R>
inline void multiply_bf16_tile(const RoundedRows &x, int64_t r, int64_t inputs, const uint8_t *packed, float *y,
                               int64_t outputs, int64_t count, bool relu) {
    const float *biases = reinterpret_cast<const float *>(packed);
    const uint16_t *numbers = x.numbers + r * x.stride;
    __m512 sums[R][2];
    for (int i = 0; i < R; ++i) sums[i][0] = _mm512_loadu_ps(biases), sums[i][1] = _mm512_loadu_ps(biases + wide);
    const float *weights = biases + panel;  // a pair is as large as a float
    for (int64_t pair = 0; pair < pairs_of(inputs); ++pair, weights += panel) {
        const __m512i first = _mm512_loadu_si512(weights), second = _mm512_loadu_si512(weights + wide);
#pragma GCC unroll 12
        for (int i = 0; i < R; ++i) {
            int32_t both;
            std::memcpy(&both, numbers + i * x.stride + 2 * pair, sizeof both);
            const __m512i factor = _mm512_set1_epi32(both);
            sums[i][0] = add_pairs(sums[i][0], factor, first);
            sums[i][1] = add_pairs(sums[i][1], factor, second);
        }
    }
    for (int i = 0; i < R; ++i) {
        Wide results[2];
        std::memcpy(results, sums[i], sizeof results);
        store_results(results, count, relu, y + i * outputs);
    }
}

// y = x W^T + b for M rows and the panels from ``begin`` to ``end``, as ``multiply_panels``.
inline void multiply_bf16_panels(const RoundedRows &x, int64_t rows, int64_t inputs, const uint8_t *packed, float *y,
                                 int64_t outputs, int64_t begin, int64_t end, bool relu = false) {
#if defined(STRUCTATTN_AMX)
    // The number of rows must not decide: AMX adds in another order.
    if (2 * inputs % tile_bytes == 0 && has_amx()) {
        const TilePanels weights{packed, bf16_panel_size(inputs), 0, panel * int64_t(sizeof(float)), 2 * inputs / tile_bytes};
        return multiply_tiles<false>(x.numbers, 2 * x.stride, rows, weights, begin, end, [&](int64_t p, int64_t r, const void *sums) {
            Wide results[2];
            std::memcpy(results, sums, sizeof results);
            store_results(results, std::min(panel, outputs - p * panel), relu, y + r * outputs + p * panel);
        });
    }
#endif
    for_each_block(rows, begin, end, [&](int64_t p, int64_t first, int64_t in_block) {
        const uint8_t *here = packed + p * bf16_panel_size(inputs);
        const int64_t n = p * panel, count = std::min(panel, outputs - n);
        for_each_tile(in_block, [&](auto size, int64_t r) {
            multiply_bf16_tile<size.value>(x, first + r, inputs, here, y + (first + r) * outputs + n, outputs, count, relu);
        });
    });
}

#endif
