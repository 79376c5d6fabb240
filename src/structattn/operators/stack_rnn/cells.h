// One step of a cell, forward and backward. Gates are replaced in place by their activations.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stack_rnn/activations.h"

namespace stack_rnn {

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

}  // namespace stack_rnn
