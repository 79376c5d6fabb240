// A batch of sequences: sizes, and arrays given by address; activations, cells and linear maps.
//
// Legend: T padded steps, U hidden units, G gates (4 U of an LSTM, U of an Elman cell), R size of a reading, A numbers
// of a stack action, m size of a pushed vector.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/vector.h"

namespace stack_rnn {

enum class Cell { lstm, tanh, relu };
enum class StackName { superposition, nondeterministic, stratified };
enum class Pushed { sigmoid, tanh, exp, none };

struct Sizes {
    int64_t count, allotted, units;  // sequences, T, U
    Cell cell;
    StackName stack;
    Pushed pushed;
    int64_t vector, states, symbols, window, depth;

    int64_t gates() const { return cell == Cell::lstm ? 4 * units : units; }
    int64_t cells() const { return cell == Cell::lstm ? 2 * units : 0; }
    int64_t configurations() const { return states * symbols; }
    bool nondeterministic() const { return stack == StackName::nondeterministic; }
    int64_t reading() const { return nondeterministic() ? configurations() * vector : vector; }
    int64_t sources() const { return units + reading(); }
    int64_t actions() const {
        if (nondeterministic()) return configurations() * (2 * configurations() + states);
        return stack == StackName::superposition ? 3 : 2;
    }
    int64_t outputs() const { return actions() + vector; }
};

// Rows (B, T, width).
template <class Number>
struct Series {
    Number *numbers = nullptr;
    int64_t allotted = 0, width = 0;

    Series(uintptr_t address, const Sizes &sizes, int64_t width)
        : numbers(reinterpret_cast<Number *>(address)), allotted(sizes.allotted), width(width) {}
    Number *of(int64_t b) const { return numbers + b * allotted * width; }
    Number *row(int64_t b, int64_t t) const { return of(b) + t * width; }
    void zeros_from(int64_t b, int64_t t) const {
        std::fill(row(b, t), of(b) + allotted * width, Number(0));
    }
};

// The logistic function and the hyperbolic tangent of arrays, computed in double precision.

inline V magnitude(V x) { return x < V{} ? -x : x; }

// 1 / (1 + e^-x)
struct Logistic {
    static V of(V x) {
        const V e = exp_of_negative(-magnitude(x));
        const V y = (x < V{} ? e : splat(1)) / (splat(1) + e);
        return x == x ? y : x;
    }
};

// (1 - e^-2x) / (1 + e^-2x)
struct Tangent {
    static V of(V x) {
        const V e = exp_of_negative(splat(-2) * magnitude(x));
        const V y = (splat(1) - e) / (splat(1) + e);
        return x == x ? (x < V{} ? -y : y) : x;
    }
};

template <class Function, class Number>
void apply_to_vector(Number *x) {
    typedef Number Given __attribute__((vector_size(VL * sizeof(Number))));
    Given given;
    std::memcpy(&given, x, sizeof given);
    given = __builtin_convertvector(Function::of(__builtin_convertvector(given, V)), Given);
    std::memcpy(x, &given, sizeof given);
}

// x[i] = f(x[i])
template <class Function, class Number>
void apply(Number *x, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) apply_to_vector<Function>(x + i);
    if (i == count) return;
    Number rest[VL] = {};
    std::copy(x + i, x + count, rest);
    apply_to_vector<Function>(rest);
    std::copy_n(rest, count - i, x + i);
}

