// Small dense products in vector registers, for a block of N queries at a time.
//
// Legend: s counts keys, c components, i the queries of the block. A row of scores or weights is ``stride`` long, a row
// of a table of vectors ``width``; both are multiples of the vector size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

template <class Number>
struct Format;
template <>
struct Format<float> {
    typedef float Lanes __attribute__((vector_size(32)));
    typedef int32_t Mask __attribute__((vector_size(32)));
    typedef uint32_t Unsigned;  // for bits: those of NaN overflow
    static constexpr int mantissa = 23, terms = 7;
    static constexpr float lowest = -87, round = 0x1.8p23f, ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
};
template <>
struct Format<double> {
    typedef double Lanes __attribute__((vector_size(32)));
    typedef int64_t Mask __attribute__((vector_size(32)));
    typedef uint64_t Unsigned;
    static constexpr int mantissa = 52, terms = 13;
    static constexpr double lowest = -708, round = 0x1.8p52, ln2_high = 0x1.62e42fefa0000p-1,
                            ln2_low = 0x1.cf79abc9e3b3ap-40;
};
template <class Number>
using Lanes = typename Format<Number>::Lanes;
template <class Number>
constexpr int64_t lanes = sizeof(Lanes<Number>) / sizeof(Number);

template <class Number>
inline Lanes<Number> load(const Number *from) {
    Lanes<Number> vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}
// Numbers that do not fill a vector, padded with zeros.
template <class Number>
inline Lanes<Number> load_some(const Number *from, int64_t count) {
    Lanes<Number> vector{};
    std::memcpy(&vector, from, count * sizeof(Number));
    return vector;
}
template <class Number>
inline void store(Number *to, Lanes<Number> vector) {
    std::memcpy(to, &vector, sizeof vector);
}
template <class Number>
inline int64_t padded(int64_t count) {
    return (count + lanes<Number> - 1) / lanes<Number> * lanes<Number>;
}

