// Memory layout of the tables of one sequence that is computed in blocks of time steps: see "Blocks" in DERIVATION.md.
//
// Block I has the steps t = 16 I + 1 .. 16 I + 16. A table over two times holds, for each block and each earlier time j,
// the numbers of all slots, with the steps of the block along the vector lanes: [j][slot][t]. Slots are ordered
// (z, s, r): for a fixed symbol, equation (1) is then a product of matrices with contiguous columns (r, t).
// Configurations are ordered (z, s) accordingly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

constexpr int STEPS = 16;

// Of tables of float or double.
template <class Real>
struct BlockLayout {
    static constexpr int64_t UNIT = 64 / sizeof(Real);  // whole vectors for every instruction set
    static int64_t padded(int64_t count) { return (count + UNIT - 1) / UNIT * UNIT; }

    int64_t n, Q, C, columns, window;
    int64_t width;  // the columns of the values, padded
    int64_t blocks;
    std::vector<int64_t> begin;  // of each block's rows, in rows
    int64_t a, inverse, stays, E, R, W, size;

    BlockLayout(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window)
        : n(n), Q(Q), C(Q * S), columns(columns), window(std::min(window, n)), width(padded(columns)),
          blocks((n + STEPS - 1) / STEPS), begin(blocks + 1, 0) {
        for (int64_t block = 0; block < blocks; ++block)
            begin[block + 1] = begin[block] + last(block) - lowest(block);
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t start = end; end += padded(count); return start; };
        a = take((n + 1) * C);
        inverse = take((n + 1) * C);
        stays = take((n + 1) * 2 * C * C);
        E = take((n + 1) * C * width);
        R = take(table_size());
        W = take(table_size());
        size = end;
    }
    static int64_t block_of(int64_t t) { return (t - 1) / STEPS; }
    static int64_t first(int64_t block) { return block * STEPS + 1; }
    int64_t last(int64_t block) const { return std::min(first(block) + STEPS - 1, n); }
    // The earliest push that a pop at t can undo.
    int64_t low(int64_t t) const { return std::max<int64_t>(t - window, 1); }
    // A block's rows are the times lowest .. last - 1.
    int64_t lowest(int64_t block) const { return low(first(block)) - 1; }
    int64_t row_size() const { return Q * C * STEPS; }
    int64_t table_size() const { return begin[blocks] * row_size(); }
};

// A table over two times.
template <class Real>
struct BlockTable {
    Real *base;
    const BlockLayout<Real> *layout;

    Real *row(int64_t block, int64_t j) const {
        return base + (layout->begin[block] + j - layout->lowest(block)) * layout->row_size();
    }
};
