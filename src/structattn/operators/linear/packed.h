// Linear layers whose weights were laid out once, for products in float32, int8 or bfloat16.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "linear/amx.h"
#include "linear/bf16_panels.h"
#include "linear/int8_panels.h"
#include "linear/panels.h"

// In the order of ``LinearPrecision`` in int8.py.
enum class Precision : int64_t { float32, int8, bf16 };

#if defined(STRUCTATTN_INT8_PANELS)
constexpr bool has_reduced_precision = true;
#else
constexpr bool has_reduced_precision = false;
#endif

// A layer with K inputs and N outputs, in ``bytes`` of memory.
struct PackedLinear {
    uint8_t *packed;
    int64_t outputs, inputs;
    Precision precision;

    int64_t bytes() const {
#if defined(STRUCTATTN_INT8_PANELS)
        if (precision == Precision::int8) return int8_panels_size(outputs, inputs);
        if (precision == Precision::bf16) return bf16_panels_size(outputs, inputs);
#endif
        if (precision != Precision::float32) throw std::invalid_argument("these kernels have products in float32 only");
        return panels_size(outputs, inputs) * sizeof(float);
    }

    // Lays the weights out; ``row`` has room for K + 3 bytes. Returns false where they have no scales for int8.
    bool pack(const float *weight, const float *bias, uint8_t *row) const {
#if defined(STRUCTATTN_INT8_PANELS)
        if (precision == Precision::int8) return pack_int8_panels(weight, bias, packed, outputs, inputs, row);
        if (precision == Precision::bf16) return pack_bf16_panels(weight, bias, packed, outputs, inputs), true;
#endif
        pack_panels(weight, bias, reinterpret_cast<float *>(packed), outputs, inputs);
        return true;
    }

    // The bytes of memory that ``prepare`` needs.
    static int64_t prepared_size(int64_t rows, int64_t inputs, Precision precision) {
#if defined(STRUCTATTN_INT8_PANELS)
        if (precision == Precision::int8) return QuantizedRows::size(rows, inputs);
        if (precision == Precision::bf16) return RoundedRows::size(rows, inputs);
#endif
        return 0;
    }

    // Calls use(multiply), where multiply(begin, end) computes y = x W^T + b for these panels, in any thread. ``memory`` has
    // ``prepared_size`` bytes.
    template <class Use>
    void prepare(const float *x, int64_t rows, float *y, bool relu, void *memory, const Use &use) const {
#if defined(STRUCTATTN_INT8_PANELS)
        if (precision == Precision::int8) {
            const QuantizedRows quantized(x, rows, inputs, memory);
            return use([&](int64_t begin, int64_t end) {
                multiply_int8_panels(quantized, rows, inputs, packed, y, outputs, begin, end, relu);
            });
        }
        if (precision == Precision::bf16) {
            const RoundedRows rounded(x, rows, inputs, memory);
            return use([&](int64_t begin, int64_t end) {
                multiply_bf16_panels(rounded, rows, inputs, packed, y, outputs, begin, end, relu);
            });
        }
#endif
        use([&](int64_t begin, int64_t end) {
            multiply_panels(x, rows, inputs, reinterpret_cast<const float *>(packed), y, outputs, begin, end, relu);
        });
    }

    // y = x W^T + b, negative ones replaced by 0 if ``relu``. ``memory`` has ``prepared_size`` bytes.
    void multiply(const float *x, int64_t rows, float *y, void *memory, bool relu = false) const {
        prepare(x, rows, y, relu, memory, [&](const auto &multiply) { multiply(0, num_panels(outputs)); });
    }
};
