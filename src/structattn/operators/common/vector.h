// Vectors of floats and doubles of the width of the instruction set that the file is compiled for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

template <class Number, int64_t lanes>
struct VectorOf {
    typedef Number Type __attribute__((vector_size(lanes * sizeof(Number))));
};
template <class Number>
constexpr int lanes_in = vector_bytes / int(sizeof(Number));
template <class Number>
using Vector = typename VectorOf<Number, lanes_in<Number>>::Type;
// As many integers as Vector has numbers: of another size, or of the same, as comparisons give.
template <class Number, class Integer>
using VectorIntegers = typename VectorOf<Integer, lanes_in<Number>>::Type;
template <class Number>
using VectorMask = VectorIntegers<Number, std::conditional_t<sizeof(Number) == 4, int32_t, int64_t>>;

constexpr int VL = lanes_in<double>;
using V = Vector<double>;
using VI = VectorMask<double>;

template <class Number>
inline Vector<Number> load(const Number *p) {
    Vector<Number> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class Number>
inline void store(Number *p, Vector<Number> v) {
    std::memcpy(p, &v, sizeof v);
}
// Not Vector<Number>{} + x: that adds in fact, because 0 + -0 is not -0.
template <class Number>
inline Vector<Number> splat_to(Number x) {
    return x - Vector<Number>{};
}
inline V splat(double x) { return splat_to<double>(x); }
// Keeps the compiler from repeating a load at each use: with two operands from memory for two products, loads take longer.
template <class Lanes>
inline void keep_in_register([[maybe_unused]] Lanes &v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#endif
}
inline double sum_lanes(V v) {
    double sum = 0;
    for (int i = 0; i < VL; ++i) sum += v[i];
    return sum;
}

namespace exchanges {
// For each lane whose number has this bit clear, low: a's and then b's; high: those of the lanes with the bit set.
template <std::size_t BIT, class Lanes, std::size_t... LANE>
inline Lanes low_lanes(Lanes a, Lanes b, std::index_sequence<LANE...>) {
    return __builtin_shufflevector(a, b, (LANE & BIT ? sizeof...(LANE) + LANE - BIT : LANE)...);
}
template <std::size_t BIT, class Lanes, std::size_t... LANE>
inline Lanes high_lanes(Lanes a, Lanes b, std::index_sequence<LANE...>) {
    return __builtin_shufflevector(a, b, (LANE & BIT ? sizeof...(LANE) + LANE : LANE + BIT)...);
}
template <std::size_t BIT, std::size_t SIZE, class Lanes>
inline void exchange(Lanes *x) {
    if constexpr (BIT < SIZE) {
        for (std::size_t i = 0; i < SIZE; ++i)
            if (!(i & BIT)) {
                const Lanes a = x[i], b = x[i + BIT];
                x[i] = low_lanes<BIT>(a, b, std::make_index_sequence<SIZE>());
                x[i + BIT] = high_lanes<BIT>(a, b, std::make_index_sequence<SIZE>());
            }
        exchange<2 * BIT, SIZE>(x);
    }
}
}  // namespace exchanges

// Exchanges lane i of vector k with lane k of vector i, for as many vectors as lanes.
template <class Number>
inline void transpose(Vector<Number> *x) {
    exchanges::exchange<1, lanes_in<Number>>(x);
}

// The sum of the lanes of each vector, in the order of sum_lanes.
template <class Number>
inline Vector<Number> sums_of_lanes(Vector<Number> *x) {
    transpose<Number>(x);
    Vector<Number> sum{};
    for (int i = 0; i < lanes_in<Number>; ++i) sum += x[i];
    return sum;
}
template <class Number>
inline Number least_lane_of(Vector<Number> v) {
    Number least = v[0];
    for (int i = 1; i < lanes_in<Number>; ++i) least = v[i] < least ? v[i] : least;
    return least;
}
inline double least_lane(V v) { return least_lane_of<double>(v); }
template <class Number>
inline Vector<Number> lane_numbers_of() {
    Vector<Number> v{};
    for (int i = 0; i < lanes_in<Number>; ++i) v[i] = Number(i);
    return v;
}
inline V lane_numbers() { return lane_numbers_of<double>(); }

// exp(x) for x <= 0 (-inf included), accurate to one or two units in the last place; 0 below -708.
inline V exp_of_negative(V x) {
    typedef VectorIntegers<double, uint64_t> VU;
    const V low = splat(-708);
    const VI kept = x > low;
    x = kept ? x : low;
    const V magic = splat(0x1.8p52);
    const V shifted = x * splat(1.4426950408889634) + magic;  // its low bits hold the rounded quotient
    const V k = shifted - magic;
    const V r = (x - k * splat(0.693147180369123816490)) - k * splat(1.90821492927058770002e-10);
    V p = splat(1.0 / 6227020800);
    constexpr double factorial[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600};
    for (int i = 12; i >= 0; --i) p = p * r + splat(1 / factorial[i]);
    VU bits, quotient;
    std::memcpy(&quotient, &shifted, sizeof bits);
    std::memcpy(&bits, &p, sizeof bits);
    bits += quotient << 52;
    std::memcpy(&p, &bits, sizeof bits);
    return kept ? p : V{};
}
