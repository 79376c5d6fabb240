// The fast kernel's tables of one sequence: where each lies in one flat array.
//
// Time runs along the lanes of vectors wherever a loop over time is the inner one, so every such array is padded with
// zeros and loops may run over its end. C = Q * S configurations, (q, x) is number q * S + x. A slot (s, z, r) of R, D, W
// is component r * C + (s * S + z).
#pragma once

#include <cstdint>
#include <vector>

constexpr int64_t LANES = 8;  // of the widest instruction set; the layout is the same for all

inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

struct Layout {
    int64_t n, C, Q, columns;
    int64_t times;   // padded length of an array over the times 0..n
    int64_t width;   // C padded
    std::vector<int64_t> row;  // where row t begins, in doubles per component; its length is row_length(t)
    int64_t a, inverse, pi, rho, R, W, E, size;

    Layout(int64_t n, int64_t Q, int64_t S, int64_t columns)
        : n(n), C(Q * S), Q(Q), columns(columns), times(padded(n + 1) + LANES), width(padded(C)), row(n + 2, LANES) {
        for (int64_t t = 1; t <= n + 1; ++t) row[t] = row[t - 1] + (t > 1 ? row_length(t - 1) : 0);
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t begin = end; end += padded(count); return begin; };
        a = take((n + 1) * C);
        inverse = take((n + 1) * C);
        pi = take(C * C * times);
        rho = take((n + 2) * C * width);
        R = take(rows_size());
        W = take(rows_size());
        E = take(C * columns * times);
        size = end;
    }
    static int64_t row_length(int64_t t) { return padded(t) + LANES; }
    int64_t slots() const { return Q * C; }
    // A triangular table of rows 1..n, and a vector's room before and behind it.
    int64_t rows_size() const { return (row[n + 1] + LANES) * slots(); }
};

// A triangular table: row t holds, for each component, the times 0..t-1.
struct Rows {
    double *base;
    const Layout *layout;

    double *row(int64_t t) const { return base + layout->row[t] * layout->slots(); }
    static int64_t stride(int64_t t) { return Layout::row_length(t); }
};
