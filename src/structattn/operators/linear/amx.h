// Products in bfloat16 and int8 by AMX, with the weights of bf16_panels.h and int8_panels.h, whose layout is that of its tiles.
//
// Legend as in panels.h. A tile is 16 rows of 64 bytes: of inputs, 64 bytes of 16 rows; of weights, 16 pairs (bfloat16) or
// fours (int8) of inputs for each of 16 outputs; of sums, 16 rows of 16 outputs. A block is up to 32 rows by one panel: tiles
// 0 to 3 hold its sums, 4 and 5 inputs of its upper and lower rows, 6 and 7 weights of its left and right outputs.
#pragma once

#if !defined(__AVX512F__) || !defined(__linux__)

inline bool has_amx() { return false; }

#else
#define STRUCTATTN_AMX

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "linear/panels.h"

constexpr int64_t tile_rows = 16, tile_bytes = 64;

// Whether the processor has AMX, and Linux lets this process use its registers, for which it has to be asked once.
inline bool has_amx() {
    static const bool found = [] {
        constexpr unsigned needed = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
        constexpr long request_permission = 0x1023, tile_data = 18;
        unsigned a, b, c, d;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & needed) != needed) return false;
        return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    }();
    return found;
}

// Sets the shapes of all tiles, for blocks with so many upper and lower rows.
inline void configure_tiles(int64_t upper, int64_t lower) {
    struct alignas(64) {
        uint8_t palette = 1, others[15] = {};
        uint16_t bytes[16] = {};
        uint8_t rows[16] = {};
    } shapes;
    const int64_t rows[] = {upper, upper, lower, lower, upper, lower, tile_rows, tile_rows};
    for (int i = 0; i < 8; ++i) shapes.rows[i] = uint8_t(rows[i]), shapes.bytes[i] = rows[i] ? tile_bytes : 0;
    asm volatile("ldtilecfg %0" ::"m"(shapes));
}

// Packed weights: panel p begins at ``packed`` + p * ``panel_bytes``. The first values of its sums and its weights are so
// many bytes later; these have ``steps`` tiles of inputs.
struct TilePanels {
    const uint8_t *packed;
    int64_t panel_bytes, firsts, weights, steps;
};

// sums = firsts + x W^T for the rows of a block, with or without lower ones, and one panel. ``x`` has rows of ``stride`` bytes.
template <bool integers, bool with_lower>
inline void multiply_block(const uint8_t *x, int64_t stride, const TilePanels &w, const uint8_t *panel_of, uint8_t *sums) {
    const int64_t panel_row = 2 * tile_bytes, none = 0;  // without a stride all rows of a tile are the same
    const uint8_t *firsts = panel_of + w.firsts, *weights = panel_of + w.weights, *lower = x + tile_rows * stride;
    asm volatile("tileloadd (%0,%1,1), %%tmm0\n\ttileloadd 64(%0,%1,1), %%tmm1" ::"r"(firsts), "r"(none) : "memory");
    if (with_lower)
        asm volatile("tileloadd (%0,%1,1), %%tmm2\n\ttileloadd 64(%0,%1,1), %%tmm3" ::"r"(firsts), "r"(none) : "memory");
    for (int64_t step = 0; step < w.steps; ++step, weights += tile_rows * panel_row) {
        asm volatile(
            "tileloadd (%0,%1,1), %%tmm4\n\ttileloadd (%2,%3,1), %%tmm6\n\ttileloadd 64(%2,%3,1), %%tmm7"
            ::"r"(x + step * tile_bytes), "r"(stride), "r"(weights), "r"(panel_row) : "memory");
        if (integers) asm volatile("tdpbusd %tmm6, %tmm4, %tmm0\n\ttdpbusd %tmm7, %tmm4, %tmm1");
        else asm volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1");
        if (!with_lower) continue;
        asm volatile("tileloadd (%0,%1,1), %%tmm5" ::"r"(lower + step * tile_bytes), "r"(stride) : "memory");
        if (integers) asm volatile("tdpbusd %tmm6, %tmm5, %tmm2\n\ttdpbusd %tmm7, %tmm5, %tmm3");
        else asm volatile("tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
    }
    asm volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilestored %%tmm1, 64(%0,%1,1)" ::"r"(sums), "r"(panel_row) : "memory");
    if (with_lower)
        asm volatile("tilestored %%tmm2, (%0,%1,1)\n\ttilestored %%tmm3, 64(%0,%1,1)"
                     ::"r"(sums + tile_rows * panel_row), "r"(panel_row) : "memory");
}

// Calls body(p, r) for all panels and for blocks of rows, a few panels at a time: the results of a block of rows are written
// while their pages are in use.
template <class Body>
inline void for_each_group(int64_t begin, int64_t end, int64_t first, int64_t last, int64_t block, const Body &body) {
    constexpr int64_t most_panels = 8;
    for (int64_t p = begin; p < end; p += most_panels)
        for (int64_t r = first; r < last; r += block)
            for (int64_t here = p; here < std::min(end, p + most_panels); ++here) body(here, r);
}

// Calls store(p, r, sums) for each row and each panel from ``begin`` to ``end``; the sums are int32 or float.
template <bool integers, class Store>
inline void multiply_tiles(const void *x, int64_t stride, int64_t rows, const TilePanels &w, int64_t begin, int64_t end,
                           const Store &store) {
    constexpr int64_t block = 2 * tile_rows;
    alignas(64) uint8_t sums[block * 2 * tile_bytes];
    const auto run = [&](int64_t first, int64_t last, int64_t lower) {
        for_each_group(begin, end, first, last, block, [&](int64_t p, int64_t r) {
            const uint8_t *from = static_cast<const uint8_t *>(x) + r * stride, *panel_of = w.packed + p * w.panel_bytes;
            if (lower) multiply_block<integers, true>(from, stride, w, panel_of, sums);
            else multiply_block<integers, false>(from, stride, w, panel_of, sums);
            for (int64_t i = 0; i < std::min(block, last - r); ++i) store(p, r + i, sums + i * 2 * tile_bytes);
        });
    };
    const int64_t whole = rows / block * block, rest = rows - whole, upper = std::min(rest, tile_rows);
    if (whole) configure_tiles(tile_rows, tile_rows), run(0, whole, tile_rows);
    if (rest) configure_tiles(upper, rest - upper), run(whole, rows, rest - upper);
    asm volatile("tilerelease");
}

#endif
