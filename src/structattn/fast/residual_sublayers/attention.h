// The sublayer y = x + mask * (W_o attention(W n(x) + b) + b_o) with a layer norm n and softmax self-attention.
//
// Legend: B sequences of T positions, of which the first ``length`` count; d = size of a row of x, H heads. A row of W n(x)
// has queries, keys and values, each d = H * (d / H) numbers.
#pragma once

#include <array>
#include <cmath>

#include "common/rows.h"
#include "residual_sublayers/masks.h"
#include "residual_sublayers/norm.h"
#include "residual_sublayers/weights.h"
#include "softmax_attention/head.h"

struct AttentionSizes {
    int64_t batch, time, width, heads;
    bool causal;

    int64_t row() const { return padded_row(width); }
    int64_t projected_row() const { return padded_row(3 * width); }
    WeightSizes weights() const { return {width, 3 * width, width}; }
};

// Tables of a sequence. The forward pass uses some of them.
template <class Number>
struct AttentionTables {
    Number *centred, *normalized, *inverse, *result, *cotangent, *grad_readings, *grad_projected;

    AttentionTables(const AttentionSizes &sizes, Pieces<Number> &pieces) {
        const int64_t table = sizes.time * sizes.row();
        centred = pieces.take(table), normalized = pieces.take(table), inverse = pieces.take(sizes.time);
        result = pieces.take(table), cotangent = pieces.take(table), grad_readings = pieces.take(table);
        grad_projected = pieces.take(sizes.time * sizes.projected_row());
    }
};

template <class Number>
struct AttentionSublayer {
    AttentionSizes sizes;
    const Weights<Number> &weights;
    Number epsilon;
    softmax::Dropout dropout;  // of the weights of attention
    Mask<Number> mask;
    Lengths lengths;
    const Number *x;
    Number *projected, *readings;  // kept for the backward pass: (B, T, padded 3 d) and (B, T, padded d)

    Norm<Number> norm() const { return {weights.scale, weights.shift, sizes.width, epsilon}; }

    void forward(int64_t b, Number *y) const {
        const int64_t length = lengths[b], width = sizes.width, first = b * sizes.time;
        Number *own = projected + first * sizes.projected_row(), *read = readings + first * sizes.row();
        with_tables([&](const AttentionTables<Number> &tables) {
            normalize(b, length, tables);
            weights.first.apply(tables.normalized, length, own);
            const bool finite = all_finite(own, length, sizes.projected_row());
            for (int64_t h = 0; h < sizes.heads; ++h)
                softmax::forward_head(head(b, h, length, finite), inputs(own, h), {rows(read, h, sizes.row()), {}});
            weights.second.apply(read, length, tables.result);
            const Number *from = x + first * width;
            Number *to = y + first * width;
            for (int64_t t = 0; t < length; ++t)
                mask.add(from + t * width, tables.result + t * sizes.row(), (first + t) * width, width, to + t * width);
            std::copy(from + length * width, from + sizes.time * width, to + length * width);
        });
    }
    // Writes the gradient of a sequence of x, and adds to those of the weights.
    void backward(int64_t b, const Number *grad_y, Number *grad_x, const Gradients<Number> &gradients) const {
        const int64_t length = lengths[b], width = sizes.width, first = b * sizes.time;
        const Number *own = projected + first * sizes.projected_row(), *read = readings + first * sizes.row();
        with_tables([&](const AttentionTables<Number> &tables) {
            for (int64_t t = 0; t < length; ++t)
                mask.apply(grad_y + (first + t) * width, (first + t) * width, width, tables.cotangent + t * sizes.row());
            gradients.second.add(read, tables.cotangent, length);
            weights.second.backward(tables.cotangent, length, tables.grad_readings);
            const bool finite = all_finite(own, length, sizes.projected_row()) && all_finite(tables.grad_readings, length, sizes.row());
            for (int64_t h = 0; h < sizes.heads; ++h) {
                const auto found = parts(tables.grad_projected, h);
                softmax::backward_head(head(b, h, length, finite), inputs(own, h), {rows<const Number>(tables.grad_readings, h, sizes.row()), {}},
                                       {found[0], found[1], found[2], {}});
            }
            normalize(b, length, tables);
            gradients.first.add(tables.normalized, tables.grad_projected, length);
            weights.first.backward(tables.grad_projected, length, tables.cotangent);
            std::copy_n(grad_y + first * width, sizes.time * width, grad_x + first * width);
            norm().backward(tables.centred, tables.inverse, tables.cotangent, length, gradients.scale, gradients.shift,
                            grad_x + first * width);
        });
    }

private:
    template <class Body>
    void with_tables(const Body &body) const {
        Pieces<Number> counted(nullptr);
        AttentionTables<Number>(sizes, counted);
        ScratchFor<AttentionTables<Number>> scratch(counted.bytes());
        Pieces<Number> pieces(scratch.template as<Number>());
        body(AttentionTables<Number>(sizes, pieces));
    }
    void normalize(int64_t b, int64_t length, const AttentionTables<Number> &tables) const {
        norm().centre(x + b * sizes.time * sizes.width, length, tables.centred, tables.inverse);
        norm().apply(tables.centred, length, tables.normalized);
    }
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
