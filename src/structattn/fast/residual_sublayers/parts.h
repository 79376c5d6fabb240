// Work on sequences or rows in parts whose number does not depend on the number of threads, so that no sum does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernels.h"
#include "residual_sublayers/weights.h"

inline int64_t parts_of(int64_t count) { return std::clamp<int64_t>(count, 1, 16); }

// body(part, first, end) for ranges that cover 0 to ``count``.
template <class Body>
void for_each_part(int64_t count, int threads, const Body &body) {
    const int64_t parts = parts_of(count);
    for_each_sequence(parts, threads,
                      [&](int64_t part) { body(part, part * count / parts, (part + 1) * count / parts); });
}

// Writes the sum of what body(first, end, gradients) adds to zeros in each part.
template <class Number, class Body>
void sum_over_parts(const WeightSizes &sizes, int64_t count, int threads, const Parameters<Number> &to,
                    const Body &body) {
    Pieces<Number> counted(nullptr);
    Gradients<Number>(sizes, counted);
    const int64_t parts = parts_of(count), each = counted.numbers();
    ScratchFor<Gradients<Number>> scratch(parts * counted.bytes());
    Number *memory = scratch.template as<Number>();
    for_each_part(count, threads, [&](int64_t part, int64_t first, int64_t end) {
        std::fill_n(memory + part * each, each, Number(0));
        Pieces<Number> pieces(memory + part * each);
        body(first, end, Gradients<Number>(sizes, pieces));
    });
    for (int64_t part = 1; part < parts; ++part)
        for (int64_t k = 0; k < each; ++k) memory[k] += memory[part * each + k];
    Pieces<Number> pieces(memory);
    Gradients<Number>(sizes, pieces).write(to);
}
