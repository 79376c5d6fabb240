// While one of these exists, this thread computes with zeros in place of denormal numbers, which are many times slower.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>

class FlushDenormals {
public:
    FlushDenormals() { _mm_setcsr(before_ | 0x8040); }  // flush to zero, and denormals are zeros
    ~FlushDenormals() { _mm_setcsr(before_); }
    FlushDenormals(const FlushDenormals &) = delete;
    FlushDenormals &operator=(const FlushDenormals &) = delete;

private:
    const unsigned before_ = _mm_getcsr();
};
#elif defined(__aarch64__)
#include <cstdint>

class FlushDenormals {
public:
    FlushDenormals() { set(before_ | uint64_t(1) << 24); }
    ~FlushDenormals() { set(before_); }
    FlushDenormals(const FlushDenormals &) = delete;
    FlushDenormals &operator=(const FlushDenormals &) = delete;

private:
    const uint64_t before_ = get();

    static uint64_t get() {
        uint64_t control;
        asm volatile("mrs %0, fpcr" : "=r"(control));
        return control;
    }
    static void set(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
};
#else
class FlushDenormals {
public:
    FlushDenormals() {}  // not trivial, so that it counts as used
};
#endif
