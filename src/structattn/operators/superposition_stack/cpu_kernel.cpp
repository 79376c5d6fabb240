// Superposition stack, forward and backward, of a batch; one step of each is in tile.h, the recurrences and their
// adjoints are in DERIVATION.md.
//
// Legend: T padded steps, n <= T steps of a sequence, m size of a vector, w width of a tile.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/kernels.h"
#include "common/rows.h"
#include "common/scratch.h"
#include "superposition_stack/tile.h"

namespace {

using namespace superposition;

template <class Number>
void forward(const Tile<Number> &tile, Number *readings) {
    Scratch scratch(2 * tile.stack_size() * sizeof(double));
    Stacks stacks(scratch.as<double>(), tile.stack_size(), tile.width);
    begin(tile, stacks, 0);
    for (int64_t t = 1; t <= tile.steps; ++t) {
        advance(tile, t, stacks, (t - 1) % 2, t % 2);
        std::copy_n(stacks.rows(t % 2), tile.columns, readings + (t - 1) * tile.vector);
    }
}

// The number of steps whose stacks are stored at once in the backward pass: all if they fit into 16 MiB; otherwise about
// the square root, and the stacks at the beginning of each such block are stored as well.
int64_t block_length(int64_t steps, int64_t stack_size) {
    constexpr int64_t limit = (int64_t(1) << 24) / sizeof(double);
    if (steps * stack_size <= limit) return steps;
    return int64_t(std::ceil(std::sqrt(double(steps))));
}

// Sets starts[i] to the stack before the first step of block i; ``pair`` is working memory for two stacks.
template <class Number>
void fill_starts(const Tile<Number> &tile, int64_t block, Stacks &starts, Stacks &pair) {
    begin(tile, starts, 0);
    if (block >= tile.steps) return;
    begin(tile, pair, 0);
    for (int64_t t = 1; t < tile.steps; ++t) {
        advance(tile, t, pair, (t - 1) % 2, t % 2);
        if (t % block == 0) starts.copy_from(pair, t % 2, t / block);
    }
}

// Steps ``last`` down to ``first``; stacks[0] holds the stack before ``first``, adjoints[last % 2] the adjoint from later steps.
template <class Number>
void backward_block(const Tile<Number> &tile, int64_t first, int64_t last, Stacks &stacks, Stacks &adjoints,
                    const Number *cotangent, double *untouched, double *products, Number *grad_values) {
    for (int64_t t = first; t < last; ++t) advance(tile, t, stacks, t - first, t - first + 1);
    tile.copy_value(last, stacks.slot(last - first));
    for (int64_t t = last; t >= first; --t) {
        const int64_t row = (t - 1) * tile.vector;
        double *adjoint = adjoints.rows(t % 2);
        for (int64_t k = 0; k < tile.columns; ++k) {
            adjoint[k] += cotangent[row + k];
            grad_values[row + k] = Number(double(tile.action(t)[0]) * adjoint[k]);
        }
        double *product = products + 3 * (t - 1);
        retreat(tile, t, stacks.rows(t - first), adjoint, adjoints.rows((t - 1) % 2), product);
        if (tile.untouched_rows_are_read(t - 1))
            retreat_untouched_rows(tile, t, stacks.rows(t - first), adjoint, untouched, product);
    }
}

// Adds the tile's contribution to the gradient of the actions to ``products`` (n, 3).
template <class Number>
void backward(const Tile<Number> &tile, const Number *cotangent, double *products, Number *grad_values,
              Number *grad_initial) {
    const int64_t size = tile.stack_size(), block = block_length(tile.steps, size);
    const int64_t blocks = (tile.steps + block - 1) / block;
    Scratch scratch((2 + blocks + block) * size * sizeof(double));
    Stacks adjoints(scratch.as<double>(), size, tile.width);
    Stacks starts = adjoints.after(2), stacks = starts.after(blocks);
    fill_starts(tile, block, starts, adjoints);
    adjoints.make_empty(0), adjoints.make_empty(1);
    double untouched[widest_tile] = {};
    for (int64_t i = blocks - 1; i >= 0; --i) {
        stacks.copy_from(starts, i, 0);
        backward_block(tile, i * block + 1, std::min(tile.steps, (i + 1) * block), stacks, adjoints, cotangent,
                       untouched, products, grad_values);
    }
    if (grad_initial) std::copy_n(untouched, tile.columns, grad_initial);
}

// The tensors of a call, contiguous and given by address: passing tensors costs more than the arithmetic.
template <class Number>
struct Batch {
    uintptr_t actions, values, initial;  // the last may be 0 (absent)
    Lengths steps;
    int64_t allotted, vector;

