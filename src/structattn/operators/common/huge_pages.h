// Huge pages for large tables.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// Asks for huge pages, which save faults and translations of addresses. It is a hint; elsewhere nothing is done.
inline void advise_huge_pages([[maybe_unused]] uintptr_t address, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t huge = uintptr_t(1) << 21;
    const uintptr_t begin = (address + huge - 1) / huge * huge, end = (address + bytes) / huge * huge;
    if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#endif
}
