// Attention of one query for each row to keys and values in a cache, learned and hard-coded.
//
// Legend: d the width of all heads together. ``rows_of(r)`` are the cached rows of row r, of which ``count_of(r)`` are seen.
// Each function needs ``attention_scratch`` numbers of working memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "softmax_attention/rows.h"

inline int64_t attention_scratch(int64_t width, int64_t heads, int64_t longest) {
    return heads * (padded<float>(width / heads) + padded<float>(longest)) + padded<float>(width);
}

// y_h = sum_s softmax_s(q_h . k_s / sqrt(size)) v_s; a value is ``value_offset`` numbers after its key. The keys of all
// heads are read together, in the order of memory.
template <class RowsOf, class CountOf>
void softmax_attend(const float *queries, int64_t stride, int64_t rows, int64_t heads, int64_t width, const RowsOf &rows_of,
                    int64_t value_offset, const CountOf &count_of, float *scratch, float *y) {
    constexpr int64_t together = 4;  // keys
    const int64_t size = width / heads, padded_size = padded<float>(size);
    const float scale = 1 / std::sqrt(float(size));
    float *product = scratch, *query = product + padded<float>(width), *weights = query + heads * padded_size;
    for (int64_t r = 0; r < rows; ++r, queries += stride, y += width) {
        const int64_t seen = count_of(r), padded_seen = padded<float>(seen);
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t c = 0; c < padded_size; ++c)
                query[h * padded_size + c] = c < size ? queries[h * size + c] * scale : 0;
        auto keys = rows_of(r), values = keys;
        values.shift(value_offset);
        for (int64_t s = 0; s < seen; s += together, keys.skip(together)) {
            const int64_t count = std::min(together, seen - s);
            auto of_head = keys;
            for (int64_t h = 0; h < heads; ++h, of_head.shift(size))
                times_each_row(query + h * padded_size, of_head, count, size, weights + h * padded_seen + s);
        }
        for (int64_t h = 0; h < heads; ++h, values.shift(size)) {
            softmax_row(weights + h * padded_seen, seen, padded_seen);
            weigh_each_row(weights + h * padded_seen, values, seen, size, product);
            std::copy_n(product, size, y + h * size);
        }
    }
}

// y_h = sum_s w_hs v_s with ``weights`` (heads, longest), the same for all rows. Values before the first weight that is not
// zero and after the last one are not read.
template <class RowsOf, class CountOf>
void gaussian_attend(const float *weights, int64_t longest, int64_t rows, int64_t heads, int64_t width,
                     const RowsOf &rows_of, const CountOf &count_of, float *scratch, float *y) {
    const int64_t size = width / heads;
    for (int64_t h = 0; h < heads; ++h, weights += longest) {
        int64_t begin = 0, end = longest;
        while (begin < end && weights[begin] == 0) ++begin;
        while (begin < end && weights[end - 1] == 0) --end;
        for (int64_t r = 0; r < rows; ++r) {
            auto here = rows_of(r);
            here.shift(h * size);
            here.skip(begin);
            weigh_each_row(weights + begin, here, std::min(end, count_of(r)) - begin, size, scratch);
            std::copy_n(scratch, size, y + r * width + h * size);
        }
    }
}
