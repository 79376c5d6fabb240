// Tables of some sequences that take steps together: floats, with a lane of a vector for each sequence.
//
// No lane depends on the others, so that a sequence has the same results in any batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/scratch.h"
#include "common/vector.h"

namespace lanes {

// L sequences. With 16, more lanes would be empty, and the tables would leave the second-level cache.
constexpr int FEW = 4, MANY = 8;
template <int L>
using Floats = typename VectorOf<float, L>::Type;

// Slot (s, z, r) of a table over two times is component r * C + (s * S + z). Its cell (j, t) holds R_t[j] or W_t[j - 1]: an
// item of step j >= 1 that is popped at step t. The cells of one j are contiguous.
struct Layout {
    int64_t n, C, Q, columns, window;
    std::vector<int64_t> first;  // the number of the cell (j, j + 1)

    Layout(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window)
        : n(n), C(Q * S), Q(Q), columns(columns), window(std::min(window, n)), first(n + 2, 0) {
        for (int64_t j = 1; j <= n; ++j) first[j + 1] = first[j] + std::min(n - j, this->window);
    }
    int64_t slots() const { return Q * C; }
    int64_t cell(int64_t j, int64_t t) const { return first[j] + t - j - 1; }
    int64_t cells() const { return first[n + 1]; }
    // The earliest push that a pop at t can undo, and the last pop that can undo a push at j.
    int64_t low(int64_t t) const { return std::max<int64_t>(t - window, 1); }
    int64_t last(int64_t j) const { return std::min(n, j + window); }
};

// What the steps of the forward pass leave; R only for the way back.
template <class F>
struct Tables {
    const Layout &at;
    F *a, *inverse, *pi, *rho, *E, *values, *R, *W;
    F *row, *uncovered;  // R_t of the current step by j, and D_t or W_t by j - 1

    Tables(const Layout &at, Pieces<F> &memory, bool way_back)
        : at(at), a(memory.take((at.n + 1) * at.C)), inverse(memory.take((at.n + 1) * at.C)),
          pi(memory.take((at.n + 1) * at.C * at.C)), rho(memory.take((at.n + 1) * at.C * at.C)),
          E(memory.take((at.n + 1) * at.C * at.columns)), values(memory.take((at.n + 1) * at.columns)),
          R(way_back ? memory.take(at.cells() * at.slots()) : nullptr), W(memory.take(at.cells() * at.slots())),
          row(memory.take((at.n + 1) * at.slots())), uncovered(memory.take((at.n + 1) * at.slots())) {}
};

// Their adjoints.
template <class F>
struct Adjoints {
    F *a_, *pi_, *rho_, *E_, *R_, *row_, *uncovered_;

    Adjoints(const Layout &at, Pieces<F> &memory)
        : a_(memory.take((at.n + 1) * at.C)), pi_(memory.take((at.n + 1) * at.C * at.C)),
          rho_(memory.take((at.n + 1) * at.C * at.C)), E_(memory.take((at.n + 1) * at.C * at.columns)),
          R_(memory.take(at.cells() * at.slots())), row_(memory.take((at.n + 1) * at.slots())),
          uncovered_(memory.take((at.n + 1) * at.slots())) {}
    void clear(const Layout &at) const {
        std::fill_n(a_, (at.n + 1) * at.C, F{});
        std::fill_n(E_, (at.n + 1) * at.C * at.columns, F{});
        for (F *sums : {pi_, rho_}) std::fill_n(sums, (at.n + 1) * at.C * at.C, F{});
    }
};

// For each symbol z, slots (., z, .) of a cell are a matrix. Adds the products of the matrices of `count` pairs of cells, or of
// their transposes, to those of `sum`.
template <int Q, int S, bool TRANSPOSED_LEFT, bool TRANSPOSED_RIGHT, class F, class Left, class Right>
inline void add_products(F *sum, int64_t count, const Left &left, const Right &right) {
    constexpr int C = Q * S, TOGETHER = Q <= 2 ? S : 1;  // symbols whose sums stay in registers
    const auto slot = [](int row, int column, int z) { return column * C + row * S + z; };
    for (int first = 0; first < S; first += TOGETHER) {
        F x[TOGETHER][Q][Q];
        for (int z = 0; z < TOGETHER; ++z)
            for (int i = 0; i < Q; ++i)
                for (int k = 0; k < Q; ++k) x[z][i][k] = sum[slot(i, k, first + z)];
        for (int64_t n = 0; n < count; ++n) {
            const F *l = left(n), *r = right(n);
            for (int z = 0; z < TOGETHER; ++z)
                for (int m = 0; m < Q; ++m) {
                    F factor[Q];
                    for (int k = 0; k < Q; ++k) factor[k] = TRANSPOSED_RIGHT ? r[slot(k, m, first + z)] : r[slot(m, k, first + z)];
                    for (int i = 0; i < Q; ++i) {
                        const F other = TRANSPOSED_LEFT ? l[slot(m, i, first + z)] : l[slot(i, m, first + z)];
                        for (int k = 0; k < Q; ++k) x[z][i][k] += other * factor[k];
                    }
                }
        }
        for (int z = 0; z < TOGETHER; ++z)
            for (int i = 0; i < Q; ++i)
                for (int k = 0; k < Q; ++k) sum[slot(i, k, first + z)] = x[z][i][k];
    }
}

}  // namespace lanes
