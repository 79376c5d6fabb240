// Products of two matrices, of which each is laid out for one product, piece by piece.
//
// Legend: y (M, N) = a (M, K) b (K, N) + bias (N,). Blocks of ``depth`` of the K terms are added one after the other, so that
// what is multiplied stays in the cache: a panel of b, see panels.h, and some rows of a.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/scratch.h"
#include "linear/panels.h"

// A matrix whose columns, or else whose rows, are contiguous.
struct Matrix {
    const float *numbers;
    int64_t row_step, column_step;

    const float *at(int64_t row, int64_t column) const { return numbers + row * row_step + column * column_step; }
    bool has_contiguous_rows() const { return column_step == 1; }
};

struct MatrixProduct {
    Matrix a, b;
    const float *bias;  // null: zeros
    float *y;
    int64_t rows, terms, columns;

    static constexpr int64_t depth = 256, rows_of_block = 20 * tile, panels_of_group = 16;
    int64_t num_groups() const { return (num_panels(columns) + panels_of_group - 1) / panels_of_group; }

    // Computes some rows of a group of panels.
    void run(int64_t group, int64_t first_row, int64_t end_row) const {
        const int64_t groups = num_groups(), panels = num_panels(columns);
        const int64_t begin = group * panels / groups, end = (group + 1) * panels / groups;
        Scratch memory(depth * ((end - begin) * panel + rows_of_block) * sizeof(float));
        float *of_b = memory.as<float>(), *of_a = of_b + depth * (end - begin) * panel;
        for (int64_t k = 0; k < terms; k += depth) {
            const int64_t deep = std::min(depth, terms - k);
            for (int64_t p = begin; p < end; ++p) lay_out_panel(k, deep, p, of_b + (p - begin) * panel * deep);
            for (int64_t r = first_row; r < end_row; r += rows_of_block) {
                const int64_t count = std::min(rows_of_block, end_row - r);
                if (!a.has_contiguous_rows()) lay_out_rows(r, count, k, deep, of_a);
                for (int64_t p = begin; p < end; ++p) multiply_rows(r, count, k, deep, p, of_a, of_b + (p - begin) * panel * deep);
            }
        }
    }

  private:
    void lay_out_panel(int64_t k, int64_t deep, int64_t p, float *to) const {
        const int64_t first = p * panel, count = std::min(panel, columns - first);
        for (int64_t t = 0; t < deep; ++t, to += panel) {
            const float *from = b.at(k + t, first);
            if (b.has_contiguous_rows()) std::copy_n(from, count, to);
            else
                for (int64_t n = 0; n < count; ++n) to[n] = from[n * b.column_step];
            std::fill(to + count, to + panel, 0.0f);
        }
    }

    // Columns of ``tile`` rows each.
    void lay_out_rows(int64_t r, int64_t count, int64_t k, int64_t deep, float *to) const {
        for (int64_t first = r; first < r + count; first += tile) {
            const int64_t here = std::min<int64_t>(tile, r + count - first);
            for (int64_t t = 0; t < deep; ++t, to += tile) {
                const float *from = a.at(first, k + t);
                for (int64_t i = 0; i < here; ++i) to[i] = from[i * a.row_step];
            }
        }
    }

    void multiply_rows(int64_t first, int64_t count, int64_t k, int64_t deep, int64_t p, const float *of_a, const float *of_b) const {
        Ahead ahead{reinterpret_cast<const char *>(of_b + panel * deep), panel * int64_t(sizeof(float)) * tile / (count + tile - 1)};
        for_each_tile(count, [&](auto size, int64_t r) {
            constexpr int R = size.value;
            Wide sums[R][2] = {};
            if (a.has_contiguous_rows()) {
                const float *x = a.at(first + r, k);
                const int64_t step = a.row_step;
                add_products(sums, [&](int i, int64_t t) { return x[i * step + t]; }, deep, of_b, ahead);
            } else {
                const float *x = of_a + r / tile * tile * deep + r % tile;
                add_products(sums, [&](int i, int64_t t) { return x[t * tile + i]; }, deep, of_b, ahead);
            }
            for (int i = 0; i < R; ++i) {
                add_earlier(first + r + i, k, p, sums[i]);
                store_results(sums[i], existing(p), false, y + (first + r + i) * columns + p * panel);
            }
        });
    }

    int64_t existing(int64_t p) const { return std::min(panel, columns - p * panel); }

    // Adds the sum of the blocks before: at first the bias, or nothing.
    void add_earlier(int64_t row, int64_t k, int64_t p, Wide (&sums)[2]) const {
        const float *from = k == 0 ? bias : y + row * columns;
        if (!from) return;
        float numbers[panel] = {};
        std::memcpy(numbers, from + p * panel, existing(p) * sizeof(float));
        sums[0] += load_wide(numbers), sums[1] += load_wide(numbers + wide);
    }
};
