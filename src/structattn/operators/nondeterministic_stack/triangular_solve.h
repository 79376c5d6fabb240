// Equation (1): x_{k-1} += ρ_k x_k and x_j += W_k[j] x_k for j <= k - 2, for falling k.
//
// This is two thirds of all arithmetic. x is stored twice: partial sums along time in `row`, vectorized over j, and final
// values, component by component, in `done`; the two never share a cache line. Four k at a time are applied to the
// earlier times, so that a vector of x is loaded and stored once for four.
#pragma once

#include "common/vector.h"
#include "nondeterministic_stack/tables.h"

constexpr int BLOCK = 4;

// row[(r, a, z)][lanes] += Σ_b table_i[(b, a, z)][lanes] * x_i[(r, b, z)] for COUNT tables i at once.
template <int Q, int S, int COUNT>
inline void add_products(double *row, int64_t stride, const double *const *table, const int64_t *table_stride,
                         const double *const *x, int64_t width, int64_t begin, int64_t end) {
    constexpr int C = Q * S;
    for (int z = 0; z < S; ++z) {
        V factor[COUNT][Q][Q];
        for (int i = 0; i < COUNT; ++i)
            for (int b = 0; b < Q; ++b)
                for (int r = 0; r < Q; ++r) factor[i][b][r] = splat(x[i][r * width + b * S + z]);
        for (int64_t lane = begin; lane < end; lane += VL)
            for (int a = 0; a < Q; ++a) {
                V sum[Q];
                for (int r = 0; r < Q; ++r) sum[r] = load(row + (r * C + a * S + z) * stride + lane);
                for (int i = 0; i < COUNT; ++i)
                    for (int b = 0; b < Q; ++b) {
                        const V w = load(table[i] + (b * C + a * S + z) * table_stride[i] + lane);
                        for (int r = 0; r < Q; ++r) sum[r] += w * factor[i][b][r];
                    }
                for (int r = 0; r < Q; ++r) store(row + (r * C + a * S + z) * stride + lane, sum[r]);
            }
    }
}

template <int Q, int S>
inline void add_products_of(int count, double *row, int64_t stride, const double *const *table,
                            const int64_t *table_stride, const double *const *x, int64_t width, int64_t begin, int64_t end) {
    switch (count) {
        case 4: return add_products<Q, S, 4>(row, stride, table, table_stride, x, width, begin, end);
        case 3: return add_products<Q, S, 3>(row, stride, table, table_stride, x, width, begin, end);
        case 2: return add_products<Q, S, 2>(row, stride, table, table_stride, x, width, begin, end);
        default: return add_products<Q, S, 1>(row, stride, table, table_stride, x, width, begin, end);
    }
}

// done[k - 1] = row[.][k - 1] + ρ_k done[k]
template <int Q, int S>
inline void add_replacements(const double *row, int64_t stride, int64_t k, const double *rho, double *done, int64_t width) {
    constexpr int C = Q * S, PARTS = (C + VL - 1) / VL;
    const double *from = done + k * Q * width;
    double *to = done + (k - 1) * Q * width;
    for (int r = 0; r < Q; ++r) {
        V sum[PARTS] = {}, other[PARTS] = {};
        for (int p = 0; p < PARTS; ++p)
            for (int i = 0; i < VL && p * VL + i < C; ++i) sum[p][i] = row[(r * C + p * VL + i) * stride + k - 1];
        for (int d = 0; d < C; ++d)
            for (int p = 0; p < PARTS; ++p)  // two chains, for half the latency
                (d % 2 ? other : sum)[p] += load(rho + d * width + p * VL) * splat(from[r * width + d]);
        for (int p = 0; p < PARTS; ++p) store(to + r * width + p * VL, sum[p] + other[p]);
    }
}

// Finishes x_k for k = top - 1 .. low; done[top] is given. W: a table over two times; ρ_k is [from d][to c], `rho_step`
// numbers from ρ_{k-1}.
template <int Q, int S>
void triangular_solve(double *row, int64_t stride, int64_t top, int64_t low, const Rows &W, const double *rho,
                      int64_t rho_step, double *done, int64_t width) {
    const int64_t lowest = low / VL * VL;
    int64_t k = top;
    while (k > low) {
        const int64_t bottom = k / BLOCK * BLOCK;  // this block is k, k - 1, .., bottom
        const int64_t edge = bottom / VL * VL;     // lanes from here on are updated one k at a time
        const double *tables[BLOCK] = {}, *x[BLOCK] = {};
        int64_t strides[BLOCK] = {};
        int count = 0;
        for (; k >= bottom && k > low; --k, ++count) {
            tables[count] = W.row(k), strides[count] = W.stride(k), x[count] = done + k * Q * width;
            add_products<Q, S, 1>(row, stride, tables + count, strides + count, x + count, width, edge, k);
            if (k > edge) add_replacements<Q, S>(row, stride, k, rho + k * rho_step, done, width);
        }
        add_products_of<Q, S>(count, row, stride, tables, strides, x, width, lowest, edge);
        // x_{edge - 1} is in a vector that is complete only after this block.
        if (k == edge - 1) add_replacements<Q, S>(row, stride, edge, rho + edge * rho_step, done, width);
    }
}
