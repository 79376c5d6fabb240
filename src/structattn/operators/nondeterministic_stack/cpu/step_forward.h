// Equations (1) to (5) of DERIVATION.md in double precision, one step at a time, vectorized over time, for compile-time
// Q and S.
//
// Memory layout of the tables of one sequence that takes single steps, in one flat array.
//
// Inner loops over time are vectorized, so every array over time is padded with zeros and loops may exceed its end.
// There are C = Q * S configurations, and (q, x) has index q * S + x. A slot (s, z, r) of R, D, W is component
// r * C + (s * S + z).
//
// Equation (1): x_{k-1} += ρ_k x_k and x_j += W_k[j] x_k for j <= k - 2, for falling k.
//
// This is two thirds of all arithmetic. x is stored twice: partial sums along time in `row`, vectorized over j, and final
// values, component by component, in `done`; the two never share a cache line. Four k at a time are applied to the
// earlier times, so that a vector of x is loaded and stored once for four.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/vector.h"
#include "nondeterministic_stack/cpu/sequence.h"
#include "nondeterministic_stack/cpu/transitions.h"

struct Layout {
    int64_t n, C, Q, columns;
    int64_t window;  // a pop at t reaches slots pushed at t - window or later; n without a limit
    int64_t times;   // padded length of an array over the times 0..n
    int64_t width;   // C padded
    std::vector<int64_t> row;  // where row t of a table over two times begins, in doubles per component
    int64_t a, inverse, lost, pi, rho, solve_rho, E, R, W, size;

