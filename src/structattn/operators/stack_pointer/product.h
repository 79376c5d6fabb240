// readings = map · values for one sequence, and its gradients, over the lower triangle only.
//
// Legend: n steps; row t of the map has the columns 0..t; d the width of a value. Entries to the right of the
// triangle are ignored, so that no later value affects an earlier reading, not even as 0 · NaN.
//
// All three products have the form sum[row] = Σ_k factor(row, k) * panel[k]. A panel, two vectors wide, is copied
// to contiguous memory so that it stays in the L1 cache, and each part of it is loaded once for four rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/vector.h"

namespace stack_pointer {

template <class Number>
struct LanesOf;
template <>
struct LanesOf<float> {
    typedef float type __attribute__((vector_size(VL * 8)));
};
template <>
struct LanesOf<double> {
    typedef double type __attribute__((vector_size(VL * 8)));
};

template <class Number>
constexpr int64_t panel_width = 2 * VL * 8 / sizeof(Number);

constexpr int ROWS = 4;

// factor(r, k) = first[r * row_step + k * step]
template <class Number>
struct Factors {
    const Number *first;
    int64_t row_step, step;
};

// Some rows of a product over one panel.
template <class Number, int COUNT>
struct Sums {
    using Lanes = typename LanesOf<Number>::type;
    static constexpr int count = COUNT;
    Lanes sum[COUNT][2] = {};

    // The terms k of [begin, end) for each row that takes(r, k).
    template <class Takes>
    void add(const Factors<Number> &factors, const Number *panel, int64_t begin, int64_t end, const Takes &takes) {
        Lanes left[COUNT], right[COUNT];  // local, because members would be written back after each term
        for (int r = 0; r < COUNT; ++r) left[r] = sum[r][0], right[r] = sum[r][1];
        for (int64_t k = begin; k < end; ++k) {
            Lanes piece[2];
            std::memcpy(piece, panel + k * panel_width<Number>, sizeof piece);
            for (int r = 0; r < COUNT; ++r) {
                if (!takes(r, k)) continue;
                const Number factor = factors.first[r * factors.row_step + k * factors.step];
                left[r] += factor * piece[0], right[r] += factor * piece[1];
            }
        }
        for (int r = 0; r < COUNT; ++r) sum[r][0] = left[r], sum[r][1] = right[r];
    }
    void add(const Factors<Number> &factors, const Number *panel, int64_t begin, int64_t end) {
        add(factors, panel, begin, end, [](int, int64_t) { return true; });
    }
    void write(int r, Number *to, int64_t columns) const {
        Number row[panel_width<Number>];
        std::memcpy(row, sum[r], sizeof row);
        std::copy_n(row, std::min(columns, panel_width<Number>), to);
    }
};

// body(first row, sums) for the rows [begin, end): four at a time, then one at a time.
template <class Number, class Body>
void for_rows(int64_t begin, int64_t end, const Body &body) {
    int64_t r = begin;
    for (; r + ROWS <= end; r += ROWS) body(r, Sums<Number, ROWS>());
    for (; r < end; ++r) body(r, Sums<Number, 1>());
}

// panel[k] = columns [column, column + panel_width) of row k; zeros past the last column.
template <class Number>
void copy_panel(const Number *rows, int64_t count, int64_t width, int64_t column, Number *panel) {
    const int64_t columns = std::min(panel_width<Number>, width - column);
    for (int64_t k = 0; k < count; ++k, panel += panel_width<Number>) {
        std::copy_n(rows + k * width + column, columns, panel);
        std::fill(panel + columns, panel + panel_width<Number>, Number(0));
    }
}

// panel[k] = column k of the rows [first, first + panel_width); zeros past the last row.
template <class Number>
void copy_transposed_panel(const Number *rows, int64_t count, int64_t width, int64_t first, Number *panel) {
    const int64_t columns = std::min(panel_width<Number>, count - first);
    for (int64_t k = 0; k < width; ++k, panel += panel_width<Number>) {
        for (int64_t l = 0; l < columns; ++l) panel[l] = rows[(first + l) * width + k];
        std::fill(panel + columns, panel + panel_width<Number>, Number(0));
    }
}

// One sequence: its steps n, the padded length T, and d.
struct Shape {
    int64_t steps, allotted, width;
};

// readings[t] = Σ_{k <= t} map[t][k] values[k] for t = 1..n; row t of ``map`` and ``readings`` is stored at t - 1.
template <class Number>
void read_values(const Number *map, const Number *values, const Shape &shape, Number *panel, Number *readings) {
    const int64_t n = shape.steps, d = shape.width, stride = shape.allotted + 1;
    for (int64_t column = 0; column < d; column += panel_width<Number>) {
        copy_panel(values, n + 1, d, column, panel);
        for_rows<Number>(1, n + 1, [&](int64_t t, auto sums) {
            const Factors<Number> factors{map + (t - 1) * stride, stride, 1};
            sums.add(factors, panel, 0, t + 1);
            sums.add(factors, panel, t + 1, t + sums.count, [t](int r, int64_t k) { return k <= t + r; });
            for (int r = 0; r < sums.count; ++r) sums.write(r, readings + (t - 1 + r) * d + column, d - column);
        });
    }
}

// gradient[t][k] = <cotangent[t], values[k]> for k <= t, zeros to the right.
template <class Number>
void gradient_of_map(const Number *cotangent, const Number *values, const Shape &shape, Number *panel,
                     Number *gradient) {
    const int64_t n = shape.steps, d = shape.width, stride = shape.allotted + 1;
    std::fill_n(gradient, n * stride, Number(0));
    for (int64_t first = 0; first <= n; first += panel_width<Number>) {
        copy_transposed_panel(values, n + 1, d, first, panel);
        for_rows<Number>(std::max<int64_t>(first, 1), n + 1, [&](int64_t t, auto sums) {
            sums.add({cotangent + (t - 1) * d, d, 1}, panel, 0, d);
            for (int r = 0; r < sums.count; ++r)
                sums.write(r, gradient + (t - 1 + r) * stride + first, t + r + 1 - first);
        });
    }
}

// gradient[k] = Σ_{t >= max(k, 1)} map[t][k] cotangent[t]
template <class Number>
void gradient_of_values(const Number *cotangent, const Number *map, const Shape &shape, Number *panel,
                        Number *gradient) {
    const int64_t n = shape.steps, d = shape.width, stride = shape.allotted + 1;
    for (int64_t column = 0; column < d; column += panel_width<Number>) {
        copy_panel(cotangent, n, d, column, panel);
        for_rows<Number>(0, n + 1, [&](int64_t k, auto sums) {
            const Factors<Number> factors{map + k, 1, stride};
            const int64_t begin = std::max<int64_t>(k - 1, 0), common = std::max<int64_t>(k + sums.count - 2, 0);
            sums.add(factors, panel, begin, common, [k](int r, int64_t row) { return row + 1 >= k + r; });
            sums.add(factors, panel, common, n);
            for (int r = 0; r < sums.count; ++r) sums.write(r, gradient + (k + r) * d + column, d - column);
        });
    }
}

}  // namespace stack_pointer
