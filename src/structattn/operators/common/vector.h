// Vectors of doubles of the width of the instruction set that the file is compiled for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
constexpr int VL = 8;
#elif defined(__AVX2__)
constexpr int VL = 4;
#else
constexpr int VL = 2;
#endif

typedef double V __attribute__((vector_size(VL * 8)));
typedef int64_t VI __attribute__((vector_size(VL * 8)));
typedef uint64_t VU __attribute__((vector_size(VL * 8)));

inline V load(const double *p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(double *p, V v) { std::memcpy(p, &v, sizeof v); }
// Not V{} + x: that adds in fact, because 0 + -0 is not -0.
inline V splat(double x) { return x - V{}; }
// Keeps the compiler from repeating a load at each use: with two operands from memory for two products, loads take longer.
inline void keep_in_register([[maybe_unused]] V &v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#endif
}
inline double sum_lanes(V v) {
    double sum = 0;
    for (int i = 0; i < VL; ++i) sum += v[i];
    return sum;
}

namespace lanes {
// For each lane whose number has this bit clear, low: a's and then b's; high: those of the lanes with the bit set.
template <std::size_t BIT, std::size_t... LANE>
inline V low_lanes(V a, V b, std::index_sequence<LANE...>) {
    return __builtin_shufflevector(a, b, (LANE & BIT ? VL + LANE - BIT : LANE)...);
}
template <std::size_t BIT, std::size_t... LANE>
inline V high_lanes(V a, V b, std::index_sequence<LANE...>) {
    return __builtin_shufflevector(a, b, (LANE & BIT ? VL + LANE : LANE + BIT)...);
}
template <std::size_t BIT>
inline void exchange(V *x) {
    if constexpr (BIT < VL) {
        for (std::size_t i = 0; i < VL; ++i)
            if (!(i & BIT)) {
                const V a = x[i], b = x[i + BIT];
                x[i] = low_lanes<BIT>(a, b, std::make_index_sequence<VL>());
                x[i + BIT] = high_lanes<BIT>(a, b, std::make_index_sequence<VL>());
            }
        exchange<2 * BIT>(x);
    }
}
}  // namespace lanes

// Exchanges lane i of vector k with lane k of vector i.
inline void transpose(V (&x)[VL]) { lanes::exchange<1>(x); }

// The sum of the lanes of each vector, in the order of sum_lanes.
inline V sums_of_lanes(V (&x)[VL]) {
    transpose(x);
    V sum{};
    for (int i = 0; i < VL; ++i) sum += x[i];
    return sum;
}
inline double least_lane(V v) {
    double least = v[0];
    for (int i = 1; i < VL; ++i) least = v[i] < least ? v[i] : least;
    return least;
}
inline V lane_numbers() {
    V v{};
    for (int i = 0; i < VL; ++i) v[i] = i;
    return v;
}

// exp(x) for x <= 0 (-inf included), accurate to one or two units in the last place; 0 below -708.
inline V exp_of_negative(V x) {
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
