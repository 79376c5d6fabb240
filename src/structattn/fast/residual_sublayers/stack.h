// The sublayer y = x + mask * W_o stack(W n(x)) with a layer norm n and a nondeterministic stack.
//
// Legend: B sequences of T positions, of which the first ``length`` count; d = size of a row of x. A row of W n(x) has the
// logits of all transitions, and the pushed vector before its activation.
#pragma once

#include "common/rows.h"
#include "nondeterministic_stack/cpu/whole_sequence.h"
#include "residual_sublayers/masks.h"
#include "residual_sublayers/norm.h"
#include "residual_sublayers/weights.h"

struct StackSizes {
    int64_t batch, time, width;
    projected::Stack stack;

    int64_t row() const { return padded_row(width); }
    int64_t projected_row() const { return padded_row(stack.outputs()); }
    int64_t reading_row() const { return padded_row(stack.reading()); }
    WeightSizes weights() const { return {width, stack.outputs(), stack.reading()}; }
};

// Tables of a sequence. The forward pass uses some of them.
template <class Number>
struct StackTables {
    Number *centred, *normalized, *inverse, *result, *cotangent, *grad_readings, *grad_projected;

    StackTables(const StackSizes &sizes, Pieces<Number> &pieces) {
        const int64_t table = sizes.time * sizes.row();
        centred = pieces.take(table), normalized = pieces.take(table), inverse = pieces.take(sizes.time);
        result = pieces.take(table), cotangent = pieces.take(table);
        grad_readings = pieces.take(sizes.time * sizes.reading_row());
        grad_projected = pieces.take(sizes.time * sizes.projected_row());
    }
};

template <class Number>
struct StackSublayer {
    StackSizes sizes;
    const Weights<Number> &weights;
    Number epsilon;
    Mask<Number> mask;
    Lengths lengths;
    const Number *x, *bottom;      // bottom: its vector before the sigmoid
    Number *rows, *readings;  // kept for the backward pass, in padded rows
    double *tables;                // and those of each stack
    int64_t table_size;

    Norm<Number> norm() const { return {weights.scale, weights.shift, sizes.width, epsilon}; }

    void forward(int64_t b, Number *y) const {
        const int64_t length = lengths[b], width = sizes.width, first = b * sizes.time;
        Number *own = rows + first * sizes.projected_row(), *read = readings + first * sizes.reading_row();
        with_tables([&](const StackTables<Number> &at) {
            normalize(b, length, at);
            weights.first.apply(at.normalized, length, own);
            projected::forward(sizes.stack, length, own, sizes.projected_row(), bottom, tables + b * table_size, read,
                               sizes.reading_row());
            weights.second.apply(read, length, at.result);
            const Number *from = x + first * width;
            Number *to = y + first * width;
            for (int64_t t = 0; t < length; ++t)
                mask.add(from + t * width, at.result + t * sizes.row(), (first + t) * width, width, to + t * width);
            std::copy(from + length * width, from + sizes.time * width, to + length * width);
        });
    }
    // Writes the gradient of a sequence of x, and adds to those of the weights.
    void backward(int64_t b, const Number *grad_y, Number *grad_x, const Gradients<Number> &gradients,
                  Number *grad_bottom) const {
        const int64_t length = lengths[b], width = sizes.width, first = b * sizes.time;
        const Number *own = rows + first * sizes.projected_row(), *read = readings + first * sizes.reading_row();
        with_tables([&](const StackTables<Number> &at) {
            for (int64_t t = 0; t < length; ++t)
                mask.apply(grad_y + (first + t) * width, (first + t) * width, width, at.cotangent + t * sizes.row());
            gradients.second.add(read, at.cotangent, length);
            weights.second.backward(at.cotangent, length, at.grad_readings);
            projected::backward<Number>(sizes.stack, length, own, sizes.projected_row(), bottom, tables + b * table_size,
                                        at.grad_readings, sizes.reading_row(), at.grad_projected, grad_bottom);
            normalize(b, length, at);
            gradients.first.add(at.normalized, at.grad_projected, length);
            weights.first.backward(at.grad_projected, length, at.cotangent);
            std::copy_n(grad_y + first * width, sizes.time * width, grad_x + first * width);
            norm().backward(at.centred, at.inverse, at.cotangent, length, gradients.scale, gradients.shift,
                            grad_x + first * width);
        });
    }

private:
    template <class Body>
    void with_tables(const Body &body) const {
        Pieces<Number> counted(nullptr);
        StackTables<Number>(sizes, counted);
        ScratchFor<StackTables<Number>> scratch(counted.bytes());
        Pieces<Number> pieces(scratch.template as<Number>());
        body(StackTables<Number>(sizes, pieces));
    }
    void normalize(int64_t b, int64_t length, const StackTables<Number> &at) const {
        norm().centre(x + b * sizes.time * sizes.width, length, at.centred, at.inverse);
        norm().apply(at.centred, length, at.normalized);
    }
};
