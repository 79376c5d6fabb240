// Attention of one query for each row to keys and values in a cache: softmax, hard and hard-coded.
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

// Scores of the keys of each head, of which row h of ``weights`` has ``padded_seen``: q_h . k_s / sqrt(size) + bias_hs.
// ``bias`` (heads, longest) is null where there is none. The keys of all heads are read together, in the order of memory.
template <class Keys>
void score_keys(const float *queries, Keys keys, int64_t seen, int64_t heads, int64_t size, const float *bias, int64_t longest,
                float *query, float *weights) {
    constexpr int64_t together = 4;  // keys
    const int64_t padded_size = padded<float>(size), padded_seen = padded<float>(seen);
    const float scale = 1 / std::sqrt(float(size));
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t c = 0; c < padded_size; ++c)
            query[h * padded_size + c] = c < size ? queries[h * size + c] * scale : 0;
    for (int64_t s = 0; s < seen; s += together, keys.skip(together)) {
        const int64_t count = std::min(together, seen - s);
        auto of_head = keys;
        for (int64_t h = 0; h < heads; ++h, of_head.shift(size))
            times_each_row(query + h * padded_size, of_head, count, size, weights + h * padded_seen + s);
    }
    for (int64_t h = 0; bias && h < heads; ++h)
        for (int64_t s = 0; s < seen; ++s) weights[h * padded_seen + s] += bias[h * longest + s];
}

// y = the value with the greatest score, the first one among equals; zeros where all are -inf, NaN where one is NaN.
template <class Values>
void choose_value(const float *scores, Values values, int64_t seen, int64_t size, float *y) {
    float best = -__builtin_inff();
    int64_t choice = -1;
    for (int64_t s = 0; s < seen && best == best; ++s)
        if (!(scores[s] <= best)) best = scores[s], choice = s;
    if (best == best && choice >= 0) std::copy_n(values.row(choice), size, y);
    else std::fill_n(y, size, best == best ? 0 : best);
}

// y_h = sum_s softmax_s(scores_hs) v_s, or the value with the greatest score if ``hard``; see ``score_keys``. A value is
// ``value_offset`` numbers after its key.
template <class RowsOf, class CountOf>
void learned_attend(const float *queries, int64_t stride, int64_t rows, int64_t heads, int64_t width, const RowsOf &rows_of,
                    int64_t value_offset, const CountOf &count_of, bool hard, const float *bias, int64_t longest,
                    float *scratch, float *y) {
    const int64_t size = width / heads;
    float *product = scratch, *query = product + padded<float>(width), *weights = query + heads * padded<float>(size);
    for (int64_t r = 0; r < rows; ++r, queries += stride, y += width) {
        const int64_t seen = count_of(r), padded_seen = padded<float>(seen);
        auto keys = rows_of(r), values = keys;
        values.shift(value_offset);
        score_keys(queries, keys, seen, heads, size, bias, longest, query, weights);
        for (int64_t h = 0; h < heads; ++h, values.shift(size)) {
            float *of_head = weights + h * padded_seen;
            if (hard) {
                choose_value(of_head, values, seen, size, y + h * size);
                continue;
            }
            softmax_row(of_head, seen, padded_seen);
            weigh_each_row(of_head, values, seen, size, product);
            std::copy_n(product, size, y + h * size);
        }
    }
}

// Rotates pairs of components of each head, (2i, 2i + 1) or (i, i + size / 2), by angles whose cosines and sines are
// ``angles`` (2, size / 2).
struct Rotation {
    const float *angles;
    bool interleaved;

    void apply(float *heads_of_row, int64_t heads, int64_t size) const {
        const int64_t half = size / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
        for (int64_t h = 0; h < heads; ++h, heads_of_row += size)
            for (int64_t i = 0; i < half; ++i) {
                float &a = heads_of_row[i * step], &b = heads_of_row[i * step + apart];
                const float cosine = angles[i], sine = angles[half + i], first = a * cosine - b * sine;
                b = a * sine + b * cosine;
                a = first;
            }
    }
};

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
