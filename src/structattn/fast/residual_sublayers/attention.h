// Softmax self-attention as the middle of a residual sublayer.
//
// Legend: B sequences of T positions; d = size of a row of x, H heads. A row of what is projected has queries, keys and values,
// each d = H * (d / H) numbers.
#pragma once

#include <array>
#include <cmath>

#include "residual_sublayers/sequences.h"
#include "softmax_attention/head.h"

struct AttentionSizes {
    int64_t batch, time, width, heads;
    bool causal;

    int64_t row() const { return padded_row(width); }
    int64_t projected_row() const { return padded_row(3 * width); }
    WeightSizes weights() const { return {width, 3 * width, width}; }
};

template <class Number>
struct AttentionSublayer {
    AttentionSizes sizes;
    softmax::Dropout dropout;  // of the weights of attention
    SequenceSublayer<Number> around;

    void forward(int64_t b, Number *y) const {
        around.forward(b, y, [&](int64_t length, const Number *own, Number *read) {
            const bool finite = all_finite(own, length, sizes.projected_row());
            for (int64_t h = 0; h < sizes.heads; ++h)
                softmax::forward_head(head(b, h, length, finite), inputs(own, h), {rows(read, h, sizes.row()), {}});
        });
    }
    void backward(int64_t b, const Number *grad_y, Number *grad_x, const Gradients<Number> &gradients) const {
        auto backward = [&](int64_t length, const Number *own, const Number *cotangent, Number *grad) {
            const bool finite = all_finite(own, length, sizes.projected_row()) && all_finite(cotangent, length, sizes.row());
            for (int64_t h = 0; h < sizes.heads; ++h) {
                const auto found = parts(grad, h);
                softmax::backward_head(head(b, h, length, finite), inputs(own, h), {rows(cotangent, h, sizes.row()), {}},
                                       {found[0], found[1], found[2], {}});
            }
        };
        around.backward(b, grad_y, grad_x, gradients, backward);
    }

private:
    // Of all heads at once, which takes less time than each by itself.
    static bool all_finite(const Number *table, int64_t length, int64_t row) {
        return softmax::finite<Number>({table, row}, length, row);
    }
    softmax::Head<Number> head(int64_t b, int64_t h, int64_t length, bool finite) const {
        const int64_t size = sizes.width / sizes.heads;
        const Number scale = Number(1 / std::sqrt(double(size)));
        const uint64_t first_row = uint64_t((b * sizes.heads + h) * sizes.time);  // as in softmax_attention
        return {length, length, size, size, sizes.causal, scale, dropout, first_row, {}, false, finite};
    }
    // The part of a table that belongs to a head.
    template <class Any>
    Rows<Any> rows(Any *table, int64_t h, int64_t stride) const {
        return {table + h * (sizes.width / sizes.heads), stride};
    }
    // The same for queries, keys and values.
    template <class Any>
    std::array<Rows<Any>, 3> parts(Any *table, int64_t h) const {
        const int64_t stride = sizes.projected_row();
        return {rows(table, h, stride), rows(table + sizes.width, h, stride), rows(table + 2 * sizes.width, h, stride)};
    }
    softmax::Inputs<Number> inputs(const Number *table, int64_t h) const {
        const auto found = parts(table, h);
        return {found[0], found[1], found[2]};
    }
};
