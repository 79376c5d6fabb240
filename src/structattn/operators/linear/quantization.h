// Quantization of a row to int8.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

// max |x|; NaN if one is NaN. Numbers without sign are ordered as their bits are, with NaN above infinity.
inline float greatest_magnitude(const float *row, int64_t size) {
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

// Returns scale = max |x| / 127, and to[c] = round(x[c] / scale) + ``shift``: ``shift`` where the scale is not finite or
// about 0. The sum is taken modulo 256.
inline float quantize_row(const float *row, int64_t size, uint8_t shift, uint8_t *to) {
    const float scale = greatest_magnitude(row, size) / 127, inverse = 1 / scale;
    if (!(inverse > 0) || inverse == __builtin_inff()) {
        std::fill_n(to, size, shift);
        return scale;
    }
    for (int64_t c = 0; c < size; ++c) {
        const float shifted = row[c] * inverse + 0x1.8p23f;  // its low bits hold the rounded quotient
        uint32_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        to[c] = uint8_t(bits + shift);
    }
    return scale;
}
