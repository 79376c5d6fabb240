// Products of small matrices whose columns lie along vector lanes; all arithmetic of more than O(n²) goes through them.
#pragma once

#include <cstdint>

#include "common/vector.h"

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
