// Dropout by given random numbers, as in common/dropout.py.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/small_matrix.h"

// One number for each element of a tensor; elements whose number is below ``least`` are dropped, the others multiplied by
// ``factor``. Without numbers nothing is dropped.
template <class Number>
struct Mask {
    const int16_t *numbers;
    int16_t least;
    Number factor;

    // The share of all numbers that are dropped is ``dropped`` / 2^16.
    Mask(int64_t address, int64_t dropped)
        : numbers(reinterpret_cast<const int16_t *>(address)), least(int16_t(dropped - 32768)),
          factor(Number(65536.0 / double(65536 - dropped))) {}

    // to[k] = start[k] + from[k] * mask for ``count`` elements, of which the first is the tensor's ``first``-th.
    void add(const Number *start, const Number *from, int64_t first, int64_t count, Number *to) const {
        if (!numbers) {
            for (int64_t k = 0; k < count; ++k) to[k] = start[k] + from[k];
            return;
        }
        in_vectors<Number>(count, [&](int64_t k, auto lanes) {
            const auto sum = load_lanes<lanes()>(start + k) + load_lanes<lanes()>(from + k) * factors<lanes()>(numbers + first + k);
            store_wide(to + k, sum);
        });
    }
    // to[k] = from[k] * mask
    void apply(const Number *from, int64_t first, int64_t count, Number *to) const {
        if (!numbers) {
            if (to != from) std::copy_n(from, count, to);
            return;
        }
        in_vectors<Number>(count, [&](int64_t k, auto lanes) {
            store_wide(to + k, load_lanes<lanes()>(from + k) * factors<lanes()>(numbers + first + k));
        });
    }

private:
    // Written with vectors, because the AVX-512 instructions that the kernels are built with have none for loops over int16.
    template <int64_t lanes>
    typename VectorOf<Number, lanes>::Type factors(const int16_t *here) const {
        const typename VectorOf<Number, lanes>::Type zero{};
        const auto dropped = __builtin_convertvector(load_lanes<lanes>(here), MaskOf<Number, lanes>) < least;
        return dropped ? zero : zero + factor;
    }
};
