// Products with some outputs of a linear layer, other ones for each row.
//
// Legend: M rows, K inputs, N outputs; B lists of C outputs each, of which a row takes one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/rows.h"
#include "softmax_attention/rows.h"

struct SelectedLinear {
    Rows<const float> weight;  // (N, K)
    const float *bias;         // (N,), or null
    const int64_t *lists;      // (B, C), negative ones after the last output
    int64_t outputs, inputs, width;

    // The number of outputs of a list. Throws if one is out of range.
    int64_t length(const int64_t *list) const {
        const int64_t *end = std::find_if(list, list + width, [](int64_t output) { return output < 0; });
        const int64_t *wrong = std::find_if(list, end, [&](int64_t output) { return output >= outputs; });
        if (wrong != end)
            throw std::out_of_range("outputs contain " + std::to_string(*wrong) + "; expected less than " + std::to_string(outputs));
        return end - list;
    }

    // y[r][c] = x[r] . weight[list[c]] + bias[list[c]] for rows with one list; -inf after its last output. ``x`` has rows of
    // ``stride`` numbers, padded with zeros to whole vectors. A few weights at a time are in the cache for all rows.
    void multiply(const float *x, int64_t stride, int64_t rows, const int64_t *list, float *y) const {
        constexpr int64_t together = 32;
        const int64_t count = length(list);
        for (int64_t c = 0; c < count; c += together)
            for (int64_t r = 0; r < rows; ++r)
                times_each_row(x + r * stride, ChosenRows<const float>{weight, list + c}, std::min(together, count - c), inputs,
                               y + r * width + c);
        for (int64_t r = 0; r < rows; ++r, y += width) {
            for (int64_t c = 0; bias && c < count; ++c) y[c] += bias[list[c]];
            std::fill(y + count, y + width, -std::numeric_limits<float>::infinity());
        }
    }
};
