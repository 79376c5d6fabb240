// Layer norms of rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "softmax_attention/rows.h"

// y = (x - mean) / sqrt(variance + epsilon) * scale + shift.
struct LayerNorm {
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
