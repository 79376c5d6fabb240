// The sublayer y = x + mask * (W_2 m(W_1 n(x) + b_1) + b_2) of whole sequences, with a layer norm n; m is attention or a stack.
//
// Legend: B sequences of T positions, of which the first ``length`` count; d = size of a row of x.
#pragma once

#include "common/rows.h"
#include "residual_sublayers/masks.h"
#include "residual_sublayers/norm.h"
#include "residual_sublayers/weights.h"

// Tables of a sequence. The forward pass uses some of them.
template <class Number>
struct SequenceTables {
    Number *centred, *normalized, *inverse, *result, *cotangent, *grad_readings, *grad_projected;

    SequenceTables(int64_t time, const Weights<Number> &weights, Pieces<Number> &pieces) {
        const int64_t table = time * padded_row(weights.width);
        centred = pieces.take(table), normalized = pieces.take(table), inverse = pieces.take(time);
        result = pieces.take(table), cotangent = pieces.take(table);
        grad_readings = pieces.take(time * padded_row(weights.second.inputs));
        grad_projected = pieces.take(time * padded_row(weights.first.outputs));
    }
};

template <class Number>
struct SequenceSublayer {
    int64_t time;
    const Weights<Number> &weights;
    Number epsilon;
    Mask<Number> mask;
    Lengths lengths;
    const Number *x;
    Number *projected, *readings;  // kept for the backward pass, in padded rows: W_1 n(x) + b_1, and m of it

    // m(length, projected, readings) writes the readings.
    template <class Middle>
    void forward(int64_t b, Number *y, const Middle &m) const {
        const int64_t length = lengths[b], width = weights.width, first = b * time;
        Number *own = projected_of(b), *read = readings_of(b);
        with_tables([&](const SequenceTables<Number> &tables) {
            normalize(first, length, tables);
            weights.first.apply(tables.normalized, length, own);
            m(length, own, read);
            weights.second.apply(read, length, tables.result);
            const Number *from = x + first * width;
            Number *to = y + first * width;
            for (int64_t t = 0; t < length; ++t)
                mask.add(from + t * width, tables.result + t * padded_row(width), (first + t) * width, width, to + t * width);
            std::copy(from + length * width, from + time * width, to + length * width);
        });
    }
    // Writes the gradient of a sequence of x, and adds to those of the weights. m(length, projected, cotangent of the
    // readings, cotangent) writes that of what was projected.
    template <class Middle>
    void backward(int64_t b, const Number *grad_y, Number *grad_x, const Gradients<Number> &gradients, const Middle &m) const {
        const int64_t length = lengths[b], width = weights.width, first = b * time;
        const Number *own = projected_of(b), *read = readings_of(b);
        with_tables([&](const SequenceTables<Number> &tables) {
            for (int64_t t = 0; t < length; ++t)
                mask.apply(grad_y + (first + t) * width, (first + t) * width, width, tables.cotangent + t * padded_row(width));
            gradients.second.add(read, tables.cotangent, length);
            weights.second.backward(tables.cotangent, length, tables.grad_readings);
            m(length, own, tables.grad_readings, tables.grad_projected);
            normalize(first, length, tables);
            gradients.first.add(tables.normalized, tables.grad_projected, length);
            weights.first.backward(tables.grad_projected, length, tables.cotangent);
            std::copy_n(grad_y + first * width, time * width, grad_x + first * width);
            norm().backward(tables.centred, tables.inverse, tables.cotangent, length, gradients.scale, gradients.shift,
                            grad_x + first * width);
        });
    }

private:
    Norm<Number> norm() const { return {weights.scale, weights.shift, weights.width, epsilon}; }
    Number *projected_of(int64_t b) const { return projected + b * time * padded_row(weights.first.outputs); }
    Number *readings_of(int64_t b) const { return readings + b * time * padded_row(weights.second.inputs); }
    template <class Body>
    void with_tables(const Body &body) const {
        Pieces<Number> counted(nullptr);
        SequenceTables<Number>(time, weights, counted);
        ScratchFor<SequenceTables<Number>> scratch(counted.bytes());
        Pieces<Number> pieces(scratch.template as<Number>());
        body(SequenceTables<Number>(time, weights, pieces));
    }
    void normalize(int64_t first, int64_t length, const SequenceTables<Number> &tables) const {
        norm().centre(x + first * weights.width, length, tables.centred, tables.inverse);
        norm().apply(tables.centred, length, tables.normalized);
    }
};
