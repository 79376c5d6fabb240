// Memory layout of the tables of one sequence that is computed in blocks of time steps: see "Blocks" in DERIVATION.md.
//
// Block I has the steps t = 16 I + 1 .. 16 I + 16. A table over two times holds, for each block and each earlier time j,
// the numbers of all slots, with the steps of the block along the vector lanes: [j][slot][t]. Slots are ordered
// (z, s, r): for a fixed symbol, equation (1) is then a product of matrices with contiguous columns (r, t).
// Configurations are ordered (z, s) accordingly.
//
// All arithmetic of more than O(n²) is products of small matrices whose columns lie along vector lanes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/vector.h"

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

// Whether the product is added to what is there, or replaces it.
enum class Sum { added, new_one };

// Distances between the numbers of the left factor: rows are (group, row), sums run over (time, state).
struct Strides {
    int64_t group, row, time, state;
};

// out[g][r][lanes] (+)= Σ_k Σ_i left[g][r][k][i] right[k][i][lanes] for GROUPS x ROWS rows and VECTORS vectors of lanes,
// which stay in registers.
template <Sum SUM, int GROUPS, int ROWS, int STATES, int VECTORS, class Real>
__attribute__((always_inline)) inline void multiply_tile(Real *out, int64_t out_group, int64_t out_row, const Real *left,
                          const Strides at, const Real *right, int64_t right_time, int64_t right_state, int64_t times) {
    constexpr int VL = lanes_in<Real>;
    using V = Vector<Real>;
    // Few sums would wait for each other: then those over the last state are separate.
    constexpr bool SPLIT = GROUPS * ROWS * VECTORS < 8 && STATES > 1;
    V sum[GROUPS][ROWS][VECTORS], others[GROUPS][ROWS][VECTORS] = {};
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; ++g)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v)
                sum[g][r][v] = SUM == Sum::added ? load(out + g * out_group + r * out_row + v * VL) : V{};
    for (int64_t k = 0; k < times; ++k, left += at.time, right += right_time)
#pragma GCC unroll 4
        for (int i = 0; i < STATES; ++i) {
            V x[VECTORS];
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) {
                x[v] = load(right + i * right_state + v * VL);
                keep_in_register(x[v]);
            }
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; ++g)
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r) {
                    const V factor = splat_to<Real>(left[g * at.group + r * at.row + i * at.state]);
#pragma GCC unroll 8
                    for (int v = 0; v < VECTORS; ++v) (SPLIT && i == STATES - 1 ? others : sum)[g][r][v] += factor * x[v];
                }
        }
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; ++g)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v)
                store(out + g * out_group + r * out_row + v * VL, SPLIT ? sum[g][r][v] + others[g][r][v] : sum[g][r][v]);
}

// Groups that one tile takes: as many as fit into the registers. A known number of groups is split evenly.
template <int ROWS, int VECTORS, int KNOWN>
constexpr int groups_at_once() {
    constexpr int SUMS = vector_bytes == 64 ? (KNOWN ? 24 : 18) : 9;  // of 32 or 16 registers
    constexpr int FIT = SUMS / (ROWS * VECTORS), MOST = FIT > 8 ? 8 : FIT > 1 ? FIT : 1;
    constexpr int TILES = (KNOWN + MOST - 1) / MOST;
    return KNOWN ? (KNOWN + TILES - 1) / TILES : MOST;
}

// The same for any number of groups, and COLUMNS numbers along the lanes; KNOWN: the number of groups, or 0.
template <Sum SUM, int ROWS, int STATES, int COLUMNS, int KNOWN = 0, class Real>
inline void multiply(Real *out, int64_t out_group, int64_t out_row, const Real *left, const Strides at, const Real *right, int64_t right_time, int64_t right_state, int64_t groups, int64_t times) {
    constexpr int VL = lanes_in<Real>, ALL = COLUMNS / VL, WIDEST = vector_bytes == 64 ? 6 : 4;
    constexpr int VECTORS = ALL <= WIDEST ? ALL : (ROWS == 3 || ALL % 4) && ALL % 3 == 0 ? 3 : 4;
    constexpr int GROUPS = groups_at_once<ROWS, VECTORS, KNOWN>();
    static_assert(COLUMNS % VL == 0 && ALL % VECTORS == 0);
    for (int part = 0; part < COLUMNS; part += VECTORS * VL) {
        Real *to = out + part;
        const Real *x = right + part;
        int64_t g = 0;
        for (; g + GROUPS <= groups; g += GROUPS)
            multiply_tile<SUM, GROUPS, ROWS, STATES, VECTORS>(to + g * out_group, out_group, out_row, left + g * at.group,
                                                              at, x, right_time, right_state, times);
        for (int64_t rest = groups % GROUPS; rest > 0; --rest, ++g)
            multiply_tile<SUM, 1, ROWS, STATES, VECTORS>(to + g * out_group, out_group, out_row, left + g * at.group, at, x,
                                                         right_time, right_state, times);
    }
}

// to += Σ_i factor_i row_i of `count` numbers; factors are `stride` and rows `width` apart.
template <int ROWS, class Real>
inline void add_rows(Real *to, const Real *factor, int64_t stride, const Real *rows, int64_t width, int64_t count) {
    for (int64_t lane = 0; lane < count; lane += lanes_in<Real>) {
        Vector<Real> sum = load(to + lane);
        for (int i = 0; i < ROWS; ++i) sum += factor[i * stride] * load(rows + i * width + lane);
        store(to + lane, sum);
    }
}
