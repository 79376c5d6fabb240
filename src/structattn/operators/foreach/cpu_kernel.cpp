// Norm, scaling and AdamW updates of all tensors of a list in one call: between small tensors, calls take longer than the
// arithmetic.
//
// Work is split into blocks of a fixed size, so that the number of threads cannot change a sum.
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/kernels.h"
#include "common/small_matrix.h"

namespace {

using Addresses = std::vector<uintptr_t>;
using Sizes = std::vector<int64_t>;

constexpr int64_t block = int64_t(1) << 16;

template <class Number>
Number *numbers(const Addresses &addresses, int64_t tensor, int64_t first) {
    return reinterpret_cast<Number *>(addresses[tensor]) + first;
}

// Calls body(index of the block, tensor, first, count) for blocks that cover all tensors; returns their number.
template <class Body>
int64_t for_each_block(const Sizes &sizes, int threads, const Body &body) {
    struct Block {
        int64_t tensor, first;
    };
    std::vector<Block> blocks;
    for (int64_t tensor = 0; tensor < int64_t(sizes.size()); ++tensor)
        for (int64_t first = 0; first < sizes[tensor]; first += block) blocks.push_back({tensor, first});
    const int64_t count = int64_t(blocks.size());
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    for_each_sequence(count, total < 16 * block ? 1 : threads, [&](int64_t index) {  // a thread takes some 20 µs to create
        const auto [tensor, first] = blocks[index];
        body(index, tensor, first, std::min(block, sizes[tensor] - first));
    });
    return count;
}

template <class Number>
double sum_of_squares(const Number *x, int64_t count) {
    constexpr int64_t lanes = vector_bytes / int64_t(sizeof(double)), chains = 4;  // additions that do not wait for others
    typedef Number Some __attribute__((vector_size(lanes * sizeof(Number))));
    typedef double Doubles __attribute__((vector_size(lanes * sizeof(double))));
    Doubles sums[chains] = {};
    int64_t i = 0;
    for (; i + chains * lanes <= count; i += chains * lanes)
        for (int64_t chain = 0; chain < chains; ++chain) {
            Some here;
            std::memcpy(&here, x + i + chain * lanes, sizeof here);
            const Doubles exact = __builtin_convertvector(here, Doubles);
            sums[chain] += exact * exact;
        }
    const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double sum = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) sum += all[lane];
    for (; i < count; ++i) sum += double(x[i]) * double(x[i]);
    return sum;
}

template <class Number>
double total_norm(const Addresses &tensors, const Sizes &sizes, int threads) {
    std::vector<double> sums(sizes.size());
    for (const int64_t size : sizes) sums.resize(sums.size() + size / block);  // at least one for each block
    const int64_t count = for_each_block(sizes, threads, [&](int64_t index, int64_t tensor, int64_t first, int64_t size) {
        sums[index] = sum_of_squares(numbers<const Number>(tensors, tensor, first), size);
    });
    double total = 0;
    for (int64_t index = 0; index < count; ++index) total += sums[index];
    return std::sqrt(total);
}

template <class Number>
void scale(const Addresses &tensors, const Sizes &sizes, double factor, int threads) {
    for_each_block(sizes, threads, [&](int64_t, int64_t tensor, int64_t first, int64_t count) {
        Number *x = numbers<Number>(tensors, tensor, first);
        for (int64_t i = 0; i < count; ++i) x[i] *= Number(factor);
    });
}

struct AdamW {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
};

// The same for all numbers of a tensor.
template <class Number>
struct AdamWStep {
    Number decay, keep1, keep2, add2, size, inverse_root, epsilon;

    AdamWStep(const AdamW &options, double step)
        : decay(Number(1 - options.learning_rate * options.weight_decay)), keep1(Number(1 - options.beta1)),
          keep2(Number(options.beta2)), add2(Number(1 - options.beta2)),
          size(Number(options.learning_rate / (1 - std::pow(options.beta1, step)))),
          inverse_root(Number(1 / std::sqrt(1 - std::pow(options.beta2, step)))), epsilon(Number(options.epsilon)) {}
    void update(Number *__restrict parameter, const Number *__restrict gradient, Number *__restrict mean,
                Number *__restrict square, int64_t count) const {
        for (int64_t i = 0; i < count; ++i) {
            mean[i] += keep1 * (gradient[i] - mean[i]);
            square[i] = keep2 * square[i] + add2 * gradient[i] * gradient[i];
            parameter[i] = parameter[i] * decay - size * mean[i] / (std::sqrt(square[i]) * inverse_root + epsilon);
        }
    }
};

// ``steps``: a float32 for each tensor, the number of its updates, which is increased.
template <class Number>
void adamw(const Addresses &parameters, const Addresses &gradients, const Addresses &means, const Addresses &squares,
           const Addresses &steps, const Sizes &sizes, const std::vector<double> &options, int threads) {
    const AdamW given{options[0], options[1], options[2], options[3], options[4]};
    std::vector<AdamWStep<Number>> of_tensors;
    double last = 0;
    for (const uintptr_t address : steps) {
        float *step = reinterpret_cast<float *>(address);
        *step += 1;
        if (*step == last) of_tensors.push_back(of_tensors.back());  // powers take longer than small tensors
        else of_tensors.emplace_back(given, last = *step);
    }
    for_each_block(sizes, threads, [&](int64_t, int64_t tensor, int64_t first, int64_t count) {
        of_tensors[tensor].update(numbers<Number>(parameters, tensor, first),
                                  numbers<const Number>(gradients, tensor, first), numbers<Number>(means, tensor, first),
                                  numbers<Number>(squares, tensor, first), count);
    });
}

}  // namespace

void register_foreach(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("foreach_norm_float32", &total_norm<float>, Unlocked());
    module.def("foreach_norm_float64", &total_norm<double>, Unlocked());
    module.def("foreach_scale_float32", &scale<float>, Unlocked());
    module.def("foreach_scale_float64", &scale<double>, Unlocked());
    module.def("foreach_adamw_float32", &adamw<float>, Unlocked());
    module.def("foreach_adamw_float64", &adamw<double>, Unlocked());
}
