// A real number with the precision of a double and a practically unlimited exponent.
//
// value = m * 2^e, with m = 0 or 1 <= |m| < 2. Sums and products of such numbers neither overflow nor underflow for any
// weights exp(x) with |x| < 1e15, at a few times the cost of a double: the range of log-space arithmetic without
// logarithms, and with signs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

struct Wide {
    static constexpr bool exact = true;
    static bool negligible(const Wide &) { return false; }

    double m = 0;
    int64_t e = 0;

    Wide() = default;
    Wide(double value) : Wide(value, 0) {}

    // exp(x); zero for x = -inf. |x| is limited to 1e15, beyond which differences are practically infinite.
    static Wide exp(double x) {
        if (x == -INFINITY) return {};
        x = std::fmax(std::fmin(x, 1e15), -1e15);
        const double k = std::rint(x * 1.4426950408889634);
        // ln 2 in two parts, so that x - k ln 2 is accurate.
        const double rest = std::fma(-k, 1.9082149292705877e-10, std::fma(-k, 0.693147180369123816490, x));
        return Wide(std::exp(rest), int64_t(k));
    }
    double log() const { return m == 0 ? -INFINITY : std::log(m) + double(e) * 0.6931471805599453; }
    double to_double() const { return std::ldexp(m, int(e > 4000 ? 4000 : e < -4000 ? -4000 : e)); }
    bool is_zero() const { return m == 0; }

    Wide operator-() const { return raw(-m, e); }
    Wide operator*(const Wide &b) const { return Wide(m * b.m, e + b.e); }
    Wide operator/(const Wide &b) const { return Wide(m / b.m, e - b.e); }
    Wide operator+(const Wide &b) const {
        if (m == 0) return b;
        if (b.m == 0) return *this;
        return e >= b.e ? sum(*this, b) : sum(b, *this);
    }
    Wide operator-(const Wide &b) const { return *this + (-b); }
    Wide &operator+=(const Wide &b) { return *this = *this + b; }

private:
    Wide(double value, int64_t exponent) {
        if (value == 0) return;
        uint64_t bits;
        std::memcpy(&bits, &value, 8);
        if ((bits >> 52 & 0x7ff) == 0) {  // denormal: scale up first
            value *= 0x1p200, exponent -= 200;
            std::memcpy(&bits, &value, 8);
        }
        e = exponent + int64_t(bits >> 52 & 0x7ff) - 1023;
        bits = (bits & 0x800fffffffffffffu) | 0x3ff0000000000000u;
        std::memcpy(&m, &bits, 8);
    }
    static Wide raw(double m, int64_t e) {
        Wide w;
        w.m = m, w.e = e;
        return w;
    }
    static Wide sum(const Wide &large, const Wide &small) {
        const int64_t gap = large.e - small.e;
        if (gap > 110) return large;
        const uint64_t bits = uint64_t(1023 - gap) << 52;
        double scale;
        std::memcpy(&scale, &bits, 8);
        return Wide(large.m + small.m * scale, large.e);
    }
};

// The same names for a plain double, so that one template serves both.
struct Plain {
    static constexpr bool exact = false;
    static bool negligible(Plain share) { return share.value < 1e-290; }

    double value = 0;
    Plain() = default;
    Plain(double v) : value(v) {}
    static Plain exp(double x) { return std::exp(x); }
    double log() const { return std::log(value); }
    double to_double() const { return value; }
    bool is_zero() const { return value == 0; }
    Plain operator-() const { return -value; }
    Plain operator*(Plain b) const { return value * b.value; }
    Plain operator/(Plain b) const { return value / b.value; }
    Plain operator+(Plain b) const { return value + b.value; }
    Plain operator-(Plain b) const { return value - b.value; }
    Plain &operator+=(Plain b) { return *this = *this + b; }
};
