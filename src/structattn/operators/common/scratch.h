// Working memory of a kernel, and huge pages for large tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

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

// Memory that a thread reuses, because fresh pages cost as much as the arithmetic. It is uninitialized and aligned to
// cache lines. Each thread has one per Purpose.
template <class Purpose>
class ScratchFor {
public:
    explicit ScratchFor(int64_t bytes) {
        if (capacity_ >= bytes) return;
        release();
        kept_.reset(new (cache_line) std::byte[bytes]);
        advise_huge_pages(reinterpret_cast<uintptr_t>(kept_.get()), bytes);  // before they are written
        capacity_ = bytes;
    }
    ~ScratchFor() {
        if (capacity_ > most_kept) release();
    }
    ScratchFor(const ScratchFor &) = delete;
    ScratchFor &operator=(const ScratchFor &) = delete;

    template <class Number>
    Number *as() {
        return reinterpret_cast<Number *>(kept_.get());
    }

private:
    static constexpr std::align_val_t cache_line{64};
    static constexpr int64_t most_kept = int64_t(1) << 25;
    struct AlignedDelete {
        void operator()(std::byte *bytes) const { ::operator delete[](bytes, cache_line); }
    };
    static void release() { kept_.reset(), capacity_ = 0; }
    static inline thread_local std::unique_ptr<std::byte[], AlignedDelete> kept_;
    static inline thread_local int64_t capacity_ = 0;
};

using Scratch = ScratchFor<void>;

// Consecutive pieces of one memory, each aligned to cache lines. Without memory, the pieces are only counted.
template <class Number>
class Pieces {
public:
    explicit Pieces(Number *memory) : memory_(memory) {}

    Number *take(int64_t count) {
        Number *piece = memory_ ? memory_ + numbers_ : nullptr;
        numbers_ += (count + 15) / 16 * 16;
        return piece;
    }
    int64_t numbers() const { return numbers_; }
    int64_t bytes() const { return numbers_ * int64_t(sizeof(Number)); }

private:
    Number *memory_;
    int64_t numbers_ = 0;
};
