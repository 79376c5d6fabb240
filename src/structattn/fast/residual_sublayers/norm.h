// Layer norm of rows, forward and backward: y = (x - mean) / sqrt(variance + epsilon) * scale + shift.
#pragma once

#include <cmath>

#include "common/small_matrix.h"

// Scale and shift are padded with zeros to ``padded_row(size)``.
template <class Number>
struct Norm {
    const Number *scale, *shift;
    int64_t size;
    Number epsilon;

    int64_t width() const { return padded_row(size); }

    // centred[r] = (x[r] - mean) / deviation with zeros in the padding, inverse[r] = 1 / deviation; rows of x have ``size``.
    void centre(const Number *x, int64_t rows, Number *centred, Number *inverse) const {
        for (int64_t r = 0; r < rows; ++r, x += size, centred += width()) {
            // In whole vectors, which are then read as they were written.
            for (int64_t c = 0; c < width(); ++c) centred[c] = c < size ? x[c] : Number(0);
            const Number mean = sum_row(centred, width()) / size;
            for (int64_t c = 0; c < width(); ++c) centred[c] = c < size ? centred[c] - mean : Number(0);
            Number squares[row_unit] = {};
            for (int64_t c = 0; c < width(); c += row_unit)
                for (int64_t l = 0; l < row_unit; ++l) squares[l] += centred[c + l] * centred[c + l];
            inverse[r] = 1 / std::sqrt(sum_row(squares, row_unit) / size + epsilon);
            for (int64_t c = 0; c < width(); ++c) centred[c] *= inverse[r];
        }
    }
    // y = centred * scale + shift
    void apply(const Number *centred, int64_t rows, Number *y) const {
        for (int64_t r = 0; r < rows; ++r, centred += width(), y += width())
            for (int64_t c = 0; c < width(); ++c) y[c] = centred[c] * scale[c] + shift[c];
    }
    // From the cotangent of y to that of x, added to rows of ``size``; adds the gradients of scale and shift.
    void backward(const Number *centred, const Number *inverse, Number *cotangent, int64_t rows, Number *grad_scale,
                  Number *grad_shift, Number *grad_x) const {
        for (int64_t r = 0; r < rows; ++r, centred += width(), cotangent += width(), grad_x += size) {
            Number sums[row_unit] = {}, products[row_unit] = {};
            for (int64_t c = 0; c < width(); c += row_unit)
                for (int64_t l = 0; l < row_unit; ++l) {
                    const Number given = cotangent[c + l], scaled = given * scale[c + l];
                    grad_shift[c + l] += given;
                    grad_scale[c + l] += given * centred[c + l];
                    sums[l] += scaled, products[l] += scaled * centred[c + l];
                    cotangent[c + l] = scaled;
                }
            const Number mean = sum_row(sums, row_unit) / size, slope = sum_row(products, row_unit) / size;
            in_vectors<Number>(size, [&](int64_t c, auto lanes) {
                const auto scaled = load_lanes<lanes()>(cotangent + c), here = load_lanes<lanes()>(centred + c);
                store_wide(grad_x + c, load_lanes<lanes()>(grad_x + c) + inverse[r] * (scaled - mean - here * slope));
            });
        }
    }
};
