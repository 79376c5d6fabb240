// The run of maximum weight: the recurrences with max instead of sum, in log space, and backtracking.
//
// Only the tables are stored: backtracking searches the term that equals a maximum, which costs no more than a step of
// the recurrence. Ties go to push, replace, pop in that order, then to the lowest index.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "nondeterministic_stack/sequence.h"

class BestRun {
public:
    explicit BestRun(const Sequence &s) : seq(s), C(s.configurations()), Q(s.Q), S(s.S), n(s.n), best((n + 1) * C, -INFINITY) {
        best[0] = 0;
        popped.resize(n + 2), uncovered.resize(n + 2);
        for (int64_t t = 1; t <= n; ++t) {
            popped[t].assign((t - first(t)) * C * Q, -INFINITY);
            uncovered[t].assign((t - first(t)) * C * Q, -INFINITY);
            fill_popped(t);
            fill_uncovered(t);
            fill_best(t);
        }
    }

    // Writes n actions (0 push, 1 replace, 2 pop), states and symbols; -inf and zeros where no run exists.
    double write(int64_t *actions, int64_t *states, int64_t *symbols) {
        const double *last = &best[n * C];
        const int64_t end = std::max_element(last, last + C) - last;
        if (n == 0) return 0;
        if (last[end] == -INFINITY) return -INFINITY;
        action = actions, state = states, symbol = symbols;
        trace_prefix(n, end);
        return last[end];
    }

private:
    const Sequence &seq;
    const int64_t C, Q, S, n;
    std::vector<double> best;                              // of all runs to configuration c at time t
    std::vector<std::vector<double>> popped, uncovered;    // as R and D in DERIVATION.md, with max instead of sum
    int64_t *action = nullptr, *state = nullptr, *symbol = nullptr;

    double push(int64_t t, int64_t from, int64_t to) const { return seq.push[((t - 1) * C + from) * C + to]; }
    double repl(int64_t t, int64_t from, int64_t to) const { return seq.repl[((t - 1) * C + from) * C + to]; }
    double &slot(std::vector<std::vector<double>> &table, int64_t t, int64_t j, int64_t c, int64_t r) {
        return table[t][((j - first(t)) * C + c) * Q + r];
    }
    int64_t first(int64_t t) const { return seq.low(t) - 1; }

    void fill_popped(int64_t t) {
        for (int64_t j = t - 1; j >= seq.low(t); --j)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r) {
                    double &top = slot(popped, t, j, c, r);
                    if (j == t - 1) {
                        top = seq.pop[((t - 1) * C + c) * Q + r];
                        continue;
                    }
                    for (int64_t d = 0; d < C; ++d) top = std::max(top, repl(j + 1, c, d) + slot(popped, t, j + 1, d, r));
                    for (int64_t k = j + 2; k < t; ++k)
                        for (int64_t u = 0; u < Q; ++u)
                            top = std::max(top, slot(uncovered, k, j, c, u) + slot(popped, t, k, u * S + c % S, r));
                }
    }
    void fill_uncovered(int64_t t) {
        for (int64_t k = first(t); k <= t - 2; ++k)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r)
                    for (int64_t d = 0; d < C; ++d) {
                        double &top = slot(uncovered, t, k, c, r);
                        top = std::max(top, push(k + 1, c, d) + slot(popped, t, k + 1, d, r));
                    }
    }
    void fill_best(int64_t t) {
        for (int64_t c = 0; c < C; ++c) {
            double &top = best[t * C + c];
            for (int64_t d = 0; d < C; ++d)
                top = std::max(top, best[(t - 1) * C + d] + std::max(push(t, d, c), repl(t, d, c)));
            for (int64_t k = first(t); k <= t - 2; ++k)
                for (int64_t u = 0; u < Q; ++u) {
                    const int64_t below = u * S + c % S;
                    top = std::max(top, best[k * C + below] + slot(uncovered, t, k, below, c / S));
                }
        }
    }

    void record(int64_t t, int64_t what, int64_t configuration) {
        action[t - 1] = what, state[t - 1] = configuration / S, symbol[t - 1] = configuration % S;
    }

    void trace_prefix(int64_t t, int64_t c) {
        while (t > 0) {
            const double target = best[t * C + c];
            int64_t from = -1;
            for (int64_t d = 0; d < C && from < 0; ++d)
                if (best[(t - 1) * C + d] + push(t, d, c) == target) record(t, 0, c), from = d;
            for (int64_t d = 0; d < C && from < 0; ++d)
                if (best[(t - 1) * C + d] + repl(t, d, c) == target) record(t, 1, c), from = d;
            if (from >= 0) {
                --t, c = from;
                continue;
            }
            const int64_t end = t, reached = c;
            for (int64_t k = first(end); k <= end - 2 && t == end; ++k)
                for (int64_t u = 0; u < Q && t == end; ++u) {
                    const int64_t below = u * S + reached % S;
                    if (best[k * C + below] + slot(uncovered, end, k, below, reached / S) != target) continue;
                    trace_uncovered(end, k, below, reached / S);
                    t = k, c = below;
                }
            if (t == end) return;  // cannot happen: some term equals the maximum
        }
    }

    // From configuration c at time k: a push, and all steps until that slot is popped at t into state r.
    void trace_uncovered(int64_t t, int64_t k, int64_t c, int64_t r) {
        const double target = slot(uncovered, t, k, c, r);
        int64_t d = 0;
        while (d < C - 1 && push(k + 1, c, d) + slot(popped, t, k + 1, d, r) != target) ++d;
        record(k + 1, 0, d);
        trace_popped(t, k + 1, d, r);
        record(t, 2, r * S + c % S);
    }

    // From configuration c at time j until its top slot is popped at t into state r; the pop itself is the caller's.
    void trace_popped(int64_t t, int64_t j, int64_t c, int64_t r) {
        while (j < t - 1) {
            const double target = slot(popped, t, j, c, r);
            const int64_t start = j;
            for (int64_t d = 0; d < C && j == start; ++d)
                if (repl(start + 1, c, d) + slot(popped, t, start + 1, d, r) == target) {
                    record(start + 1, 1, d);
                    ++j, c = d;
                }
            for (int64_t k = start + 2; k < t && j == start; ++k)
                for (int64_t u = 0; u < Q && j == start; ++u) {
                    const int64_t again = u * S + c % S;
                    if (slot(uncovered, k, start, c, u) + slot(popped, t, k, again, r) != target) continue;
                    trace_uncovered(k, start, c, u);
                    j = k, c = again;
                }
            if (j == start) return;  // cannot happen: some term equals the maximum
        }
    }
};
