// The gradients of block_forward.h, 16 steps at a time, the last first: see "Blocks" in DERIVATION.md. Names are those of
// that page, with _ for the bar.
#pragma once

#include <algorithm>

#include "nondeterministic_stack/cpu/block_forward.h"

namespace fast {

template <class Real, int Q, int S>
class BlockBackward {
    static constexpr int VL = lanes_in<Real>, PARTS = STEPS / VL, C = Q * S, ROW = Q * C * STEPS, LINE = Q * STEPS;
    static constexpr int PAIRS = 2 * C * C;
    using Layout = BlockLayout<Real>;
    using V = Vector<Real>;
    using VI = VectorMask<Real>;

public:
    // L and Ē of a configuration: L first, then the columns.
    static int64_t prefix_width(const Layout &at) { return Layout::padded(at.columns + 1); }

    // Working memory.
    static int64_t room(const Layout &at) {
        return at.table_size() + (at.n + 1) * C * prefix_width(at) + Layout::padded((at.n + 1) * C) + (at.n + 1) * PAIRS * VL +
               C * at.columns * STEPS + at.blocks * STEPS * ROW + (STEPS + 1) * ROW;
    }

    BlockBackward(const Sequence &seq, const Layout &at, const Real *tables, Real *room)
        : seq(seq), at(at), M(at.columns), P(prefix_width(at)), a(tables + at.a), inverse(tables + at.inverse),
          stays(tables + at.stays), E(tables + at.E), R{const_cast<Real *>(tables) + at.R, &at},
          W{const_cast<Real *>(tables) + at.W, &at}, R_{room, &at}, prefix_(room + at.table_size()),
          pushed_(prefix_ + (at.n + 1) * C * P), pairs_(pushed_ + Layout::padded((at.n + 1) * C)),
          top_(pairs_ + (at.n + 1) * PAIRS * VL), later(top_ + C * M * STEPS), D_(later + at.blocks * STEPS * ROW) {}

    void run(const Cotangents &cot, const InputGradients &grad) {
        std::fill(prefix_, top_, Real(0));
        for (int64_t block = at.blocks - 1; block >= 0; --block) {
            begin = at.first(block), end = at.last(block);
            for (int64_t t = end; t >= begin; --t) prefix(block, t, cot, grad);
            add_prefixes(block, at.lowest(block), begin, end, begin - at.lowest(block));
            spread();
            turn_later(block);
            first_row(block);
            for (int64_t earlier = at.block_of(at.low(begin)); earlier <= block; ++earlier) solve(block, earlier);
            pops(block, grad);
        }
        for (int64_t t = 1; t <= at.n; ++t) transitions(t, grad);
        for (int64_t m = 0; grad.values && m < M; ++m) grad.values[m] += prefix_[1 + m];
    }

private:
    const Sequence &seq;
    const Layout &at;
    const int64_t M, P;
    const Real *const a, *const inverse, *const stays, *const E;
    const BlockTable<Real> R, W, R_;
    Real *const prefix_, *const pushed_, *const pairs_, *const top_, *const later, *const D_;

    int64_t begin = 0, end = 0;                            // of the current block
    alignas(64) Real balance[C * STEPS], scale[C * STEPS];  // L and 1 / α of its steps

    const Real *stays_of(int64_t t) const { return stays + t * PAIRS; }
    const Real *E_of(int64_t t) const { return E + t * C * at.width; }
    Real *prefix_of(int64_t t) const { return prefix_ + t * C * P; }
    Real *D_of(int64_t j, int64_t first) const { return D_ + (j - first + 1) * ROW; }  // row first - 1 is kept

