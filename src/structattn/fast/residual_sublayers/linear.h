// A linear layer of tables of rows, y = x W^T + b, and its gradients.
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
