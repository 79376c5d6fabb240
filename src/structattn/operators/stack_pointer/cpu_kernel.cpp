// Stack pointer attention: the maps of a batch, their products with the values, and both gradients.
//
// Tensors are contiguous and given by address; 0 if there are no lengths. Maps have the rows 1..T: row 0 is e_0.
#include <algorithm>
#include <cstdint>

#include "common/kernels.h"
#include "common/rows.h"
#include "common/scratch.h"
#include "stack_pointer/map.h"
#include "stack_pointer/product.h"

namespace {

using namespace stack_pointer;

struct Batch {
    Lengths steps;
    int64_t count;  // sequences

    // Calls body(b, steps) for every sequence, given its multiply-adds. One thread per 400,000 of the batch (some 40 µs)
    // takes longer than creating a thread.
    template <class Body>
    void for_each(int64_t work, int threads, const Body &body) const {
        const int64_t useful = std::min<int64_t>(threads, 1 + count * work / 400000);
        for_each_sequence(count, int(useful), [&](int64_t b) { body(b, steps[b]); });
    }
};

// Sequence b of a tensor (B, rows, width).
template <class Number>
Number *at(uintptr_t address, int64_t b, int64_t rows, int64_t width) {
    return reinterpret_cast<Number *>(address) + b * rows * width;
}

template <class Number>
void zeros_from(Number *numbers, int64_t first, int64_t rows, int64_t width) {
    std::fill(numbers + first * width, numbers + rows * width, Number(0));
}

template <class Number>
void map_forward(uintptr_t actions, uintptr_t lengths, uintptr_t maps, int64_t count, int64_t T, int threads) {
    const Batch batch{{lengths, count, T}, count};
    batch.for_each(T * T * T / 6, threads, [&](int64_t b, int64_t n) {
        Number *rows = at<Number>(maps, b, T, T + 1);
        const int64_t size = Table::size_for(n), stride = Table::stride_for(n);
        Scratch scratch((size + stride) * sizeof(double));
        const Table map{scratch.as<double>(), stride};
        fill_map(at<const Number>(actions, b, T, 3), n, map, map.numbers + size);
        for (int64_t t = 1; t <= n; ++t, rows += T + 1) {
            std::copy_n(map.row(t), t + 1, rows);
            std::fill(rows + t + 1, rows + T + 1, Number(0));
        }
        zeros_from(rows, 0, T - n, T + 1);
    });
}

template <class Number>
void map_backward(uintptr_t cotangent, uintptr_t actions, uintptr_t maps, uintptr_t lengths, uintptr_t gradient,
                  int64_t count, int64_t T, int threads) {
    const Batch batch{{lengths, count, T}, count};
    batch.for_each(T * T * T / 3, threads, [&](int64_t b, int64_t n) {
        Number *result = at<Number>(gradient, b, T, 3);
        zeros_from(result, n, T, 3);
        if (n == 0) return;
        const int64_t size = Table::size_for(n), stride = Table::stride_for(n);
        Scratch scratch((2 * size + (1 + BLOCK) * stride) * sizeof(double));
        const Table map{scratch.as<double>(), stride}, U{map.numbers + size, stride};
        double *D = U.numbers + size, *factors = D + stride;
        fill_symmetric(at<const Number>(maps, b, T, T + 1), T, n, map);
        fill_triangle(at<const Number>(cotangent, b, T, T + 1), T, n, U);
        map_gradient(Adjoint<Number>{at<const Number>(actions, b, T, 3), n, map, U, D, factors}, result);
    });
}

template <class Number>
void product_forward(uintptr_t maps, uintptr_t values, uintptr_t lengths, uintptr_t readings, int64_t count, int64_t T,
                     int64_t d, int threads) {
    const Batch batch{{lengths, count, T}, count};
    batch.for_each(T * T * d / 2, threads, [&](int64_t b, int64_t n) {
        Number *result = at<Number>(readings, b, T, d);
        Scratch scratch((n + 1) * panel_width<Number> * sizeof(Number));
        read_values(at<const Number>(maps, b, T, T + 1), at<const Number>(values, b, T + 1, d), {n, T, d},
                    scratch.as<Number>(), result);
        zeros_from(result, n, T, d);
    });
}

template <class Number>
void product_backward(uintptr_t cotangent, uintptr_t maps, uintptr_t values, uintptr_t lengths, uintptr_t grad_maps,
                      uintptr_t grad_values, int64_t count, int64_t T, int64_t d, int threads) {
    const Batch batch{{lengths, count, T}, count};
    batch.for_each(T * T * d, threads, [&](int64_t b, int64_t n) {
        const Number *given = at<const Number>(cotangent, b, T, d);
        Number *of_maps = at<Number>(grad_maps, b, T, T + 1), *of_values = at<Number>(grad_values, b, T + 1, d);
        const int64_t used = n == 0 ? 0 : n + 1;
        zeros_from(of_maps, n, T, T + 1), zeros_from(of_values, used, T + 1, d);
        if (n == 0) return;
        const Shape shape{n, T, d};
        Scratch scratch(std::max(n, d) * panel_width<Number> * sizeof(Number));
        gradient_of_map(given, at<const Number>(values, b, T + 1, d), shape, scratch.as<Number>(), of_maps);
        gradient_of_values(given, at<const Number>(maps, b, T, T + 1), shape, scratch.as<Number>(), of_values);
    });
}

}  // namespace

void register_stack_pointer(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("stack_pointer_map_forward_float32", &map_forward<float>, Unlocked());
    module.def("stack_pointer_map_forward_float64", &map_forward<double>, Unlocked());
    module.def("stack_pointer_map_backward_float32", &map_backward<float>, Unlocked());
    module.def("stack_pointer_map_backward_float64", &map_backward<double>, Unlocked());
    module.def("stack_pointer_product_forward_float32", &product_forward<float>, Unlocked());
    module.def("stack_pointer_product_forward_float64", &product_forward<double>, Unlocked());
    module.def("stack_pointer_product_backward_float32", &product_backward<float>, Unlocked());
    module.def("stack_pointer_product_backward_float64", &product_backward<double>, Unlocked());
}