    // L_t and Ē_t, which later blocks and step t + 1 have already been added to, and what they add to those of t - 1.
    void prefix(int64_t block, int64_t t, const Cotangents &cot, const InputGradients &grad) {
        const int64_t reach = seq.values ? M : std::min(M, t + 1);
        Real *own = prefix_of(t), *before = prefix_of(t - 1);
        const int64_t last = std::min(end, t + 1 + at.window);
        if (last > t + 1) add_prefixes(block, t, t + 2, last, 1);
        double total = cot.log_weight[t - 1];
        for (int c = 0; c < C; ++c) {  // c: as in the callers' arrays
            const int to = by_symbol<Q, S>(c);
            const double *reading_ = cot.readings + ((t - 1) * C + c) * M, share = a[t * C + to];
            double sum = 0;
            for (int64_t m = 0; m < reach; ++m) {
                own[to * P + 1 + m] += Real(share * reading_[m]);
                sum += reading_[m] * E_of(t)[to * at.width + m];
            }
            total -= share * sum;
        }
        for (int c = 0; c < C; ++c) {
            own[c * P] += Real(a[t * C + c] * total);
            double sum = own[c * P], pushed = 0;
            for (int d = 0; d < C; ++d) pushed += stays_of(t)[d * C + c];
            for (int64_t m = 0; m < reach; ++m) {
                sum += own[c * P + 1 + m] * seq.value(t, m);
                if (grad.values) grad.values[t * M + m] += pushed * own[c * P + 1 + m];
            }
            pushed_[t * C + c] = Real(sum);
        }
        for (int d = 0; d < C; ++d) {
            for (int c = 0; c < C; ++c) before[d * P] += stays_of(t)[d * C + c] * pushed_[t * C + c];
            add_rows<C>(before + d * P, stays_of(t) + (C + d) * C, 1, own, P, reach + 1);
        }
    }

    // (5) and (3) backwards, from some of the block's steps to `rows` times from k on.
    void add_prefixes(int64_t block, int64_t k, int64_t from, int64_t last, int64_t rows) {
        constexpr int UNIT = Layout::UNIT;
        const int64_t columns = seq.values ? P : std::min(P, last + 2);
        for (int z = 0; z < S; ++z)
            for (int64_t m = 0; m < columns; m += UNIT)
                multiply<Sum::added, Q, Q, UNIT>(prefix_of(k) + z * Q * P + m, C * P, P,
                                                 W.row(block, k) + z * Q * LINE + from - begin, {ROW, LINE, 1, STEPS},
                                                 prefix_of(from) + z * Q * P + m, C * P, P, rows, last - from + 1);
    }

    // L, 1 / α and Ē of the block's steps along the lanes.
    void spread() {
        std::fill_n(balance, C * STEPS, Real(0)), std::fill_n(scale, C * STEPS, Real(0)), std::fill_n(top_, C * M * STEPS, Real(0));
        for (int64_t t = begin; t <= end; ++t)
            for (int c = 0; c < C; ++c) {
                const Real *own = prefix_of(t) + c * P;
                balance[c * STEPS + t - begin] = own[0], scale[c * STEPS + t - begin] = inverse[t * C + c];
                for (int64_t m = 0; m < M; ++m)
                    top_[(c / Q * M + m) * LINE + c % Q * STEPS + t - begin] = own[1 + m];
            }
    }

    // R_t[k] for k in this block and t in this block or a later one, with k along the lanes: [t][(z, u)][r][k].
    void turn_later(int64_t block) {
        for (int64_t other = block; other < at.blocks && at.lowest(other) < end; ++other) {
            Real *to = later + (other - block) * STEPS * ROW;
            const int64_t first = std::max(begin, at.lowest(other) + 1), last = std::min(end, at.last(other) - 1);
            if (first > begin || last < begin + STEPS - 1) std::fill_n(to, STEPS * ROW, Real(0));
            const bool whole = first == begin && last == begin + STEPS - 1;
            for (int z = 0; z < S; ++z)
                for (int u = 0; u < Q; ++u)
                    for (int r = 0; r < Q; ++r) {
                        const Real *from = R.row(other, first) + (z * Q + u) * LINE + r * STEPS;
                        Real *lanes = to + (z * Q + r) * LINE + u * STEPS + first - begin;
                        if (whole) turn_square(from, lanes);
                        for (int i = 0; i < STEPS && !whole; ++i)
                            for (int64_t k = 0; k <= last - first; ++k) lanes[i * ROW + k] = from[k * ROW + i];
                    }
        }
    }
    static void turn_square(const Real *from, Real *to) {
        for (int k = 0; k < STEPS; k += VL)
            for (int i = 0; i < STEPS; i += VL) {
                V square[VL];
                for (int v = 0; v < VL; ++v) square[v] = load(from + (k + v) * ROW + i);
                transpose<Real>(square);
                for (int v = 0; v < VL; ++v) store(to + (i + v) * ROW + k, square[v]);
            }
    }

    void first_row(int64_t block) {
        const int64_t j = at.lowest(block);
        std::fill_n(R_.row(block, j), ROW, Real(0));
        start_uncovered(j, D_, 1);
        finish_uncovered(block, j, D_);
    }

