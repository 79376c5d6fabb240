// Products with weights that were laid out once, in panels of ``panel`` outputs.
//
// Legend: M rows, K inputs and N outputs of a linear layer. A panel holds its biases and then, for each input, its
// weights. A product keeps a tile of ``tile`` rows by one panel in registers. Weights come from memory, rows from the cache:
// while a panel is in use the next one is prefetched, which may be the first one of the next layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
constexpr int wide = 16, tile = 12;
#elif defined(__AVX2__)
constexpr int wide = 8, tile = 6;
#else
constexpr int wide = 4, tile = 6;
#endif
constexpr int64_t panel = 2 * wide;
typedef float Wide __attribute__((vector_size(wide * 4)));

inline Wide load_wide(const float *from) {
    Wide vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}
inline void store_wide(float *to, Wide vector) { std::memcpy(to, &vector, sizeof vector); }

inline int64_t num_panels(int64_t outputs) { return (outputs + panel - 1) / panel; }

// The number of floats of a layer in panels.
inline int64_t panels_size(int64_t outputs, int64_t inputs) { return num_panels(outputs) * panel * (inputs + 1); }

// ``weight`` is (N, K); ``bias`` is null where there is none.
inline void pack_panels(const float *weight, const float *bias, float *to, int64_t outputs, int64_t inputs) {
    for (int64_t first = 0; first < outputs; first += panel, to += panel * (inputs + 1)) {
        const int64_t count = std::min(panel, outputs - first);
        for (int64_t n = 0; n < panel; ++n) {
            const float *row = weight + (first + n) * inputs;
            to[n] = bias && n < count ? bias[first + n] : 0;
            for (int64_t k = 0; k < inputs; ++k) to[(k + 1) * panel + n] = n < count ? row[k] : 0;
        }
    }
}

// The first ``count`` numbers of a panel of results.
inline void store_results(const Wide (&results)[2], int64_t count, bool relu, float *y) {
    float row[panel];
    const Wide zero{};
    for (int j = 0; j < 2; ++j) {
        // A NaN remains.
        const Wide here = relu ? (results[j] < zero ? zero : results[j]) : results[j];
        store_wide(count == panel ? y + j * wide : row + j * wide, here);
    }
    if (count < panel) std::memcpy(y, row, count * sizeof(float));
}

// Memory to be prefetched, piece by piece.
struct Ahead {
    const char *address;
    int64_t piece;  // bytes for each input

    void prefetch() {
        __builtin_prefetch(address);
        address += piece;
    }
};

// sums[i] += sum_k factor(i, k) weights[k] for R rows and one panel without its biases.
template <int R, class Factor>
inline void add_products(Wide (&sums)[R][2], const Factor &factor, int64_t inputs, const float *weights, Ahead &ahead) {
    for (int64_t k = 0; k < inputs; ++k, weights += panel) {
        ahead.prefetch();
        const Wide first = load_wide(weights), second = load_wide(weights + wide);
#pragma GCC unroll 12
        for (int i = 0; i < R; ++i) {
            const float here = factor(i, k);
            sums[i][0] += here * first, sums[i][1] += here * second;
        }
    }
}

// y = x W^T + b for R rows and one panel, of which ``count`` outputs exist.
template <int R>
inline void multiply_tile(const float *x, int64_t inputs, const float *weights, float *y, int64_t outputs, int64_t count,
                          bool relu, Ahead &ahead) {
    Wide sums[R][2];
    for (int i = 0; i < R; ++i) sums[i][0] = load_wide(weights), sums[i][1] = load_wide(weights + wide);
    add_products(sums, [&](int i, int64_t k) { return x[i * inputs + k]; }, inputs, weights + panel, ahead);
    for (int i = 0; i < R; ++i) store_results(sums[i], count, relu, y + i * outputs);
}

// Calls body(size, r) for tiles of rows that cover all of them, from row r on; size.value is their constant number of rows.
template <class Body>
inline void for_each_tile(int64_t rows, const Body &body) {
    int64_t r = 0;
    for (; r + tile <= rows; r += tile) body(std::integral_constant<int, tile>(), r);
    for (; r + 4 <= rows; r += 4) body(std::integral_constant<int, 4>(), r);
    for (; r < rows; ++r) body(std::integral_constant<int, 1>(), r);
}

// Calls body(p, first, rows) for the panels p from ``begin`` to ``end`` and for blocks of rows, so that the results of a
// few panels for a block of rows are written while their pages are in use.
template <class Body>
inline void for_each_block(int64_t rows, int64_t begin, int64_t end, const Body &body) {
    constexpr int64_t most_rows = 4 * tile, most_panels = 8;
    if (end - begin <= 2 * most_panels || rows <= most_rows) {
        for (int64_t p = begin; p < end; ++p) body(p, 0, rows);
        return;
    }
    for (int64_t p = begin; p < end; p += most_panels)
        for (int64_t first = 0; first < rows; first += most_rows)
            for (int64_t here = p; here < std::min(end, p + most_panels); ++here)
                body(here, first, std::min(most_rows, rows - first));
}

// A linear layer in panels.
struct PackedLinear {
    const float *panels;
    int64_t outputs, inputs;

    // y = x W^T + b for the panels from ``begin`` to ``end``, negative numbers replaced by 0 if ``relu``.
    void multiply(const float *x, int64_t rows, float *y, bool relu, int64_t begin, int64_t end) const {
        for_each_block(rows, begin, end, [&](int64_t p, int64_t first, int64_t count) {
            const float *here = panels + p * panel * (inputs + 1);
            const int64_t n = p * panel, existing = std::min(panel, outputs - n);
            const float *rows_of_block = x + first * inputs;
            float *results = y + first * outputs + n;
            Ahead ahead{reinterpret_cast<const char *>(here + panel * (inputs + 1)), panel * int64_t(sizeof(float)) * tile / (count + tile - 1)};
            for_each_tile(count, [&](auto size, int64_t r) {
                multiply_tile<size.value>(rows_of_block + r * inputs, inputs, here, results + r * outputs, outputs, existing, relu, ahead);
            });
        });
    }

    void multiply(const float *x, int64_t rows, float *y, bool relu = false) const { multiply(x, rows, y, relu, 0, num_panels(outputs)); }
};
