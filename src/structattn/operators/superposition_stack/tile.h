// One step of the superposition stack, forward and backward, on a tile of columns. The recurrences and their adjoints are
// in DERIVATION.md.
//
// Legend: T padded steps, n <= T steps of a sequence, m size of a vector, V the stack, U its adjoint, w width of a
// tile, D depth of the stack, h(t) = min(t, n + 1 - t, D) the rows of V after step t that may be nonzero and affect a
// reading.
//
// The columns of a stack are independent, so they are processed in tiles of 4, 8, 16 or 32, which stay in the
// L1 cache. A stack is stored as [slot | row 1 | row 2 | ... | two more rows], each w numbers long and aligned.
// The slot holds the vector that the next step pushes: Above, At and Below are then one array at offsets of
// one row, and a step of the whole stack is a single loop over h(t) * w numbers.
//
// Rows that no vector has reached yet are equal, V_t[i] = z_t for i > t: the two rows after the last hold z_t as
// long as they are used, and zeros afterwards.
//
// Tables are in double precision for all input types: products of many small probabilities would otherwise reach the
// denormal numbers, which are both inexact and, on many processors, a hundred times slower.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace superposition {

constexpr int64_t lanes = 16;  // partial sums, so that the vector width never changes the order of a sum
constexpr int64_t widest_tile = 32;

// The width of a tile of so many columns. The narrow ones are for layers of several small stacks.
inline int64_t width_of(int64_t columns) {
    return columns <= 4 ? 4 : columns <= 8 ? 8 : (columns + lanes - 1) / lanes * lanes;
}

// One tile of one sequence of the batch, as plain arrays.
template <class Number>
struct Tile {
    const Number *actions;  // (T, 3): push, no-op, pop
    const Number *values;   // (T, m), from the tile's first column on
    const Number *initial;  // (m), likewise; null if the initial stack is zero
    int64_t steps;          // n
    int64_t vector;         // m
    int64_t columns;        // of the tile
    int64_t width;          // w, by width_of; the padding is zero
    int64_t depth = std::numeric_limits<int64_t>::max();  // D: rows below are lost; unlimited with an initial stack

    int64_t height(int64_t t) const { return std::min({t, steps + 1 - t, depth}); }
    bool untouched_rows_are_read(int64_t t) const { return initial && height(t) == t; }
    int64_t stack_size() const { return (std::min((steps + 1) / 2, depth) + 3) * width; }
    const Number *action(int64_t t) const { return actions + 3 * (t - 1); }
    void copy_value(int64_t t, double *slot) const { copy_row(values + (t - 1) * vector, slot); }
    void copy_row(const Number *from, double *to) const {
        std::copy_n(from, columns, to);
        std::fill(to + columns, to + width, 0.0);
    }
};

// An uninitialized array of stacks.
class Stacks {
  public:
    Stacks(double *numbers, int64_t size, int64_t width) : numbers_(numbers), size_(size), width_(width) {}
    double *slot(int64_t index) { return numbers_ + index * size_; }
    double *rows(int64_t index) { return slot(index) + width_; }
    // Nothing in the slot, zeros in the only row of the adjoint of the last step, and in the two rows after it.
    void make_empty(int64_t index) { std::fill_n(slot(index), 4 * width_, 0.0); }
    void copy_from(Stacks &other, int64_t from, int64_t to) { std::copy_n(other.slot(from), size_, slot(to)); }
    Stacks after(int64_t count) const { return {numbers_ + count * size_, size_, width_}; }

  private:
    double *numbers_;
    int64_t size_, width_;
};

// V_0: only rows that no vector has reached.
template <class Number>
void begin(const Tile<Number> &tile, Stacks &stacks, int64_t index) {
    stacks.make_empty(index);
    if (!tile.initial) return;
    for (int64_t i = 0; i < 2; ++i) tile.copy_row(tile.initial, stacks.rows(index) + i * tile.width);
}

// z_t = (push + noop + pop) z_{t-1} in the two rows after the last of V_t.
template <class Number>
void advance_untouched_rows(const Tile<Number> &tile, int64_t t, const double *old, double *next) {
    const int64_t w = tile.width;
    const double sum = double(tile.action(t)[0]) + tile.action(t)[1] + tile.action(t)[2];
    for (int64_t k = 0; k < w; ++k) next[t * w + k] = next[(t + 1) * w + k] = sum * old[(t - 1) * w + k];
}

// V_t from V_{t-1}, equations (5) to (8); the vector of step t is stored in the old stack's slot.
template <class Number>
void advance(const Tile<Number> &tile, int64_t t, Stacks &stacks, int64_t from, int64_t to) {
    const int64_t w = tile.width, count = tile.height(t) * w;
    const double push = tile.action(t)[0], noop = tile.action(t)[1], pop = tile.action(t)[2];
    tile.copy_value(t, stacks.slot(from));
    const double *old = stacks.rows(from);
    double *__restrict next = stacks.rows(to);
    for (int64_t k = 0; k < count; ++k) next[k] = push * old[k - w] + noop * old[k] + pop * old[k + w];
    std::fill_n(next + count, 2 * w, 0.0);
    if (tile.untouched_rows_are_read(t)) advance_untouched_rows(tile, t, old, next);
}

// From U_t, computes U_{t-1} and the gradient of the action of step t, which is added to ``products``. One pass over
// the rows of both.
template <class Number>
void retreat(const Tile<Number> &tile, int64_t t, const double *before, const double *adjoint,
             double *__restrict earlier, double *products) {
    const int64_t w = tile.width, count = std::max(tile.height(t), tile.height(t - 1)) * w;
    const double push = tile.action(t)[0], noop = tile.action(t)[1], pop = tile.action(t)[2];
    double above[lanes] = {}, at[lanes] = {}, below[lanes] = {};
    const auto add = [&](int64_t first, auto some) {
        const double *from = adjoint + first, *stack = before + first;
        double *__restrict to = earlier + first;
        for (int64_t l = 0; l < some; ++l) {
            above[l] += from[l] * stack[l - w];
            at[l] += from[l] * stack[l];
            below[l] += from[l] * stack[l + w];
            to[l] = pop * from[l - w] + noop * from[l] + push * from[l + w];
        }
    };
    const int64_t whole = count / lanes * lanes;
    for (int64_t first = 0; first < whole; first += lanes) add(first, std::integral_constant<int64_t, lanes>());
    add(whole, count - whole);
    std::fill_n(earlier + tile.height(t - 1) * w, 2 * w, 0.0);
    for (int64_t l = 0; l < lanes; ++l) products[0] += above[l], products[1] += at[l], products[2] += below[l];
}

// Updates the adjoint of z_t to that of z_{t-1}, on which z_t and, through rows t and t + 1 of V_{t-1}, two rows of V_t
// depend. The contribution of z_t to the gradient of the action is added to ``products``.
template <class Number>
void retreat_untouched_rows(const Tile<Number> &tile, int64_t t, const double *before, const double *adjoint,
                            double *untouched, double *products) {
    const int64_t w = tile.width;
    const double push = tile.action(t)[0], noop = tile.action(t)[1], pop = tile.action(t)[2];
    const double *z = before + (t - 1) * w, *last = adjoint + (t - 1) * w;
    double product = 0;
    for (int64_t k = 0; k < w; ++k) {
        product += untouched[k] * z[k];
        untouched[k] = (push + noop + pop) * untouched[k] + (noop + pop) * last[k] + pop * last[k - w];
    }
    for (int64_t i = 0; i < 3; ++i) products[i] += product;
}

}  // namespace superposition
