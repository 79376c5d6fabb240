// Products of a vector and a matrix, with the matrix laid out so that the inner loop is over the result.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/vector.h"

namespace stack_rnn {

// y += x M. Rows of M, and so y, are padded to whole vectors; what is in the padding of y means nothing.
template <class Number>
class Map {
    typedef Number Vector __attribute__((vector_size(VL * 8)));
    static constexpr int64_t wide = VL * 8 / sizeof(Number);

public:
    // M (rows, columns), or its transpose.
    Map(const Number *matrix, int64_t rows, int64_t columns, bool transposed)
        : rows_(transposed ? columns : rows), stride_(padded(transposed ? rows : columns)), numbers_(rows_ * stride_) {
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j)
                numbers_[transposed ? j * stride_ + i : i * stride_ + j] = matrix[i * columns + j];
    }
    static int64_t padded(int64_t count) { return (count + wide - 1) / wide * wide; }

    void add_product(const Number *x, Number *y) const {
        int64_t first = 0;
        for (; first + 8 * wide <= stride_; first += 8 * wide) add_to_columns<8>(x, first, y);
        if (first + 4 * wide <= stride_) add_to_columns<4>(x, first, y), first += 4 * wide;
        if (first + 2 * wide <= stride_) add_to_columns<2>(x, first, y), first += 2 * wide;
        if (first < stride_) add_to_columns<1>(x, first, y);
    }

private:
    int64_t rows_, stride_;
    std::vector<Number> numbers_;

    template <int COUNT>
    void add_to_columns(const Number *x, int64_t first, Number *y) const {
        Vector sum[COUNT];
        std::memcpy(sum, y + first, sizeof sum);
        const Number *row = numbers_.data() + first;
        for (int64_t i = 0; i < rows_; ++i, row += stride_)
            for (int k = 0; k < COUNT; ++k) {
                Vector factor;
                std::memcpy(&factor, row + k * wide, sizeof factor);
                sum[k] += x[i] * factor;
            }
        std::memcpy(y + first, sum, sizeof sum);
    }
};

}  // namespace stack_rnn
