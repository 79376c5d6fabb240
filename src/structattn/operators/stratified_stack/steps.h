// One step of the stratified stack for one sequence, forward and backward. The equations are in DERIVATION.md.
//
// Legend: s strengths of the items, item 0 the lowest; room[i] the strength of a reading or a pop that the items above leave.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stratified {

// Updates the strengths of `count` items to those of count + 1.
inline void advance(const double *s, int64_t count, double push, double pop, double *next) {
    double room = pop;
    for (int64_t i = count - 1; i >= 0; --i) {
        const double left = s[i] - (room < 0 ? 0 : room);
        next[i] = left < 0 ? 0 : left;
        room -= s[i];
    }
    next[count] = push;
}

// Updates the adjoint of the strengths of count + 1 items in place to that of the `count` items before; the last entry is
// that of the push. Returns the gradient of the pop; of_room is working memory for count numbers.
inline double retreat(const double *s, int64_t count, double pop, double *s_, double *of_room) {
    double room = pop, pop_ = 0, below = 0;
    for (int64_t i = count - 1; i >= 0; --i) {
        const bool some_left = s[i] - (room < 0 ? 0 : room) > 0;
        if (!some_left) s_[i] = 0;
        of_room[i] = room > 0 ? -s_[i] : 0;
        pop_ += of_room[i];
        room -= s[i];
    }
    for (int64_t i = 0; i < count; ++i) s_[i] -= below, below += of_room[i];
    return pop_;
}

// r = Σ share[i] v[i], where share[i] = min(s[i], max(0, room)); vector i has m numbers.
template <class Number>
void read(const double *s, int64_t count, const Number *values, int64_t m, double *reading) {
    double room = 1;
    std::fill_n(reading, m, 0.0);
    for (int64_t i = count - 1; i >= 0; --i) {
        const double left = room < 0 ? 0 : room, share = s[i] >= left ? left : s[i];  // a NaN remains
        for (int64_t k = 0; k < m; ++k) reading[k] += share * values[i * m + k];
        room -= s[i];
    }
}

// Adds the gradients of a reading to those of the strengths and of the vectors; of_room is working memory for count numbers.
template <class Number>
void read_backward(const double *s, int64_t count, const Number *values, int64_t m, const double *reading_, double *s_,
                   double *values_, double *of_room) {
    double room = 1, below = 0;
    for (int64_t i = count - 1; i >= 0; --i) {
        const double left = room < 0 ? 0 : room;
        const bool takes_all = !(s[i] >= left);
        const double share = takes_all ? s[i] : left;
        double share_ = 0;
        for (int64_t k = 0; k < m; ++k) {
            share_ += reading_[k] * values[i * m + k];
            values_[i * m + k] += share * reading_[k];
        }
        if (takes_all) s_[i] += share_;
        of_room[i] = !takes_all && room > 0 ? share_ : 0;
        room -= s[i];
    }
    for (int64_t i = 0; i < count; ++i) s_[i] -= below, below += of_room[i];
}

}  // namespace stratified
