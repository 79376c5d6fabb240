// Memory layout of the fast kernel's tables of one sequence in one flat array.
//
// Inner loops over time are vectorized, so every array over time is padded with zeros and loops may exceed its end.
// There are C = Q * S configurations, and (q, x) has index q * S + x. A slot (s, z, r) of R, D, W is component
// r * C + (s * S + z).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

constexpr int64_t LANES = 8;  // of the widest instruction set; the layout is the same for all

inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

struct Layout {
    int64_t n, C, Q, columns;
    int64_t window;  // a pop at t reaches slots pushed at t - window or later; n without a limit
    int64_t times;   // padded length of an array over the times 0..n
    int64_t width;   // C padded
    std::vector<int64_t> row;  // where row t of a table over two times begins, in doubles per component
    int64_t a, inverse, lost, log_total, pi, rho, solve_rho, E, R, W, size;

    Layout(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window)
        : n(n), C(Q * S), Q(Q), columns(columns), window(std::min(window, n)), times(padded(n + 1) + LANES), width(padded(C)),
          row(n + 2, LANES) {
        for (int64_t t = 1; t <= n; ++t) row[t + 1] = row[t] + row_length(t);
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t begin = end; end += padded(count); return begin; };
        a = take((n + 1) * C);
        inverse = take((n + 1) * C);
        lost = take(n + 1);
        log_total = take(n + 1);
        pi = take(C * C * times);
        rho = take((n + 1) * C * width);
        solve_rho = take((n + 1) * C * width);
        E = take(C * columns * times);
        R = take(rows_size());
        W = take(rows_size());
        size = end;
    }
    int64_t slots() const { return Q * C; }
    // Row t of a table over two times holds the times first(t) .. t - 1, followed by at least a vector of zeros.
    int64_t first(int64_t t) const { return std::max<int64_t>(t - 1 - window, 0) / LANES * LANES; }
    int64_t row_length(int64_t t) const { return padded(std::min(t, window + LANES)) + LANES; }
    // Rows 1..n, with padding of one vector before and after them.
    int64_t rows_size() const { return (row[n + 1] + LANES) * slots(); }
    // The earliest push that a pop at t can undo.
    int64_t low(int64_t t) const { return std::max<int64_t>(t - window, 1); }
};

// A table over two times.
struct Rows {
    double *base;
    const Layout *layout;

    // The (possibly virtual) position of time 0 of component 0 of row t; components are stride(t) apart.
    double *row(int64_t t) const { return base + layout->row[t] * layout->slots() - layout->first(t); }
    int64_t stride(int64_t t) const { return layout->row_length(t); }
    void clear(int64_t t) const {
        std::fill(base + layout->row[t] * layout->slots(), base + layout->row[t + 1] * layout->slots(), 0.0);
    }
    void clear_around() const {
        std::fill_n(base, LANES * layout->slots(), 0.0);
        std::fill_n(base + layout->row[layout->n + 1] * layout->slots(), LANES * layout->slots(), 0.0);
    }
};

// Arrays over time, one per component, zero after time t.
inline void copy_times(int64_t components, const double *from, int64_t from_times, double *to, int64_t to_times, int64_t t) {
    for (int64_t i = 0; i < components; ++i) {
        std::copy_n(from + i * from_times, t + 1, to + i * to_times);
        std::fill(to + i * to_times + t + 1, to + (i + 1) * to_times, 0.0);
    }
}

// Copies times 0..t of all tables. The layout of a row does not depend on the capacity: see row_length().
inline void copy_tables(const Layout &at, const double *from, const Layout &to_at, double *to, int64_t t) {
    const int64_t C = at.C, by_time = (t + 1) * C;
    std::copy_n(from + at.a, by_time, to + to_at.a);
    std::copy_n(from + at.inverse, by_time, to + to_at.inverse);
    std::copy_n(from + at.lost, t + 1, to + to_at.lost);
    std::copy_n(from + at.log_total, t + 1, to + to_at.log_total);
    std::copy_n(from + at.rho, by_time * at.width, to + to_at.rho);
    std::copy_n(from + at.solve_rho, by_time * at.width, to + to_at.solve_rho);
    copy_times(C * C, from + at.pi, at.times, to + to_at.pi, to_at.times, t);
    copy_times(C * at.columns, from + at.E, at.times, to + to_at.E, to_at.times, t);
    for (auto [begin, to_begin] : {std::pair{at.R, to_at.R}, std::pair{at.W, to_at.W}}) {
        Rows{to + to_begin, &to_at}.clear_around();
        std::copy_n(from + begin, at.row[t + 1] * at.slots(), to + to_begin);
    }
}
