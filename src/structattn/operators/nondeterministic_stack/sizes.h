// The numbers of states and symbols for which the fast kernel is compiled.
#pragma once

#include <cstdint>
#include <type_traits>

constexpr bool has_compiled_form(int64_t Q, int64_t S) { return Q <= 3 && S <= 3; }

// Calls body(q, s) with the sizes as compile-time constants, and returns whether the kernel is compiled for them.
template <class Body>
bool with_sizes(int64_t Q, int64_t S, const Body &body) {
    auto with = [&](auto q) {
        switch (S) {
            case 1: body(q, std::integral_constant<int, 1>{}); return true;
            case 2: body(q, std::integral_constant<int, 2>{}); return true;
            case 3: body(q, std::integral_constant<int, 3>{}); return true;
            default: return false;
        }
    };
    switch (Q) {
        case 1: return with(std::integral_constant<int, 1>{});
        case 2: return with(std::integral_constant<int, 2>{});
        case 3: return with(std::integral_constant<int, 3>{});
        default: return false;
    }
}
