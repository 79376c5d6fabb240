// Products of vectors and a matrix, with a matrix layout for inner loops over the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/vector.h"

namespace stack_rnn {

// y += x M. The columns of M are stored in panels of eight vectors, at the end of four, two and one, and each panel row by
// row: a product streams through memory once, with sums in registers. y is padded to whole vectors; the padding has no
// meaning.
template <class Number>
class Map {
    typedef Number Vector __attribute__((vector_size(VL * 8)));
    static constexpr int64_t wide = VL * 8 / sizeof(Number);

public:
    // M (rows, columns), or its transpose.
    Map(const Number *matrix, int64_t rows, int64_t columns, bool transposed)
        : rows_(transposed ? columns : rows), columns_(padded(transposed ? rows : columns)),
          kept_(rows_ * columns_ + cache_line / sizeof(Number)), numbers_(aligned(kept_.data())) {
        const int64_t row_step = transposed ? 1 : columns, column_step = transposed ? columns : 1;
        const int64_t given = transposed ? rows : columns;
        for_each_panel([&](auto count, int64_t first) {
            const int64_t width = count * wide, end = std::min(first + width, given);
            for (int64_t i = 0; i < rows_; ++i)
                for (int64_t j = first; j < end; ++j)
                    numbers_[first * rows_ + i * width + j - first] = matrix[i * row_step + j * column_step];
        });
    }
    Map(const Map &) = delete;
    Map &operator=(const Map &) = delete;
    static int64_t padded(int64_t count) { return (count + wide - 1) / wide * wide; }

    struct Product {
        const Number *x;
        Number *y;
    };
    // Products with several vectors, whose sums are those of single products: the matrix is read once for four of them.
    void add_products(const std::vector<Product> &products) const {
        for_each_panel([&](auto count, int64_t first) {
            const Product *next = products.data();
            int64_t left = int64_t(products.size());
            for (; left >= 4; left -= 4, next += 4) add_to_panel<count, 4>(next, first);
            for (; left >= 2; left -= 2, next += 2) add_to_panel<count, 2>(next, first);
            if (left) add_to_panel<count, 1>(next, first);
        });
    }

private:
    static constexpr uintptr_t cache_line = 64;  // a vector across two lines costs twice as much to load
    int64_t rows_, columns_;
    std::vector<Number> kept_;
    Number *numbers_;

    static Number *aligned(Number *numbers) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(numbers);
        return numbers + (cache_line - address % cache_line) % cache_line / sizeof(Number);
    }

    // Calls body(vectors in the panel, as a compile-time constant; its first column).
    template <class Body>
    void for_each_panel(const Body &body) const {
        int64_t first = 0;
        auto one = [&](auto count) {
            body(count, first);
            first += count * wide;
        };
        while (columns_ - first >= 8 * wide) one(std::integral_constant<int, 8>{});
        if (columns_ - first >= 4 * wide) one(std::integral_constant<int, 4>{});
        if (columns_ - first >= 2 * wide) one(std::integral_constant<int, 2>{});
        if (columns_ > first) one(std::integral_constant<int, 1>{});
    }

    // COUNT vectors of columns, and SOME vectors x.
    template <int COUNT, int SOME>
    void add_to_panel(const Product *products, int64_t first) const {
        constexpr int sums = VL == 8 ? 16 : 8;  // that stay in registers
        constexpr int part = COUNT * SOME <= sums ? COUNT : sums / SOME;
        for (int begin = 0; begin < COUNT; begin += part) {
            const int64_t column = first + begin * wide;
            Vector sum[SOME][part];
            const Number *x[SOME];
            for (int s = 0; s < SOME; ++s) {
                std::memcpy(sum[s], products[s].y + column, sizeof sum[s]);
                x[s] = products[s].x;
            }
            const Number *row = numbers_ + first * rows_ + begin * wide;
            for (int64_t i = 0; i < rows_; ++i, row += COUNT * wide)
                for (int k = 0; k < part; ++k) {
                    __builtin_prefetch(row + (3 * COUNT + k) * wide);  // the matrix is larger than the L1 cache
                    Vector factor;
                    std::memcpy(&factor, row + k * wide, sizeof factor);
                    for (int s = 0; s < SOME; ++s) sum[s][k] += x[s][i] * factor;
                }
            for (int s = 0; s < SOME; ++s) std::memcpy(products[s].y + column, sum[s], sizeof sum[s]);
        }
    }
};

}  // namespace stack_rnn
