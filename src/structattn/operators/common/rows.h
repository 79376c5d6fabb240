// The rows of one head within a tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>

// Rows at a constant stride; null if there is no tensor.
template <class Number>
struct Rows {
    Number *first;
    int64_t stride;
    Number *row(int64_t index) const { return first + index * stride; }
    explicit operator bool() const { return first != nullptr; }
};

// Rows given by their indices.
template <class Number>
struct ChosenRows {
    Rows<Number> all;
    const int64_t *numbers;
    Number *row(int64_t index) const { return all.row(numbers[index]); }
};

// Row indices at an address from Python. Throws if an index is out of range.
inline const int64_t *checked_numbers(int64_t address, int64_t count, int64_t rows) {
    const int64_t *numbers = reinterpret_cast<const int64_t *>(address);
    const auto is_there = [&](int64_t number) { return number >= 0 && number < rows; };
    if (!std::all_of(numbers, numbers + count, is_there)) throw std::out_of_range("slots name rows that are not there");
    return numbers;
}