// The pushed vector from the output of the network.
template <class Number>
void push_vector(Pushed pushed, Number *x, int64_t count) {
    if (pushed == Pushed::sigmoid) apply<Logistic>(x, count);
    if (pushed == Pushed::tanh) apply<Tangent>(x, count);
    if (pushed == Pushed::exp)
        for (int64_t i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

// The derivative of that, as a function of its result.
inline double push_slope(Pushed pushed, double y) {
    switch (pushed) {
        case Pushed::sigmoid: return y * (1 - y);
        case Pushed::tanh: return 1 - y * y;
        case Pushed::exp: return y;
        default: return 1;
    }
}

// One step of a cell, forward and backward. Gates are replaced in place by their activations.

// gates: i, f, g, o, each of `units` numbers. cells: c and tanh c, of this step and of the previous step (null for zeros).
template <class Number>
void lstm_forward(int64_t units, Number *gates, const Number *before, Number *cells, Number *hidden) {
    apply<Logistic>(gates, 2 * units);
    apply<Tangent>(gates + 2 * units, units);
    apply<Logistic>(gates + 3 * units, units);
    const Number *in = gates, *keep = gates + units, *candidate = keep + units, *out = candidate + units;
    for (int64_t k = 0; k < units; ++k) {
        cells[k] = in[k] * candidate[k] + keep[k] * (before ? before[k] : Number(0));  // NaN if a gate is NaN
        cells[units + k] = cells[k];
    }
    apply<Tangent>(cells + units, units);
    for (int64_t k = 0; k < units; ++k) hidden[k] = out[k] * cells[units + k];
}

// From the adjoints of h_t and (in memory_) of c_t, computes those of the gates' inputs and (in memory_) of c_{t-1}.
template <class Number>
void lstm_backward(int64_t units, const Number *gates, const Number *before, const Number *cells, const Number *hidden_,
                   Number *memory_, Number *gates_) {
    const Number *in = gates, *keep = gates + units, *candidate = keep + units, *out = candidate + units;
    for (int64_t k = 0; k < units; ++k) {
        const Number top = cells[units + k];
        const Number memory = memory_[k] + hidden_[k] * out[k] * (1 - top * top);
        gates_[k] = memory * candidate[k] * in[k] * (1 - in[k]);
        gates_[units + k] = before ? memory * before[k] * keep[k] * (1 - keep[k]) : Number(0);
        gates_[2 * units + k] = memory * in[k] * (1 - candidate[k] * candidate[k]);
        gates_[3 * units + k] = hidden_[k] * top * out[k] * (1 - out[k]);
        memory_[k] = memory * keep[k];
    }
}

template <class Number>
void elman_forward(Cell cell, int64_t units, Number *gates, Number *hidden) {
    if (cell == Cell::tanh) apply<Tangent>(gates, units);
    else
        for (int64_t k = 0; k < units; ++k) gates[k] = gates[k] < 0 ? Number(0) : gates[k];
    std::copy_n(gates, units, hidden);
}

template <class Number>
void elman_backward(Cell cell, int64_t units, const Number *gates, const Number *hidden_, Number *gates_) {
    for (int64_t k = 0; k < units; ++k) {
        const Number slope = cell == Cell::tanh ? 1 - gates[k] * gates[k] : Number(gates[k] > 0 ? 1 : 0);
        gates_[k] = hidden_[k] * slope;
    }
}

// Products of vectors and a matrix, with a matrix layout for inner loops over the result.

// y += x M. The columns of M are stored in panels of eight vectors, at the end of four, two and one, and each panel row by
// row: a product streams through memory once, with sums in registers. y is padded to whole vectors; the padding has no
// meaning.
template <class Number>
class Map {
    typedef Number Vector __attribute__((vector_size(VL * 8)));
    static constexpr int64_t wide = VL * 8 / sizeof(Number);

public:
    // M (rows, columns), or its transpose.
    Map(const Number *matrix, int64_t rows, int64_t columns, bool transposed)
        : rows_(transposed ? columns : rows), columns_(padded(transposed ? rows : columns)),
          kept_(rows_ * columns_ + cache_line / sizeof(Number)), numbers_(aligned(kept_.data())) {
        const int64_t row_step = transposed ? 1 : columns, column_step = transposed ? columns : 1;
        const int64_t given = transposed ? rows : columns;
        for_each_panel([&](auto count, int64_t first) {
            const int64_t width = count * wide, end = std::min(first + width, given);
            for (int64_t i = 0; i < rows_; ++i)
                for (int64_t j = first; j < end; ++j)
                    numbers_[first * rows_ + i * width + j - first] = matrix[i * row_step + j * column_step];
        });
    }
    Map(const Map &) = delete;
    Map &operator=(const Map &) = delete;
    static int64_t padded(int64_t count) { return (count + wide - 1) / wide * wide; }

    struct Product {
        const Number *x;
        Number *y;
    };
    // Products with several vectors, whose sums are those of single products: the matrix is read once for four of them.
    void add_products(const std::vector<Product> &products) const {
        for_each_panel([&](auto count, int64_t first) {
            const Product *next = products.data();
            int64_t left = int64_t(products.size());
            for (; left >= 4; left -= 4, next += 4) add_to_panel<count, 4>(next, first);
            for (; left >= 2; left -= 2, next += 2) add_to_panel<count, 2>(next, first);
            if (left) add_to_panel<count, 1>(next, first);
        });
    }

private:
    static constexpr uintptr_t cache_line = 64;  // a vector across two lines costs twice as much to load
    int64_t rows_, columns_;
    std::vector<Number> kept_;
    Number *numbers_;

    static Number *aligned(Number *numbers) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(numbers);
        return numbers + (cache_line - address % cache_line) % cache_line / sizeof(Number);
    }

    // Calls body(vectors in the panel, as a compile-time constant; its first column).
    template <class Body>
    void for_each_panel(const Body &body) const {
        int64_t first = 0;
        auto one = [&](auto count) {
            body(count, first);
            first += count * wide;
        };
        while (columns_ - first >= 8 * wide) one(std::integral_constant<int, 8>{});
        if (columns_ - first >= 4 * wide) one(std::integral_constant<int, 4>{});
        if (columns_ - first >= 2 * wide) one(std::integral_constant<int, 2>{});
        if (columns_ > first) one(std::integral_constant<int, 1>{});
    }

    // COUNT vectors of columns, and SOME vectors x.
    template <int COUNT, int SOME>
    void add_to_panel(const Product *products, int64_t first) const {
        constexpr int sums = VL == 8 ? 16 : 8;  // that stay in registers
        constexpr int part = COUNT * SOME <= sums ? COUNT : sums / SOME;
        for (int begin = 0; begin < COUNT; begin += part) {
            const int64_t column = first + begin * wide;
            Vector sum[SOME][part];
            const Number *x[SOME];
            for (int s = 0; s < SOME; ++s) {
                std::memcpy(sum[s], products[s].y + column, sizeof sum[s]);
                x[s] = products[s].x;
            }
            const Number *row = numbers_ + first * rows_ + begin * wide;
            for (int64_t i = 0; i < rows_; ++i, row += COUNT * wide)
                for (int k = 0; k < part; ++k) {
                    __builtin_prefetch(row + (3 * COUNT + k) * wide);  // the matrix is larger than the L1 cache
                    Vector factor;
                    std::memcpy(&factor, row + k * wide, sizeof factor);
                    for (int s = 0; s < SOME; ++s) sum[s][k] += x[s][i] * factor;
                }
            for (int s = 0; s < SOME; ++s) std::memcpy(products[s].y + column, sum[s], sizeof sum[s]);
        }
    }
};

}  // namespace stack_rnn
