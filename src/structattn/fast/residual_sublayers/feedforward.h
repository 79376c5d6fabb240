// The sublayer y = x + mask * (W_2 h + b_2), h = hidden_mask * relu(W_1 n(x) + b_1), with a layer norm n.
//
// Legend: R rows of x, of d numbers; f hidden units.
#pragma once

#include "residual_sublayers/masks.h"
#include "residual_sublayers/norm.h"
#include "residual_sublayers/weights.h"

struct FeedForwardSizes {
    int64_t rows, width, hidden;

    WeightSizes weights() const { return {width, hidden, hidden}; }
};

// Tables of a block of rows.
template <class Number>
struct FeedForwardTables {
    static constexpr int64_t most_rows = 60;  // whole tiles of products, which stay in the first-level cache

    Number *centred, *normalized, *inverse, *result, *grad_hidden;

    FeedForwardTables(const FeedForwardSizes &sizes, Pieces<Number> &pieces) {
        const int64_t table = most_rows * padded_row(sizes.width);
        centred = pieces.take(table), normalized = pieces.take(table), inverse = pieces.take(most_rows);
        result = pieces.take(table), grad_hidden = pieces.take(most_rows * padded_row(sizes.hidden));
    }
};

template <class Number>
struct FeedForwardSublayer {
    FeedForwardSizes sizes;
    const Weights<Number> &weights;
    Number epsilon;
    Mask<Number> hidden_mask, mask;
    const Number *x;
    Number *hidden;  // h, kept for the backward pass: (R, padded f)

    // For rows from ``first`` to ``end``.
    void forward(int64_t first, int64_t end, Number *y) const {
        for_each_block(first, end, [&](int64_t r, int64_t count, const FeedForwardTables<Number> &tables) {
            const int64_t width = sizes.width, hidden_row = padded_row(sizes.hidden);
            Number *units = hidden + r * hidden_row;
            normalize(r, count, tables);
            weights.first.apply(tables.normalized, count, units);
            for (int64_t i = 0; i < count; ++i, units += hidden_row) {
                for (int64_t c = 0; c < hidden_row; ++c) units[c] = units[c] < 0 ? Number(0) : units[c];  // keeps NaN
                hidden_mask.apply(units, (r + i) * sizes.hidden, sizes.hidden, units);
            }
            weights.second.apply(hidden + r * hidden_row, count, tables.result);
            for (int64_t i = 0; i < count; ++i)
                mask.add(x + (r + i) * width, tables.result + i * padded_row(width), (r + i) * width, width,
                         y + (r + i) * width);
        });
    }
    // Writes the gradients of rows of x, and adds to those of the weights.
    void backward(int64_t first, int64_t end, const Number *grad_y, Number *grad_x,
                  const Gradients<Number> &gradients) const {
        for_each_block(first, end, [&](int64_t r, int64_t count, const FeedForwardTables<Number> &tables) {
            const int64_t width = sizes.width, hidden_row = padded_row(sizes.hidden);
            const Number *units = hidden + r * hidden_row;
            Number *cotangent = tables.result;
            for (int64_t i = 0; i < count; ++i)
                mask.apply(grad_y + (r + i) * width, (r + i) * width, width, cotangent + i * padded_row(width));
            gradients.second.add(units, cotangent, count);
            weights.second.backward(cotangent, count, tables.grad_hidden);
            // A unit that is positive was neither cut off nor dropped.
            const Number factor = hidden_mask.numbers ? hidden_mask.factor : Number(1);
            for (int64_t k = 0; k < count * hidden_row; ++k)
                tables.grad_hidden[k] = units[k] <= 0 ? Number(0) : tables.grad_hidden[k] * factor;
            normalize(r, count, tables);
            gradients.first.add(tables.normalized, tables.grad_hidden, count);
            weights.first.backward(tables.grad_hidden, count, cotangent);
            std::copy_n(grad_y + r * width, count * width, grad_x + r * width);
            norm().backward(tables.centred, tables.inverse, cotangent, count, gradients.scale, gradients.shift,
                            grad_x + r * width);
        });
    }

private:
    Norm<Number> norm() const { return {weights.scale, weights.shift, sizes.width, epsilon}; }
    void normalize(int64_t first, int64_t count, const FeedForwardTables<Number> &tables) const {
        norm().centre(x + first * sizes.width, count, tables.centred, tables.inverse);
        norm().apply(tables.centred, count, tables.normalized);
    }
    template <class Body>
    void for_each_block(int64_t first, int64_t end, const Body &body) const {
        Pieces<Number> counted(nullptr);
        FeedForwardTables<Number>(sizes, counted);
        ScratchFor<FeedForwardTables<Number>> scratch(counted.bytes());
        Pieces<Number> pieces(scratch.template as<Number>());
        const FeedForwardTables<Number> tables(sizes, pieces);
        for (int64_t r = first; r < end; r += tables.most_rows) body(r, std::min(tables.most_rows, end - r), tables);
    }
};