// In pairs: a chain of additions would take longer than the products of a short row.
template <class Number>
inline Number sum_lanes(Lanes<Number> vector) {
    typedef Number Half __attribute__((vector_size(16)));
    Half halves[2];
    std::memcpy(halves, &vector, sizeof vector);
    const Half sums = halves[0] + halves[1];
    if constexpr (lanes<Number> == 4) return sums[0] + sums[1];
    else return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// exp(x) for x <= 0, accurate to one or two units in the last place; 0 if the result would be denormal; NaN for NaN.
template <class Number, class Vector>
inline Vector exp_of_negative(Vector x) {
    using F = Format<Number>;
    typedef typename F::Unsigned Bits __attribute__((vector_size(sizeof(Vector))));
    const Vector zero{}, lowest = zero + F::lowest;
    const auto too_low = x < lowest;
    x = too_low ? lowest : x;
    const Vector shifted = x * Number(1.4426950408889634) + F::round;  // its low bits hold the rounded quotient
    const Vector quotient = shifted - F::round;
    const Vector rest = (x - quotient * F::ln2_high) - quotient * F::ln2_low;
    constexpr double factorials[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600,
                                     6227020800};
    Vector power = zero + Number(1 / factorials[F::terms]);
    for (int i = F::terms - 1; i >= 0; --i) power = power * rest + Number(1 / factorials[i]);
    Bits exponent, bits;
    std::memcpy(&exponent, &shifted, sizeof bits);
    std::memcpy(&bits, &power, sizeof bits);
    bits += exponent << F::mantissa;
    std::memcpy(&power, &bits, sizeof bits);
    return too_low ? zero : power;
}

// Converts scores to weights in place: exp(score - maximum) / sum over the first ``count``, and zeros up to ``end``.
template <class Number>
inline void softmax_row(Number *row, int64_t count, int64_t end) {
    for (int64_t s = count; s < end; ++s) row[s] = -__builtin_inff();
    if (count == 0) return std::fill(row, row + end, Number(0));
    Lanes<Number> largest = load(row), sums{};
    for (int64_t s = lanes<Number>; s < end; s += lanes<Number>) {
        const Lanes<Number> scores = load(row + s);
        largest = scores > largest ? scores : largest;
    }
    Number most = -__builtin_inff();
    for (int64_t l = 0; l < lanes<Number>; ++l) most = largest[l] > most ? largest[l] : most;
    for (int64_t s = 0; s < end; s += lanes<Number>) {
        store<Number>(row + s, exp_of_negative<Number>(load(row + s) - most));
        sums += load(row + s);
    }
    const Number sum = sum_lanes<Number>(sums);
    for (int64_t s = 0; s < end; s += lanes<Number>) store<Number>(row + s, load(row + s) / sum);
}

// row[s] += bias[s], and -inf if the bias is -inf, for any score: that key is masked. Returns whether any key is visible.
template <class Number>
inline bool add_bias(const Number *bias, int64_t count, Number *row) {
    const Lanes<Number> hidden = Lanes<Number>{} - __builtin_inff();
    typename Format<Number>::Mask left{};
    auto add = [&](Lanes<Number> biases, Number *scores) {
        const typename Format<Number>::Mask here = biases != hidden;
        store<Number>(scores, here ? load(scores) + biases : hidden);
        left |= here;
    };
    int64_t s = 0;
    for (; s + lanes<Number> <= count; s += lanes<Number>) add(load(bias + s), row + s);
    if (s < count) {
        Lanes<Number> rest = hidden;
        std::memcpy(&rest, bias + s, (count - s) * sizeof(Number));
        add(rest, row + s);
    }
    bool some = false;
    for (int64_t l = 0; l < lanes<Number>; ++l) some |= left[l] != 0;
    return some;
}

// sum_c left[c] * right[c], where left is padded with zeros to whole vectors and right may have any length.
template <class Number>
inline Number dot(const Number *left, const Number *right, int64_t size) {
    Lanes<Number> sums{};
    int64_t c = 0;
    for (; c + lanes<Number> <= size; c += lanes<Number>) sums += load(left + c) * load(right + c);
    if (c < size) sums += load(left + c) * load_some(right + c, size - c);
    return sum_lanes<Number>(sums);
}

// scores[s] = sum_c query[c] * rows.row(s)[c] for s < count; query is padded with zeros to whole vectors.
template <class Number, class Source>
inline void times_each_row(const Number *query, Source rows, int64_t count, int64_t size, Number *scores) {
    constexpr int together = 4;  // rows, so that additions of one do not wait for each other
    const int64_t whole = size / lanes<Number> * lanes<Number>;
    int64_t s = 0;
    for (; s + together <= count; s += together) {
        const Number *at[together];
        for (int i = 0; i < together; ++i) at[i] = rows.row(s + i);
        Lanes<Number> sums[together] = {};
        for (int64_t c = 0; c < whole; c += lanes<Number>) {
            const Lanes<Number> part = load(query + c);
            for (int i = 0; i < together; ++i) sums[i] += part * load(at[i] + c);
        }
        if (whole < size)
            for (int i = 0; i < together; ++i) sums[i] += load(query + whole) * load_some(at[i] + whole, size - whole);
        for (int i = 0; i < together; ++i) scores[s + i] = sum_lanes<Number>(sums[i]);
    }
    for (; s < count; ++s) scores[s] = dot(query, rows.row(s), size);
}

// products[c] = sum_{s < count} weights[s] * rows.row(s)[c] for the N vectors from c = first on.
template <int N, class Number, class Source>
inline void weigh_vectors(const Number *weights, Source rows, int64_t count, int64_t first, Number *products) {
    Lanes<Number> sums[N] = {};
    for (int64_t s = 0; s < count; ++s) {
        const Number *row = rows.row(s) + first;
        for (int i = 0; i < N; ++i) sums[i] += weights[s] * load(row + i * lanes<Number>);
    }
    for (int i = 0; i < N; ++i) store<Number>(products + first + i * lanes<Number>, sums[i]);
}

// products = sum_{s < count} weights[s] * rows.row(s), padded with zeros to whole vectors.
template <class Number, class Source>
inline void weigh_each_row(const Number *weights, Source rows, int64_t count, int64_t size, Number *products) {
    int64_t c = 0;
    for (; c + 8 * lanes<Number> <= size; c += 8 * lanes<Number>) weigh_vectors<8>(weights, rows, count, c, products);
    if (c + 4 * lanes<Number> <= size) weigh_vectors<4>(weights, rows, count, c, products), c += 4 * lanes<Number>;
    if (c + 2 * lanes<Number> <= size) weigh_vectors<2>(weights, rows, count, c, products), c += 2 * lanes<Number>;
    if (c + lanes<Number> <= size) weigh_vectors<1>(weights, rows, count, c, products), c += lanes<Number>;
    if (c == size) return;
    Lanes<Number> sums{};
    for (int64_t s = 0; s < count; ++s) sums += weights[s] * load_some(rows.row(s) + c, size - c);
    store<Number>(products + c, sums);
}

// products[i][s] = sum_c left[i][c] * columns[c][s] for s < count, rounded up to whole lanes.
template <int N, class Number>
inline void times_columns(const Number *left, int64_t width, const Number *columns, int64_t size, int64_t stride,
                          int64_t count, Number *products) {
    for (int64_t s = 0; s < count; s += lanes<Number>) {
        Lanes<Number> sums[N] = {};
        for (int64_t c = 0; c < size; ++c) {
            const Lanes<Number> column = load(columns + c * stride + s);
            for (int64_t i = 0; i < N; ++i) sums[i] += left[i * width + c] * column;
        }
        for (int64_t i = 0; i < N; ++i) store<Number>(products + i * stride + s, sums[i]);
    }
}

// products[i] = sum_{s < counts[i]} weights[i][s] * table[s]; counts[0] is the smallest count.
template <int N, class Number>
inline void times_rows(const Number *weights, int64_t stride, const int64_t *counts, const Number *table, int64_t width,
                       Number *products) {
    for (int64_t c = 0; c < width; c += lanes<Number>) {
        Lanes<Number> sums[N] = {};
        for (int64_t s = 0; s < counts[0]; ++s) {
            const Lanes<Number> row = load(table + s * width + c);
            for (int64_t i = 0; i < N; ++i) sums[i] += weights[i * stride + s] * row;
        }
        for (int64_t i = 1; i < N; ++i)
            for (int64_t s = counts[0]; s < counts[i]; ++s) sums[i] += weights[i * stride + s] * load(table + s * width + c);
        for (int64_t i = 0; i < N; ++i) store<Number>(products + i * width + c, sums[i]);
    }
}

// to[c] += factor * from[c]
template <class Number>
inline void add_row(Number factor, const Number *from, int64_t width, Number *to) {
    for (int64_t c = 0; c < width; c += lanes<Number>) store<Number>(to + c, load(to + c) + factor * load(from + c));
}

// The same where ``from`` may have any length, and ``to`` is padded to whole vectors.
template <class Number>
inline void add_some(Number factor, const Number *from, int64_t size, Number *to) {
    const int64_t whole = size / lanes<Number> * lanes<Number>;
    add_row(factor, from, whole, to);
    if (whole < size) store<Number>(to + whole, load(to + whole) + factor * load_some(from + whole, size - whole));
}

// table[s] += sum_i weights[i][s] * left[i] over the queries i with s < counts[i].
template <int N, class Number>
inline void add_outer(const Number *weights, int64_t stride, const int64_t *counts, const Number *left, int64_t width,
                      Number *table) {
    for (int64_t c = 0; c < width; c += lanes<Number>) {
        Lanes<Number> rows[N];
        for (int64_t i = 0; i < N; ++i) rows[i] = load(left + i * width + c);
        for (int64_t s = 0; s < counts[0]; ++s) {
            Lanes<Number> sum = load(table + s * width + c);
            for (int64_t i = 0; i < N; ++i) sum += weights[i * stride + s] * rows[i];
            store<Number>(table + s * width + c, sum);
        }
        for (int64_t i = 1; i < N; ++i)
            for (int64_t s = counts[0]; s < counts[i]; ++s)
                store<Number>(table + s * width + c, load(table + s * width + c) + weights[i * stride + s] * rows[i]);
    }
}
