// The map of one sequence and its adjoint. The recurrences are in DERIVATION.md.
//
// Legend: n steps; A the map with rows and columns 0..n, A[0] = e_0; push, noop, pop the action of a step; U the
// adjoint of A; D_j = <U[i], A[j-1]> the adjoint of A[i-1][j] from the pop of step i, without its factor pop_i.
//
// All three products are linear combinations of rows of a table, vectorized along
// the rows. Eight rows are added in one pass over the sum, or eight sums formed in one pass over the rows. For D the
// columns of A must be contiguous: the table of the backward pass is symmetric, with row r of A up to the diagonal and
// column r of A from there on.
//
// Tables are in double precision for all input types: products of many small probabilities would otherwise reach the
// denormal numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/vector.h"

namespace stack_pointer {

constexpr int64_t BLOCK = 8;  // rows in one pass; the widest vector, so that a block's rows end in the same vectors

inline int64_t whole_blocks(int64_t count) { return (count + BLOCK - 1) / BLOCK * BLOCK; }

// A square table whose rows are an odd number of cache lines apart: with a power of two, the rows of a block
// would evict each other from the cache.
struct Table {
    double *numbers;
    int64_t stride;

    static int64_t stride_for(int64_t steps) { return (whole_blocks(steps + 1) / BLOCK | 1) * BLOCK; }
    static int64_t size_for(int64_t steps) { return (steps + 1) * stride_for(steps); }
    double *row(int64_t r) const { return numbers + r * stride; }
};

// sum[begin..end) += Σ_k factors[k] * rows[k][begin..end) for COUNT rows; whole vectors.
template <int COUNT>
inline void add_rows(double *sum, const double *rows, int64_t stride, const double *factors, int64_t begin,
                     int64_t end) {
    V factor[COUNT];
    for (int k = 0; k < COUNT; ++k) factor[k] = splat(factors[k]);
    for (int64_t lane = begin; lane < end; lane += VL) {
        V total = load(sum + lane);
        for (int k = 0; k < COUNT; ++k) total += factor[k] * load(rows + k * stride + lane);
        store(sum + lane, total);
    }
}

enum class Side { to_the_diagonal, from_the_diagonal };

// The same for the block on the diagonal, lanes [edge, edge + BLOCK), of which row r has those on one side of lane r:
// selected, not multiplied by zero, so that the other side may hold anything.
template <int COUNT, Side SIDE>
inline void add_edge(double *sum, const double *rows, int64_t stride, const double *factors, int64_t first,
                     int64_t edge) {
    for (int64_t lane = edge; lane < edge + BLOCK; lane += VL) {
        const V lanes = lane_numbers() + splat(double(lane));
        V total = load(sum + lane);
        for (int k = 0; k < COUNT; ++k) {
            const V row = splat(double(first + k));
            const V more = total + splat(factors[k]) * load(rows + k * stride + lane);
            total = (SIDE == Side::to_the_diagonal ? lanes <= row : lanes >= row) ? more : total;
        }
        store(sum + lane, total);
    }
}

// Rows first .. first + COUNT - 1 of one block, each up to its diagonal, or each from there to ``end``.
template <int COUNT, Side SIDE>
inline void add_triangle(double *sum, const Table &table, const double *factors, int64_t first, int64_t end) {
    const int64_t edge = first / BLOCK * BLOCK;
    const double *rows = table.row(first);
    if (SIDE == Side::to_the_diagonal) add_rows<COUNT>(sum, rows, table.stride, factors, 0, edge);
    add_edge<COUNT, SIDE>(sum, rows, table.stride, factors, first, edge);
    if (SIDE == Side::from_the_diagonal) add_rows<COUNT>(sum, rows, table.stride, factors, edge + BLOCK, end);
}

// sum += Σ_{r < count} factors[r] * row r of the table's triangle.
template <Side SIDE>
inline void add_triangle(double *sum, const Table &table, const double *factors, int64_t count) {
    int64_t r = 0;
    for (; r + BLOCK <= count; r += BLOCK) add_triangle<BLOCK, SIDE>(sum, table, factors + r, r, count);
    if (count - r >= 4) add_triangle<4, SIDE>(sum, table, factors + r, r, count), r += 4;
    if (count - r >= 2) add_triangle<2, SIDE>(sum, table, factors + r, r, count), r += 2;
    if (count - r >= 1) add_triangle<1, SIDE>(sum, table, factors + r, r, count);
}

// sum[0..width) += Σ_{first <= r < end} factors[r] * row r, for a few rows.
inline void add_rectangle(double *sum, const Table &table, const double *factors, int64_t first, int64_t end,
                          int64_t width) {
    int64_t r = first;
    if (end - r >= 4) add_rows<4>(sum, table.row(r), table.stride, factors + r, 0, width), r += 4;
    if (end - r >= 2) add_rows<2>(sum, table.row(r), table.stride, factors + r, 0, width), r += 2;
    if (end - r >= 1) add_rows<1>(sum, table.row(r), table.stride, factors + r, 0, width);
}

// The rows base .. base + BLOCK - 1 of a table += Σ_{first <= r < end} factors[r][row - base] * row r, in one pass.
inline void add_to_block(const Table &table, int64_t base, const double *factors, int64_t first, int64_t end) {
    for (int64_t lane = 0; lane < base + BLOCK; lane += VL) {
        V sums[BLOCK];
        for (int k = 0; k < BLOCK; ++k) sums[k] = load(table.row(base + k) + lane);
        for (int64_t r = first; r < end; ++r) {
            const V row = load(table.row(r) + lane);
            for (int k = 0; k < BLOCK; ++k) sums[k] += splat(factors[r * BLOCK + k]) * row;
        }
        for (int k = 0; k < BLOCK; ++k) store(table.row(base + k) + lane, sums[k]);
    }
}

// Rows 0..n of A up to the diagonal, equations (19) to (23); ``factors`` is working memory for a row.
template <class Number>
void fill_map(const Number *actions, int64_t steps, const Table &map, double *factors) {
    std::fill_n(map.row(0), BLOCK, 0.0);
    map.row(0)[0] = 1;
    for (int64_t i = 1; i <= steps; ++i) {
        const double push = actions[3 * i - 3], noop = actions[3 * i - 2], pop = actions[3 * i - 1];
        const double *before = map.row(i - 1);
        double *row = map.row(i);
        // A pop from the empty stack and one from a stack of one item both leave the empty stack.
        factors[0] = pop * (before[0] + (i > 1 ? before[1] : 0.0));
        for (int64_t j = 2; j < i; ++j) factors[j - 1] = pop * before[j];
        for (int64_t n = 0; n < i; ++n) row[n] = noop * before[n];
        add_triangle<Side::to_the_diagonal>(row, map, factors, std::max<int64_t>(i - 1, 1));
        row[i] = push;
    }
}

// Copies rows 1..n of A, as returned by the forward pass with (T + 1) numbers each, to the symmetric table.
template <class Number>
void fill_symmetric(const Number *given, int64_t allotted, int64_t steps, const Table &map) {
    map.row(0)[0] = 1;
    for (int64_t r = 1; r <= steps; ++r, given += allotted + 1)
        for (int64_t n = 0; n <= r; ++n) map.row(r)[n] = map.row(n)[r] = given[n];
}

// Copies rows 1..n of a lower triangle, (T + 1) numbers each, to a table.
template <class Number>
void fill_triangle(const Number *given, int64_t allotted, int64_t steps, const Table &table) {
    for (int64_t r = 1; r <= steps; ++r, given += allotted + 1) std::copy_n(given, r + 1, table.row(r));
}

// The three parts of the action's gradient at step i, from U[i] and D (D_1 in D[0], and so on).
template <class Number>
void action_gradient(int64_t i, const double *adjoint, const double *before, const double *D, Number *gradient) {
    double at = adjoint[0] * before[0], below = adjoint[0] * before[0];
    for (int64_t n = 1; n < i; ++n) at += adjoint[n] * before[n], below += D[n - 1] * before[n];
    gradient[0] = Number(adjoint[i]), gradient[1] = Number(at), gradient[2] = Number(below);
}

// The backward pass of one sequence: inputs, and uninitialized working memory.
template <class Number>
struct Adjoint {
    const Number *actions;  // (n, 3)
    int64_t steps;          // n
    Table map;              // symmetric
    Table U;                // rows 1..n are initialized with the cotangent of A
    double *D, *factors;    // a row, and BLOCK rows