    Tile<Number> tile(int64_t b, int64_t column) const {
        const int64_t columns = std::min(widest_tile, vector - column);
        const Number *first = at<const Number>(values, b, vector) + column;
        const Number *below = row<const Number>(initial, b);
        const Number *initial_row = below ? below + column : nullptr;
        return {at<const Number>(actions, b, 3), first, initial_row, steps[b], vector, columns, width_of(columns)};
    }
    template <class Element>
    Element *at(uintptr_t address, int64_t b, int64_t width) const {
        return reinterpret_cast<Element *>(address) + b * allotted * width;
    }
    template <class Element>
    Element *row(uintptr_t address, int64_t b) const {
        return address ? reinterpret_cast<Element *>(address) + b * vector : nullptr;
    }
    // Zeros from a sequence's length on.
    void finish(uintptr_t address, int64_t b, int64_t width) const {
        Number *numbers = at<Number>(address, b, width);
        std::fill(numbers + steps[b] * width, numbers + allotted * width, Number(0));
    }
    // Threads pay off only if the work of a sequence takes longer than creating a thread, some 20 µs.
    int useful_threads(int threads) const { return allotted * allotted * vector < 200000 ? 1 : threads; }
};

template <class Number>
void forward_batch(uintptr_t actions, uintptr_t values, uintptr_t lengths, uintptr_t initial, uintptr_t readings,
                   int64_t count, int64_t allotted, int64_t vector, int threads) {
    const Batch<Number> batch{actions, values, initial, {lengths, count, allotted}, allotted, vector};
    for_each_sequence(count, batch.useful_threads(threads), [&](int64_t b) {
        batch.finish(readings, b, vector);
        if (batch.steps[b] == 0) return;
        Number *first = batch.template at<Number>(readings, b, vector);
        for (int64_t column = 0; column < vector; column += widest_tile) forward(batch.tile(b, column), first + column);
    });
}

template <class Number>
void backward_batch(uintptr_t cotangent, uintptr_t actions, uintptr_t values, uintptr_t lengths, uintptr_t initial,
                    uintptr_t grad_actions, uintptr_t grad_values, uintptr_t grad_initial, int64_t count,
                    int64_t allotted, int64_t vector, int threads) {
    const Batch<Number> batch{actions, values, initial, {lengths, count, allotted}, allotted, vector};
    for_each_sequence(count, batch.useful_threads(threads), [&](int64_t b) {
        batch.finish(grad_actions, b, 3), batch.finish(grad_values, b, vector);
        Number *below = batch.template row<Number>(grad_initial, b);
        if (batch.steps[b] == 0) {
            if (below) std::fill_n(below, vector, Number(0));
            return;
        }
        std::vector<double> products(3 * batch.steps[b], 0.0);
        for (int64_t column = 0; column < vector; column += widest_tile) {
            backward(batch.tile(b, column), batch.template at<const Number>(cotangent, b, vector) + column,
                     products.data(), batch.template at<Number>(grad_values, b, vector) + column,
                     below ? below + column : nullptr);
        }
        std::copy(products.begin(), products.end(), batch.template at<Number>(grad_actions, b, 3));
    });
}

}  // namespace

void register_superposition_stack(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("superposition_stack_forward_float32", &forward_batch<float>, Unlocked());
    module.def("superposition_stack_forward_float64", &forward_batch<double>, Unlocked());
    module.def("superposition_stack_backward_float32", &backward_batch<float>, Unlocked());
    module.def("superposition_stack_backward_float64", &backward_batch<double>, Unlocked());
}
