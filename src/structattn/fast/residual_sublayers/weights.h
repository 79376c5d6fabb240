// The parameters that each kind of sublayer has, a layer norm and two linear maps, and their gradients.
#pragma once

#include "common/scratch.h"
#include "common/small_matrix.h"

// Copies rows of ``size`` numbers to a table, padded with zeros.
template <class Number>
void pad_rows(const Number *from, int64_t rows, int64_t size, Number *table) {
    const int64_t width = padded_row(size);
    for (int64_t r = 0; r < rows; ++r, from += size, table += width) {
        std::copy_n(from, size, table);
        std::fill(table + size, table + width, Number(0));
    }
}

// The same with zeros in place of a missing row.
template <class Number>
void pad_row_or_zeros(const Number *from, int64_t size, Number *row) {
    if (from) pad_rows(from, 1, size, row);
    else std::fill_n(row, padded_row(size), Number(0));
}

// Copies the rows of a table without their padding.
template <class Number>
void write_unpadded(const Number *table, int64_t rows, int64_t size, Number *to) {
    for (int64_t r = 0; r < rows; ++r, table += padded_row(size), to += size) std::copy_n(table, size, to);
}

// Sums over rows of the gradients of weight and bias; a table, and a row.
template <class Number>
struct LinearGradient {
    int64_t outputs, inputs;
    Number *weight, *bias;

    LinearGradient(int64_t outputs, int64_t inputs, Pieces<Number> &pieces)
        : outputs(outputs), inputs(inputs), weight(pieces.take(outputs * padded_row(inputs))),
          bias(pieces.take(padded_row(outputs))) {}
    // Adds those of some rows of inputs and cotangents.
    void add(const Number *x, const Number *cotangent, int64_t rows) const {
        const int64_t stride = padded_row(outputs);
        multiply<Number>({cotangent, 1, stride}, outputs, rows, x, inputs, {weight, padded_row(inputs)}, weight);
        for (int64_t r = 0; r < rows; ++r, cotangent += stride)
            for (int64_t c = 0; c < stride; ++c) bias[c] += cotangent[c];
    }
    void write(Number *to_weight, Number *to_bias) const {
        write_unpadded(weight, outputs, inputs, to_weight);
        if (to_bias) write_unpadded(bias, 1, outputs, to_bias);
    }
};

// Weight and bias, laid out for products with tables.
template <class Number>
struct Linear {
    int64_t outputs, inputs;
    Number *columns, *rows, *bias;  // W^T and W as tables

    Linear(int64_t outputs, int64_t inputs, Pieces<Number> &pieces)
        : outputs(outputs), inputs(inputs), columns(pieces.take(inputs * padded_row(outputs))),
          rows(pieces.take(outputs * padded_row(inputs))), bias(pieces.take(padded_row(outputs))) {}
    void lay_out(const Number *weight, const Number *added) const {
        const int64_t stride = padded_row(outputs);
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t n = 0; n < stride; ++n) columns[k * stride + n] = n < outputs ? weight[n * inputs + k] : 0;
        pad_rows(weight, outputs, inputs, rows);
        pad_row_or_zeros(added, outputs, bias);
    }
    // y = x W^T + b
    void apply(const Number *x, int64_t count, Number *y) const {
        multiply<Number>({x, padded_row(inputs), 1}, count, inputs, columns, outputs, {bias, 0}, y);
    }
    // The cotangent of x from that of y.
    void backward(const Number *cotangent, int64_t count, Number *grad_x) const {
        multiply<Number>({cotangent, padded_row(outputs), 1}, count, outputs, rows, inputs, {}, grad_x);
    }
};

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
