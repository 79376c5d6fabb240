// The parameters that each kind of sublayer has, a layer norm and two linear maps, and their gradients.
#pragma once

#include "common/scratch.h"
#include "residual_sublayers/linear.h"

// Numbers of outputs and inputs: d of the norm, first_outputs x d of the first map, d x second_inputs of the second.
struct WeightSizes {
    int64_t width, first_outputs, second_inputs;
};

// Addresses of tensors, or null: the gradient's are written.
template <class Number>
struct Parameters {
    Number *scale, *shift, *first, *first_bias, *second, *second_bias;
};

// Laid out for products.
template <class Number>
struct Weights {
    int64_t width;
    Number *scale, *shift;
    Linear<Number> first, second;

    Weights(const WeightSizes &sizes, Pieces<Number> &pieces)
        : width(sizes.width), scale(pieces.take(padded_row(width))), shift(pieces.take(padded_row(width))),
          first(sizes.first_outputs, width, pieces), second(width, sizes.second_inputs, pieces) {}
    void lay_out(const Parameters<const Number> &from) const {
        pad_row_or_zeros(from.scale, width, scale);
        pad_row_or_zeros(from.shift, width, shift);
        first.lay_out(from.first, from.first_bias);
        second.lay_out(from.second, from.second_bias);
    }
};

template <class Number>
struct Gradients {
    int64_t width;
    Number *scale, *shift;
    LinearGradient<Number> first, second;

    Gradients(const WeightSizes &sizes, Pieces<Number> &pieces)
        : width(sizes.width), scale(pieces.take(padded_row(width))), shift(pieces.take(padded_row(width))),
          first(sizes.first_outputs, width, pieces), second(width, sizes.second_inputs, pieces) {}
    void write(const Parameters<Number> &to) const {
        write_unpadded(scale, 1, width, to.scale);
        if (to.shift) write_unpadded(shift, 1, width, to.shift);
        first.write(to.first, to.first_bias);
        second.write(to.second, to.second_bias);
    }
};

// Calls body(weights).
template <class Number, class Body>
void with_weights(const WeightSizes &sizes, const Parameters<const Number> &from, const Body &body) {
    Pieces<Number> counted(nullptr);
    Weights<Number>(sizes, counted);
    ScratchFor<Weights<Number>> scratch(counted.bytes());
    Pieces<Number> pieces(scratch.template as<Number>());
    const Weights<Number> weights(sizes, pieces);
    weights.lay_out(from);
    body(weights);
}
