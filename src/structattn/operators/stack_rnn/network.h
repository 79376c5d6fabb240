// A batch of sequences: sizes, and arrays given by address.
//
// Legend: T padded steps, U hidden units, G gates (4 U of an LSTM, U of an Elman cell), R size of a reading, A numbers
// of a stack action, m size of a pushed vector.
#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace stack_rnn
