// The rows of one head within a tensor, and the lengths of sequences, checked: they address memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

// Rows at a constant stride; null if there is no tensor.
template <class Number>
struct Rows {
    Number *first;
    int64_t stride;
    Number *row(int64_t index) const { return first + index * stride; }
    void shift(int64_t components) { first += components; }
    void skip(int64_t rows) { first += rows * stride; }
    explicit operator bool() const { return first != nullptr; }
};

// Rows given by their indices.
template <class Number>
struct ChosenRows {
    Rows<Number> all;
    const int64_t *numbers;
    Number *row(int64_t index) const { return all.row(numbers[index]); }
    void shift(int64_t components) { all.shift(components); }
    void skip(int64_t rows) { numbers += rows; }
};

// Row indices at an address from Python. Throws if an index is out of range.
inline const int64_t *checked_numbers(int64_t address, int64_t count, int64_t rows, const std::string &name = "row_indices") {
    const int64_t *numbers = reinterpret_cast<const int64_t *>(address), *end = numbers + count;
    const int64_t *wrong = std::find_if(numbers, end, [&](int64_t number) { return number < 0 || number >= rows; });
    if (wrong != end)
        throw std::out_of_range(name + " contain " + std::to_string(*wrong) + "; expected 0 to " + std::to_string(rows - 1));
    return numbers;
}

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
