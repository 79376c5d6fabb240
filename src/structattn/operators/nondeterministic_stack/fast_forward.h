// Equations (1) to (5) of DERIVATION.md in doubles, with time along the lanes, for Q and S known when compiling.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "nondeterministic_stack/sequence.h"
#include "nondeterministic_stack/tables.h"
#include "nondeterministic_stack/triangular_solve.h"

namespace fast {

// exp(logits - their largest) for each step and configuration, and the largest itself.
struct Weights {
    int64_t width;
    std::vector<double> weight, largest, sum;

    Weights(const double *logits, int64_t rows, int64_t width)
        : width(width), weight(padded(rows * width)), largest(rows), sum(rows) {
        for (int64_t i = 0; i < rows; ++i) {
            const double *row = logits + i * width;
            double top = -INFINITY;
            for (int64_t j = 0; j < width; ++j) top = std::max(top, row[j]);
            largest[i] = top;
            for (int64_t j = 0; j < width; ++j) weight[i * width + j] = top == -INFINITY ? -INFINITY : row[j] - top;
        }
        for (size_t i = 0; i < weight.size(); i += VL) store(&weight[i], exp_of_negative(load(&weight[i])));
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < width; ++j) sum[i] += weight[i * width + j];
    }
    const double *at(int64_t row) const { return &weight[row * width]; }
};

template <int Q, int S>
class Forward {
    static constexpr int C = Q * S, SLOTS = Q * C;

public:
    Forward(const Sequence &seq, const Layout &at, double *tables)
        : seq(seq), at(at), a(tables + at.a), inverse(tables + at.inverse), pi(tables + at.pi), rho(tables + at.rho),
          E(tables + at.E), R{tables + at.R, &at}, W{tables + at.W, &at}, stays(joined(seq)), pops(seq.pop, seq.n * C, Q),
          solve_rho((at.n + 2) * C * at.width), done((at.n + 2) * Q * at.width) {}

    Outcome run(const Outputs &out) {
        clear();
        double log_total = 0, slack = 0;
        for (int64_t t = 1; t <= seq.n; ++t) {
            const double growth = step(t);
            if (!(growth > -INFINITY && growth < INFINITY)) return {t - 1, false};
            slack += upper_growth(t) - growth;
            log_total += growth;
            top_vectors(t);
            write(t, log_total, out);
        }
        return {seq.n, slack < largest_slack};
    }

private:
    const Sequence &seq;
    const Layout &at;
    double *const a, *const inverse, *const pi, *const rho, *const E;
    const Rows R, W;
    const Weights stays;  // pushes, then replacements, of each configuration
    const Weights pops;
    std::vector<double> solve_rho, done;

    static Weights joined(const Sequence &seq) {
        std::vector<double> both(seq.n * C * 2 * C);
        for (int64_t i = 0; i < seq.n * C; ++i) {
            std::copy_n(seq.push + i * C, C, &both[i * 2 * C]);
            std::copy_n(seq.repl + i * C, C, &both[i * 2 * C + C]);
        }
        return Weights(both.data(), seq.n * C, 2 * C);
    }

    void clear() {
        std::fill(pi, pi + C * C * at.times, 0.0);
        std::fill(E, E + C * at.columns * at.times, 0.0);
        std::fill(a, a + C, 0.0);
        a[0] = 1;
        for (int64_t c = 0; c < at.columns; ++c) E[c * at.times] = seq.value(0, c);
        for (const Rows &rows : {R, W}) {
            std::fill(rows.base, rows.row(1), 0.0);
            std::fill(rows.row(seq.n + 1), rows.row(seq.n + 1) + LANES * SLOTS, 0.0);
        }
    }

    double upper_growth(int64_t t) const {
        double upper = -INFINITY;
        for (int c = 0; c < C; ++c) {
            const int64_t i = (t - 1) * C + c;
            const double pop = t > 1 ? pops.largest[i] : -INFINITY, top = std::max(stays.largest[i], pop);
            if (top == -INFINITY) continue;
            const double sum = stays.sum[i] * std::exp(stays.largest[i] - top) +
                               (pop == -INFINITY ? 0 : pops.sum[i] * std::exp(pop - top));
            upper = std::max(upper, top + std::log(sum));
        }
        return upper;
    }

    // factor[c] = exp(largest[c] + log a[c] - scale), with scale the largest exponent of all, which is returned.
    static double scaled(const double *largest, const double *log_share, double *factor) {
        double scale = -INFINITY;
        for (int c = 0; c < C; ++c) scale = std::max(scale, largest[c] + log_share[c]);
        for (int c = 0; c < C; ++c)
            factor[c] = scale == -INFINITY || log_share[c] == -INFINITY || largest[c] == -INFINITY
                            ? 0 : std::exp(largest[c] + log_share[c] - scale);
        return scale;
    }