    // (5) backwards, the first part of rows of D̄.
    void start_uncovered(int64_t j, Real *row_, int64_t rows) const {
        const int64_t reach = seq.values ? M : std::min(M, j + rows);
        for (int z = 0; z < S; ++z)
            multiply<Sum::new_one, Q, 1, LINE>(row_ + z * Q * LINE, ROW, LINE, E_of(j) + z * Q * at.width,
                                                    {C * at.width, at.width, 1, 0}, top_ + z * M * LINE, LINE, 0, rows, reach);
    }

    // row_ += Σ x̄ x: the product of tables, along time and state.
    static void add_products(const Real *x_, const Real *x, Real *row_, int64_t rows, int64_t times) {
        for (int z = 0; z < S; ++z)
            multiply<Sum::added, Q, Q, LINE>(row_ + z * Q * LINE, ROW, LINE, x_ + z * Q * LINE, {ROW, LINE, 1, STEPS},
                                             x + z * Q * LINE, ROW, LINE, rows, times);
    }

    // (1) backwards: x̄ of `rows` rows from that of `times` earlier ones.
    template <Sum SUM = Sum::added>
    static void add_transposed(const Real *table, const Real *x_, Real *row_, int64_t rows, int64_t times) {
        for (int z = 0; z < S; ++z)
            multiply<SUM, Q, Q, LINE>(row_ + z * Q * LINE, ROW, LINE, table + z * Q * LINE, {1, STEPS, ROW, LINE},
                                        x_ + z * Q * LINE, ROW, LINE, rows, times);
    }

    // R̄ and D̄ of the rows of one block of times, for all steps of the current block.
    void solve(int64_t block, int64_t earlier) {
        const int64_t low = std::max(at.first(earlier), at.low(begin)), high = std::min(at.last(earlier), end - 1);
        if (low > high) return;
        const int64_t rows = high - low + 1;
        Real *x_ = R_.row(block, low), *D_rows = D_of(low, low);
        start_uncovered(low, D_rows, rows);
        for (int64_t other = block + 1; other < at.blocks && at.lowest(other) < high; ++other) {
            const int64_t from = std::max(low, at.lowest(other) + 1);
            add_products(R_.row(other, from), later + (other - block) * STEPS * ROW, D_of(from, low), high - from + 1,
                         at.last(other) - at.first(other) + 1);
        }
        const int64_t start = std::max(at.low(begin), at.lowest(earlier));
        if (start >= low) std::fill_n(x_, rows * ROW, Real(0));
        for (int64_t i = start; i < low; i += STEPS)
            (i == start ? add_transposed<Sum::new_one> : add_transposed<Sum::added>)(
                W.row(earlier, i) + low - at.first(earlier), R_.row(block, i), x_, rows, std::min<int64_t>(STEPS, low - i));
        for (int64_t j = low; j <= high; ++j) {
            Real *row_ = R_.row(block, j), *D_row = D_of(j, low);
            add_replacements(j, D_of(j - 1, low), R_.row(block, j - 1), row_);
            if (j - 2 >= low)
                add_transposed(W.row(earlier, low) + j - at.first(earlier), R_.row(block, low), row_, 1, j - 1 - low);
            finish_popped(j, row_);
            add_products(row_, later, D_row, 1, end - begin + 1);
            finish_uncovered(block, j, D_row);
        }
        std::copy_n(D_of(high, low), ROW, D_);
    }

    // (2) backwards, and the replacements of (1).
    void add_replacements(int64_t j, const Real *D_row, const Real *before_, Real *row_) const {
        multiply<Sum::added, 1, 1, LINE, C>(row_, LINE, 0, stays_of(j), {1, 0, C, 0}, D_row, LINE, 0, C, C);
        multiply<Sum::added, 1, 1, LINE, C>(row_, LINE, 0, stays_of(j) + C * C, {1, 0, C, 0}, before_, LINE, 0, C, C);
    }

    VI lanes_between(int part, int64_t low, int64_t high) const {
        const V step = lane_numbers_of<Real>() + Real(begin + part * VL);
        return (step >= Real(low)) & (step <= Real(high));
    }