    Layout(int64_t n, int64_t Q, int64_t S, int64_t columns, int64_t window)
        : n(n), C(Q * S), Q(Q), columns(columns), window(std::min(window, n)), times(padded(n + 1) + LANES), width(padded(C)),
          row(n + 2, LANES) {
        for (int64_t t = 1; t <= n; ++t) row[t + 1] = row[t] + row_length(t);
        int64_t end = 0;
        auto take = [&](int64_t count) { const int64_t begin = end; end += padded(count); return begin; };
        a = take((n + 1) * C);
        inverse = take((n + 1) * C);
        lost = take(n + 1);
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
struct TableRows {
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
    std::copy_n(from + at.rho, by_time * at.width, to + to_at.rho);
    std::copy_n(from + at.solve_rho, by_time * at.width, to + to_at.solve_rho);
    copy_times(C * C, from + at.pi, at.times, to + to_at.pi, to_at.times, t);
    copy_times(C * at.columns, from + at.E, at.times, to + to_at.E, to_at.times, t);
    for (auto [begin, to_begin] : {std::pair{at.R, to_at.R}, std::pair{at.W, to_at.W}}) {
        TableRows{to + to_begin, &to_at}.clear_around();
        std::copy_n(from + begin, at.row[t + 1] * at.slots(), to + to_begin);
    }
}

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
void triangular_solve(double *row, int64_t stride, int64_t top, int64_t low, const TableRows &W, const double *rho,
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

namespace fast {

template <int Q, int S>
class Forward {
    static constexpr int C = Q * S, SLOTS = Q * C;

public:
    // Working memory of step().
    static int64_t room(const Layout &at) { return (at.n + 2) * Q * at.width + C * at.columns; }

    Forward(const Sequence &seq, const Layout &at, double *tables, double *room)
        : seq(seq), at(at), a(tables + at.a), inverse(tables + at.inverse), lost(tables + at.lost),
          pi(tables + at.pi), rho(tables + at.rho), solve_rho(tables + at.solve_rho),
          E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, top(room), done(room + C * at.columns) {}

    // Time 0.
    void start() const {
        std::fill_n(pi, C * C * at.times, 0.0);
        std::fill_n(E, C * at.columns * at.times, 0.0);
        std::fill_n(a, C, 0.0);
        a[0] = 1, lost[0] = -INFINITY;
        for (int64_t c = 0; c < at.columns; ++c) E[c * at.times] = seq.value(0, c);
        R.clear_around(), W.clear_around();
    }

    // Column t of all tables, and the reading [Q][S][columns]. False where the total is zero or out of range, or if
    // too much precision may have been lost: then column t must not be used.
    bool step(int64_t t, double *reading) {
        const double growth = transitions(t);
        if (!(std::fabs(growth) <= largest_growth_of_doubles)) return false;
        lost[t] = lost_after(lost[t - 1], seq.step(t), growth, smallest < smallest_share);
        if (lost[t] >= largest_regrowth) return false;
        top_vectors(t);
        for (int64_t i = 0; i < C * at.columns; ++i) reading[i] = a[t * C + i / at.columns] * E[i * at.times + t];
        return true;
    }

private:
    const Sequence &seq;
    const Layout &at;
    double *const a, *const inverse, *const lost, *const pi, *const rho, *const solve_rho, *const E;
    const TableRows R, W;
    double *const top, *const done;
    double smallest = 0;  // of the numbers written by this step that are not zero by construction

    // (1) to (4); log Σ α_t.
    double transitions(int64_t t) {
        const StepWeights<Q, S> weights(seq.step(t), a + (t - 1) * C);
        double popped[C] = {};
        smallest = INFINITY;
        R.clear(t), W.clear(t);
        if (weights.pops()) {
            popped_slots(t, weights);
            uncovered(t, popped);
        }
        return normalise(t, weights, popped);
    }

    // (1)
    void popped_slots(int64_t t, const StepWeights<Q, S> &weights) {
        constexpr int PARTS = (C + VL - 1) / VL;
        double *first = done + (t - 1) * Q * at.width;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) first[r * at.width + c] = weights.pop[c * Q + r];
        const int64_t stride = R.stride(t), low = at.low(t);
        double *row = R.row(t);
        triangular_solve<Q, S>(row, stride, t - 1, low, W, solve_rho, C * at.width, done, at.width);
        V least = splat(smallest);
        for (int r = 0; r < Q; ++r)
            for (int p = 0; p < PARTS; ++p) {
                const VI real = lane_numbers() < splat(C - p * VL);
                for (int64_t j = low; j < t; ++j) {
                    const V x = load(done + (j * Q + r) * at.width + p * VL);
                    least = real & (x < least) ? x : least;
                }
            }
        smallest = least_lane(least);
        for (int r = 0; r < Q; ++r)
            for (int c = 0; c < C; ++c) {
                double *to = row + (r * C + c) * stride;
                const double *from = done + r * at.width + c;
                std::fill(to + at.first(t), to + low, 0.0);
                for (int64_t j = low; j < t; ++j) to[j] = from[j * Q * at.width];
                std::fill(to + t, to + at.first(t) + stride, 0.0);
            }
    }

    // (2): D_t, left in W's row, and its sum for each configuration.
    void uncovered(int64_t t, double *popped) {
        const int64_t stride = R.stride(t);
        const double *from = R.row(t) + 1;
        double *to = W.row(t);
        V sum[C] = {};
        for (int64_t k = at.first(t); k < t - 1; k += VL) {
            V slot[Q][C];
            for (int r = 0; r < Q; ++r)
                for (int d = 0; d < C; ++d) slot[r][d] = load(from + (r * C + d) * stride + k);
            for (int c = 0; c < C; ++c) {
                V D[Q] = {};
                for (int d = 0; d < C; ++d) {
                    const V share = load(pi + (c * C + d) * at.times + k + 1);
                    for (int r = 0; r < Q; ++r) D[r] += share * slot[r][d];
                }
                for (int r = 0; r < Q; ++r) {
                    store(to + (r * C + c) * stride + k, D[r]);
                    sum[r * S + c % S] += D[r];
                }
            }
        }
        for (int c = 0; c < C; ++c) popped[c] = sum_lanes(sum[c]);
    }

    // (3) and (4); log Σ α_t.
    double normalise(int64_t t, const StepWeights<Q, S> &weights, const double *popped) {
        const StepShares<Q, S> shares(weights, popped, a + (t - 1) * C, smallest_share);
        if (shares.growth == -INFINITY) return shares.growth;
        smallest = std::min(smallest, shares.smallest);
        std::copy_n(shares.a, C, a + t * C), std::copy_n(shares.inverse, C, inverse + t * C);
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < C; ++d) {
                pi[(c * C + d) * at.times + t] = shares.pushed[c * C + d];
                rho[(t * C + c) * at.width + d] = shares.replaced[c * C + d];
                solve_rho[(t * C + d) * at.width + c] = shares.replaced[c * C + d];
            }
        if (weights.pops()) divide_uncovered(t);
        return shares.growth;
    }

    // W_t from D_t
    void divide_uncovered(int64_t t) {
        const int64_t first = at.first(t), low = at.low(t) - 1;
        V least = splat(smallest);
        for (int slot = 0; slot < SLOTS; ++slot) {
            const V factor = splat(inverse[t * C + slot / C * S + slot % S]);
            double *row = W.row(t) + slot * W.stride(t);
            // At time 0 there is only one configuration, the first.
            const V from = splat(double(low == 0 && slot % C > 0 ? 1 : low)), end = splat(double(t - 1));
            for (int64_t k = first; k < t - 1; k += VL) {
                const V D = load(row + k), x = D * factor, lower = D < x ? D : x, time = lane_numbers() + splat(double(k));
                least = (time >= from) & (time < end) & (lower < least) ? lower : least;
                store(row + k, x);
            }
        }
        smallest = least_lane(least);
    }

    // (5) for COUNT columns from m on and slots with symbol y: sums over all k and u.
    template <int COUNT>
    void add_uncovered(int64_t t, int y, int64_t m) {
        V sum[Q][COUNT] = {};
        const int64_t stride = W.stride(t), first = at.first(t);
        for (int u = 0; u < Q; ++u)
            for (int64_t k = first; k < t - 1; k += VL) {
                V w[Q];
                for (int r = 0; r < Q; ++r) w[r] = load(W.row(t) + (r * C + u * S + y) * stride + k);
                for (int i = 0; i < COUNT; ++i) {
                    const V value = load(E + ((u * S + y) * at.columns + m + i) * at.times + k);
                    for (int r = 0; r < Q; ++r) sum[r][i] += w[r] * value;
                }
            }
        for (int r = 0; r < Q; ++r)
            for (int i = 0; i < COUNT; ++i) top[(r * S + y) * at.columns + m + i] += sum_lanes(sum[r][i]);
    }

    void top_vectors(int64_t t) {
        const int64_t M = at.columns;
        std::fill_n(top, C * M, 0.0);
        for (int c = 0; c < C; ++c) {
            double pushed = 0;
            for (int d = 0; d < C; ++d) pushed += pi[(d * C + c) * at.times + t];
            for (int64_t m = 0; m < M; ++m) {
                double sum = pushed * seq.value(t, m);
                for (int d = 0; d < C; ++d) sum += rho[(t * C + d) * at.width + c] * E[(d * M + m) * at.times + t - 1];
                top[c * M + m] = sum;
            }
        }
        for (int y = 0; y < S; ++y) {
            int64_t m = 0;
            for (; m + 4 <= M; m += 4) add_uncovered<4>(t, y, m);
            for (; m < M; ++m) add_uncovered<1>(t, y, m);
        }
        for (int64_t i = 0; i < C * M; ++i) E[i * at.times + t] = top[i];
    }
};

}  // namespace fast