    double step(int64_t t) {
        const int64_t i = (t - 1) * C;
        double log_share[C], stay_factor[C], pop_factor[C], stay[C] = {}, popped[C] = {};
        for (int c = 0; c < C; ++c) log_share[c] = a[i + c] > 0 ? std::log(a[i + c]) : -INFINITY;
        const double stay_scale = scaled(&stays.largest[i], log_share, stay_factor);
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < 2 * C; ++d) stay[d % C] += stay_factor[c] * stays.at(i + c)[d];
        std::fill(R.row(t), R.row(t + 1), 0.0);
        std::fill(W.row(t), W.row(t + 1), 0.0);
        const double pop_scale = t < 2 ? -INFINITY : scaled(&pops.largest[i], log_share, pop_factor);
        if (pop_scale > -INFINITY) {
            popped_slots(t, pop_factor);
            uncovered(t, popped);
        }
        return normalise(t, stay_scale, pop_scale, stay_factor, stay, popped);
    }

    // (1)
    void popped_slots(int64_t t, const double *pop_factor) {
        double *first = &done[(t - 1) * Q * at.width];
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < Q; ++r) first[r * at.width + c] = pop_factor[c] * pops.at((t - 1) * C + c)[r];
        const int64_t stride = Rows::stride(t);
        double *row = R.row(t);
        triangular_solve<Q, S>(row, stride, t - 1, 1, W, solve_rho.data(), done.data(), at.width);
        for (int r = 0; r < Q; ++r)
            for (int c = 0; c < C; ++c) {
                double *to = row + (r * C + c) * stride;
                const double *from = &done[r * at.width + c];
                to[0] = 0;
                for (int64_t j = 1; j < t; ++j) to[j] = from[j * Q * at.width];
                std::fill(to + t, to + stride, 0.0);
            }
    }

    // (2): D_t, left in W's row, and its sum for each configuration.
    void uncovered(int64_t t, double *popped) {
        const int64_t stride = Rows::stride(t);
        const double *from = R.row(t) + 1;
        double *to = W.row(t);
        V sum[C] = {};
        for (int64_t k = 0; k < t - 1; k += VL) {
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
    double normalise(int64_t t, double stay_scale, double pop_scale, const double *stay_factor, const double *stay,
                     const double *popped) {
        double stay_sum = 0, popped_sum = 0, total = 0, alpha[C];
        for (int c = 0; c < C; ++c) stay_sum += stay[c], popped_sum += popped[c];
        const double top = std::max(stay_sum > 0 ? stay_scale + std::log(stay_sum) : -INFINITY,
                                    popped_sum > 0 ? pop_scale + std::log(popped_sum) : -INFINITY);
        if (top == -INFINITY) return top;
        const double from_stay = stay_sum > 0 ? std::exp(stay_scale - top) : 0;
        const double from_pop = popped_sum > 0 ? std::exp(pop_scale - top) : 0;
        for (int c = 0; c < C; ++c) total += alpha[c] = from_stay * stay[c] + from_pop * popped[c];
        double stay_inverse[C];
        for (int c = 0; c < C; ++c) {
            const bool kept = alpha[c] > smallest_share * total;
            a[t * C + c] = kept ? alpha[c] / total : 0;
            stay_inverse[c] = kept ? from_stay / alpha[c] : 0;
            inverse[t * C + c] = kept ? from_pop / alpha[c] : 0;
        }
        for (int c = 0; c < C; ++c)
            for (int d = 0; d < C; ++d) {
                const double *weight = stays.at((t - 1) * C + c);
                pi[(c * C + d) * at.times + t] = stay_factor[c] * weight[d] * stay_inverse[d];
                const double replaced = stay_factor[c] * weight[C + d] * stay_inverse[d];
                rho[(t * C + c) * at.width + d] = replaced;
                solve_rho[(t * C + d) * at.width + c] = replaced;
            }
        double *row = W.row(t);
        for (int slot = 0; slot < SLOTS && popped_sum > 0; ++slot) {
            const V factor = splat(inverse[t * C + slot / C * S + slot % S]);
            for (int64_t k = 0; k < t - 1; k += VL) {
                double *p = row + slot * Rows::stride(t) + k;
                store(p, load(p) * factor);
            }
        }
        return top + std::log(total);
    }

    // (5) for COUNT columns from m on and slots with symbol y: sums over all k and u.
    template <int COUNT>
    void add_uncovered(int64_t t, int y, int64_t m, double *top) {
        V sum[Q][COUNT] = {};
        const int64_t stride = Rows::stride(t);
        for (int u = 0; u < Q; ++u)
            for (int64_t k = seq.first_time(m) / VL * VL; k < t - 1; k += VL) {
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
        const int64_t M = at.columns, reach = seq.values ? M : std::min(M, t + 1);
        std::vector<double> top(C * M);
        for (int c = 0; c < C; ++c) {
            double pushed = 0;
            for (int d = 0; d < C; ++d) pushed += pi[(d * C + c) * at.times + t];
            for (int64_t m = 0; m < reach; ++m) {
                double sum = pushed * seq.value(t, m);
                for (int d = 0; d < C; ++d) sum += rho[(t * C + d) * at.width + c] * E[(d * M + m) * at.times + t - 1];
                top[c * M + m] = sum;
            }
        }
        for (int y = 0; y < S; ++y) {
            int64_t m = 0;
            for (; m + 4 <= reach; m += 4) add_uncovered<4>(t, y, m, top.data());
            for (; m < reach; ++m) add_uncovered<1>(t, y, m, top.data());
        }
        for (int64_t i = 0; i < C * M; ++i) E[i * at.times + t] = top[i];
    }

    void write(int64_t t, double log_total, const Outputs &out) const {
        const int64_t M = at.columns;
        for (int64_t i = 0; i < C * M; ++i) out.readings[(t - 1) * C * M + i] = a[t * C + i / M] * E[i * at.times + t];
        out.log_weight[t - 1] = log_total;
    }
};

}  // namespace fast