    double noop(int64_t i) const { return actions[3 * i - 2]; }
    double pop(int64_t i) const { return actions[3 * i - 1]; }
    // The factor with which U[i] is added to U[k] because a pop at step i uncovers A[k]: pop_i A[i-1][k+1], i >= k + 2.
    double uncovered(int64_t i, int64_t k) const { return pop(i) * map.row(k + 1)[i - 1]; }

    // The contributions of all rows after i are added to the block of rows i - BLOCK .. i - 1 in one pass, before its rows
    // are finished one at a time.
    void pass_to_block(int64_t i) const {
        if (i % BLOCK) return;
        for (int64_t r = i + 1; r <= steps; ++r)
            for (int64_t k = 0; k < BLOCK; ++k) factors[r * BLOCK + k] = uncovered(r, i - BLOCK + k);
        add_to_block(U, i - BLOCK, factors, i + 1, steps + 1);
    }
    // U[k] still lacks the contributions of the later rows of its block, and of the no-op and pop of step k + 1.
    void finish(int64_t k) const {
        const int64_t i = k + 1, block_end = std::min(k / BLOCK * BLOCK + BLOCK, steps) + 1;
        const double *later = U.row(i);
        double *row = U.row(k);
        row[0] += (noop(i) + pop(i)) * later[0];
        for (int64_t j = 1; j < i; ++j) row[j] += noop(i) * later[j] + pop(i) * D[j - 1];
        for (int64_t r = i + 1; r < block_end; ++r) factors[r] = uncovered(r, k);
        add_rectangle(row, U, factors, i + 1, block_end, i);
    }
};

// The gradient of the actions (n, 3).
template <class Number>
void map_gradient(const Adjoint<Number> &adjoint, Number *gradient) {
    for (int64_t i = adjoint.steps; i >= 1; --i) {
        const double *row = adjoint.U.row(i);
        std::fill_n(adjoint.D, whole_blocks(i), 0.0);
        add_triangle<Side::from_the_diagonal>(adjoint.D, adjoint.map, row, i - 1);
        action_gradient(i, row, adjoint.map.row(i - 1), adjoint.D, gradient + 3 * (i - 1));
        adjoint.pass_to_block(i);
        if (i > 1) adjoint.finish(i - 1);
    }
}

}  // namespace stack_pointer
