// The lengths of a batch of sequences, checked: they address memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

class Lengths {
public:
    // ``count`` lengths at an address from Python; without one (0), all sequences have length ``most``. Throws if a length
    // is not from 0 to ``most``. Callers check nothing: a compiled function could not.
    Lengths(uintptr_t address, int64_t count, int64_t most, const std::string &name = "lengths")
        : given_(reinterpret_cast<const int64_t *>(address)), most_(most) {
        if (!given_ || count == 0) return;
        const auto [low, high] = std::minmax_element(given_, given_ + count);
        if (*low < 0 || *high > most)
            throw std::invalid_argument(name + " range from " + std::to_string(*low) + " to " + std::to_string(*high) +
                                        "; expected 0 to " + std::to_string(most));
    }
    int64_t operator[](int64_t b) const { return given_ ? given_[b] : most_; }

private:
    const int64_t *given_;
    int64_t most_;
};
