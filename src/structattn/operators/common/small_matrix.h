// Products of small matrices in vector registers of the width of the instruction set.
//
// A table holds the rows of a matrix, each padded to ``row_unit`` numbers. Padding may hold anything: it affects padding
// only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, tile_rows = 12;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32, tile_rows = 6;
#else
constexpr int vector_bytes = 16, tile_rows = 6;
#endif

constexpr int64_t row_unit = 16;  // whole vectors for every instruction set and precision
inline int64_t padded_row(int64_t columns) { return (columns + row_unit - 1) / row_unit * row_unit; }

template <class Number, int64_t lanes>
struct VectorOf {
    typedef Number Type __attribute__((vector_size(lanes * sizeof(Number))));
};
template <class Number>
constexpr int64_t wide = vector_bytes / int64_t(sizeof(Number));
template <class Number>
using Wide = typename VectorOf<Number, wide<Number>>::Type;
// As many integers as a vector has numbers: of the same size, as comparisons give, or of another.
template <class Number, int64_t lanes = wide<Number>>
using MaskOf = typename VectorOf<std::conditional_t<sizeof(Number) == 4, int32_t, int64_t>, lanes>::Type;
template <class Number, class Integer>
using WideIntegers = typename VectorOf<Integer, wide<Number>>::Type;

// Calls body(k, lanes) for vectors that cover 0 to ``count``: whole ones, then a half, a quarter and so on. Rows are so
// short that their ends would otherwise take as long as the rest.
template <class Number, int64_t lanes = wide<Number>, class Body>
inline void in_vectors(int64_t count, const Body &body, int64_t k = 0) {
    for (; k + lanes <= count; k += lanes) body(k, std::integral_constant<int64_t, lanes>());
    if constexpr (lanes > 1) in_vectors<Number, lanes / 2>(count, body, k);
}

template <int64_t lanes, class Number>
inline typename VectorOf<Number, lanes>::Type load_lanes(const Number *from) {
    typename VectorOf<Number, lanes>::Type vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}
template <class Number>
inline Wide<Number> load_wide(const Number *from) {
    return load_lanes<wide<Number>>(from);
}
template <class Number, class Lanes>
inline void store_wide(Number *to, Lanes vector) {
    std::memcpy(to, &vector, sizeof vector);
}

// The sum of a row of whole vectors.
template <class Number>
inline Number sum_row(const Number *row, int64_t size) {
    Wide<Number> sums{};
    for (int64_t c = 0; c < size; c += wide<Number>) sums += load_wide(row + c);
    Number parts[wide<Number>];
    store_wide<Number>(parts, sums);
    for (int64_t half = wide<Number> / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; ++l) parts[l] += parts[l + half];
    return parts[0];
}

// The left factor of a product: element (i, l) is first[i * by_row + l * by_term]. A table with row length n is {x, n, 1},
// its transpose {x, 1, n}.
template <class Number>
struct Left {
    const Number *first;
    int64_t by_row, by_term;
    const Number *row(int64_t i) const { return first + i * by_row; }
};

// Rows to which a product is added: a bias has stride 0; null stands for zeros.
template <class Number>
struct Start {
    const Number *first = nullptr;
    int64_t stride = 0;
};

// R rows and C vectors of columns of ``multiply``.
template <int R, int C, class Number>
inline void multiply_tile(const Number *left, int64_t by_row, int64_t by_term, int64_t terms, const Number *right,
                          int64_t right_stride, const Number *start, int64_t start_stride, Number *out,
                          int64_t out_stride) {
    Wide<Number> sums[R][C] = {};
    if (start)
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) sums[i][j] = load_wide(start + i * start_stride + j * wide<Number>);
    for (int64_t l = 0; l < terms; ++l, left += by_term, right += right_stride) {
        Wide<Number> columns[C];
        for (int j = 0; j < C; ++j) columns[j] = load_wide(right + j * wide<Number>);
#pragma GCC unroll 12
        for (int i = 0; i < R; ++i)
            for (int j = 0; j < C; ++j) sums[i][j] += left[i * by_row] * columns[j];
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) store_wide<Number>(out + i * out_stride + j * wide<Number>, sums[i][j]);
}

template <int C, class Number>
inline void multiply_columns(Left<Number> left, int64_t rows, int64_t terms, const Number *right, int64_t right_stride,
                             Start<Number> start, Number *out, int64_t out_stride) {
    int64_t i = 0;
    auto tiles = [&](auto count) {
        for (; i + count() <= rows; i += count())
            multiply_tile<count(), C>(left.row(i), left.by_row, left.by_term, terms, right, right_stride,
                                      start.first ? start.first + i * start.stride : nullptr, start.stride,
                                      out + i * out_stride, out_stride);
    };
    tiles(std::integral_constant<int, tile_rows>());
    if constexpr (tile_rows > 8) tiles(std::integral_constant<int, 8>());
    tiles(std::integral_constant<int, 4>()), tiles(std::integral_constant<int, 1>());
}

// out = start + left * right for whole vectors of columns; ``start`` may be ``out``.
template <class Number>
inline void multiply(Left<Number> left, int64_t rows, int64_t terms, const Number *right, int64_t columns,
                     Start<Number> start, Number *out) {
    const int64_t stride = padded_row(columns);
    int64_t c = 0;
    auto from = [&](int64_t column) { return Start<Number>{start.first ? start.first + column : nullptr, start.stride}; };
    for (; c + 2 * wide<Number> <= stride; c += 2 * wide<Number>)
        multiply_columns<2>(left, rows, terms, right + c, stride, from(c), out + c, stride);
    for (; c < stride; c += wide<Number>)
        multiply_columns<1>(left, rows, terms, right + c, stride, from(c), out + c, stride);
}
