// Which weights of attention are dropped: a hash of (seed, query, key), so that the backward pass drops the same ones.
#pragma once

#include <cstdint>

#include "common/small_matrix.h"

namespace softmax {

struct Dropout {
    uint64_t seed;
    double rate;

    static uint64_t mixed(uint64_t x) {  // splitmix64
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    uint64_t key(uint64_t row) const { return mixed(seed + row * 0x9e3779b97f4a7c15u); }
    uint32_t limit() const { return uint32_t(rate * 4294967296.0); }
    // The hash for the s-th key and a query's ``key``, of which ``first`` and ``second`` are the halves; of integers or
    // vectors. A weight is dropped if it is below ``limit``.
    template <class Integer>
    static Integer hash(Integer first, Integer second, uint32_t s) {
        Integer x = first ^ (s * 0x9e3779b9u);
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = ((x ^ (x >> 15)) + second) * 0x846ca68bu;
        return x ^ (x >> 16);
    }
    // factors[s] = 0 or 1 / (1 - rate), for the row-th query of the call.
    template <class Number>
    void draw(uint64_t row, int64_t count, Number *factors) const {
        const uint64_t key = this->key(row);
        const uint32_t first = uint32_t(key), second = uint32_t(key >> 32), limit = this->limit();
        const Number kept = Number(1 / (1 - rate));
        for (int64_t s = 0; s < count; ++s) factors[s] = hash(first, second, uint32_t(s)) < limit ? Number(0) : kept;
    }
};

// The same for a vector of queries.
template <class Number>
class DropoutLanes {
public:
    DropoutLanes(const Dropout &dropout, uint64_t first_row) : kept_(Number(1 / (1 - dropout.rate))), limit_(dropout.limit()) {
        for (int64_t l = 0; l < wide<Number>; ++l) {
            const uint64_t key = dropout.key(first_row + uint64_t(l));
            first_[l] = uint32_t(key), second_[l] = uint32_t(key >> 32);
        }
    }
    // For the s-th key.
    Wide<Number> factors(uint32_t s) const {
        const Wide<Number> zero{};
        return __builtin_convertvector(Dropout::hash(first_, second_, s) < limit_, MaskOf<Number>) ? zero : zero + kept_;
    }

private:
    WideIntegers<Number, uint32_t> first_, second_;
    Number kept_;
    uint32_t limit_;
};

}  // namespace softmax