    // Clears the steps that do not pop row j.
    void finish_popped(int64_t j, Real *row_) const {
        const int64_t last = std::min(end, j + at.window);
        if (j < begin && last == begin + STEPS - 1) return;
        for (int part = 0; part < PARTS; ++part) {
            const VI inside = lanes_between(part, j + 1, last);
            for (int i = 0; i < C * Q; ++i) {
                Real *to = row_ + i * STEPS + part * VL;
                store(to, inside ? load(to) : V{});
            }
        }
    }

    // D̄ of row j, and what it and x̄ add to π̄ and ρ̄ of the next step.
    void finish_uncovered(int64_t block, int64_t j, Real *D_row) {
        const int64_t last = std::min(end, j + 1 + at.window);
        for (int part = 0; part < PARTS; ++part) {
            const VI inside = lanes_between(part, j + 2, last);
            for (int z = 0; z < S; ++z)
                for (int r = 0; r < Q; ++r) {
                    const int64_t after = (z * Q + r) * STEPS + part * VL;
                    const V L = load(balance + after), factor = load(scale + after);
                    for (int s = 0; s < Q; ++s) {
                        Real *to = D_row + (z * Q + s) * LINE + r * STEPS + part * VL;
                        store(to, inside ? (load(to) + L) * factor : V{});
                    }
                }
        }
        if (j + 1 >= end) return;
        Real *pairs = pairs_ + (j + 1) * PAIRS * VL;
        add_pairs(D_row, R.row(block, j + 1), pairs);
        add_pairs(R_.row(block, j), R.row(block, j + 1), pairs + C * C * VL);
    }

    // pairs[c][d] += Σ_r left[c][r] right[d][r], not yet summed over the lanes.
    static void add_pairs(const Real *left, const Real *right, Real *pairs) {
        for (int c = 0; c < C; c += Q)
            for (int d = 0; d < C; ++d) {
                V sum[Q];
                for (int i = 0; i < Q; ++i) sum[i] = load(pairs + ((c + i) * C + d) * VL);
                for (int lane = 0; lane < LINE; lane += VL) {
                    const V x = load(right + d * LINE + lane);
                    for (int i = 0; i < Q; ++i) sum[i] += load(left + (c + i) * LINE + lane) * x;
                }
                for (int i = 0; i < Q; ++i) store(pairs + ((c + i) * C + d) * VL, sum[i]);
            }
    }

    void pops(int64_t block, const InputGradients &grad) const {
        for (int64_t t = std::max<int64_t>(begin, 2); t <= end; ++t)
            for (int c = 0; c < C; ++c)
                for (int r = 0; r < Q; ++r) {
                    const int64_t i = (by_symbol<Q, S>(c) * Q + r) * STEPS + t - begin;
                    grad.pop[((t - 1) * C + c) * Q + r] = R.row(block, t - 1)[i] * R_.row(block, t - 1)[i];
                }
    }

    void transitions(int64_t t, const InputGradients &grad) const {
        Real sums[PAIRS + VL];
        add_vectors(t);
        for (int i = 0; i < PAIRS; i += VL) {
            V pairs[VL];
            for (int v = 0; v < VL; ++v) pairs[v] = load(pairs_ + (t * PAIRS + std::min(i + v, PAIRS - 1)) * VL);
            store(sums + i, sums_of_lanes<Real>(pairs));
        }
        for (int d = 0; d < C; ++d)
            for (int c = 0; c < C; ++c) {
                const int to = by_symbol<Q, S>(c), i = by_symbol<Q, S>(d) * C + to;
                const int64_t out = ((t - 1) * C + d) * C + c;
                grad.push[out] = stays_of(t)[i] * (pushed_[t * C + to] + sums[i]);
                grad.repl[out] = stays_of(t)[C * C + i] * (prefix_of(t)[to * P] + sums[C * C + i]);
            }
    }

    // Adds E_{t-1}[d] · Ē_t[c] to the lanes of the replacements.
    void add_vectors(int64_t t) const {
        const int64_t reach = seq.values ? M : std::min(M, t);
        for (int c = 0; c < C; ++c)
            for (int64_t lane = 0; lane < reach; lane += VL) {
                const V own = load(prefix_of(t) + c * P + 1 + lane);  // beyond `reach` E is zero
                for (int d = 0; d < C; ++d) {
                    Real *pair = pairs_ + (t * PAIRS + C * C + d * C + c) * VL;
                    store(pair, load(pair) + load(E_of(t - 1) + d * at.width + lane) * own);
                }
            }
    }
};

}  // namespace fast
