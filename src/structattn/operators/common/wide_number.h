// A real number with the precision of a double and a practically unlimited exponent.
//
// value = m * 2^e, with m = 0 or 1 <= |m| < 2 and 128 bits for e. Products of 1e7 weights exp(x) with |x| <= 1e30 neither
// overflow nor underflow, at a few times the cost of a double: the range of log-space arithmetic without logarithms, and
// with signs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

struct Wide {
    static constexpr bool exact = true;
    static bool negligible(const Wide &) { return false; }

    __extension__ typedef __int128 Exponent;
    static constexpr double largest_logit = 1e30;

    double m = 0;
    Exponent e = 0;

    Wide() = default;
    Wide(double value) : Wide(value, Exponent(0)) {}

    // exp(x) to one or two units in the last place; zero for x = -inf. Throws if |x| > 1e30.
    static Wide exp(double x) {
        if (x == -INFINITY) return {};
        if (std::fabs(x) > largest_logit) throw std::invalid_argument(beyond(x));
        // x - k ln 2 as the sum of two doubles. A double holds the leading bits of k only, so they are found in rounds.
        Exponent k = 0;
        double rest = x, low = 0;
        while (std::fabs(rest) > 0.35) {
            const double quotient = std::rint(rest * 1.4426950408889634);
            k += Exponent(quotient);
            for (const double part : {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56, 0x1.7b57a079a1934p-111}) {
                const volatile double product = quotient * part;  // rounded, and not fused with the difference
                subtract(product, rest, low);
                low -= std::fma(quotient, part, -product);
            }
            const double small = low;
            low = 0;
            subtract(-small, rest, low);
        }
        return Wide(std::exp(rest + low), k);
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
    // (rest, low) -= x, with rest the rounded difference and its error in low.
    static void subtract(double x, double &rest, double &low) {
        const double difference = rest - x, back = difference - rest;
        low += (rest - (difference - back)) - (x + back);
        rest = difference;
    }
    static std::string beyond(double x) {
        char text[120];
        std::snprintf(text, sizeof text, "a transition has the logit %g; expected -1e30 to 1e30, or -inf to forbid it", x);
        return text;
    }
    Wide(double value, Exponent exponent) {
        if (value == 0) return;
        uint64_t bits;
        std::memcpy(&bits, &value, 8);
        if ((bits >> 52 & 0x7ff) == 0) {  // denormal: scale up first
            value *= 0x1p200, exponent -= 200;
            std::memcpy(&bits, &value, 8);
        }
        e = exponent + Exponent(bits >> 52 & 0x7ff) - 1023;
        bits = (bits & 0x800fffffffffffffu) | 0x3ff0000000000000u;
        std::memcpy(&m, &bits, 8);
    }
    static Wide raw(double m, Exponent e) {
        Wide w;
        w.m = m, w.e = e;
        return w;
    }
    static Wide sum(const Wide &large, const Wide &small) {
        const Exponent gap = large.e - small.e;
        if (gap > 110) return large;
        const uint64_t bits = uint64_t(1023 - int(gap)) << 52;
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
