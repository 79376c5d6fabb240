// The banded product of hard-coded attention, forward and backward: see DERIVATION.md.
//
// Legend: T queries, S keys of one head of one sequence; d components of a value. Query i gives y_i = sum_k w_ik
// v_{s_i + k}: w its weights, k from 0 to K - 1, s_i the first key of its band. Keys past a sequence's length and keys
// of weight zero are never loaded, so that their values have no effect.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/kernels.h"
#include "common/rows.h"

namespace {

// N registers' worth of neighbouring components.
template <int N, int bytes, class Number>
struct Piece {
    typedef Number Register __attribute__((vector_size(bytes)));
    static constexpr int64_t size = N * int64_t(bytes / sizeof(Number));
    Register registers[N] = {};

    void load(const Number *from) { std::memcpy(registers, from, sizeof registers); }
    void store(Number *to) const { std::memcpy(to, registers, sizeof registers); }
    void add(Number factor, const Piece &other) {
        for (int n = 0; n < N; ++n) registers[n] += factor * other.registers[n];
    }
};
// The remaining components, fewer than fill a register. They are processed in a register too: whether a product is
// rounded before it is added would otherwise depend on the compiler.
template <class Number>
struct LastPiece : Piece<1, 16, Number> {
    int64_t count;

    explicit LastPiece(int64_t count) : count(count) {}
    void load(const Number *from) { std::memcpy(this->registers, from, count * sizeof(Number)); }
    void store(Number *to) const { std::memcpy(to, this->registers, count * sizeof(Number)); }
};

// The visible keys of a query: ``weights[k]`` is the weight of key ``first + k``, k from 0 to ``count`` - 1, none of them zero.
template <class Number>
struct Keys {
    const Number *weights;
    int64_t first, count;
};

// The weights of one head of one sequence, and the numbers of its queries and keys.
template <class Number>
struct Band {
    const Number *weights;
    const int64_t *starts;
    int64_t taps, row_stride, queries, keys, size;

    // Weights decrease on both sides of the centre, so zeros are at the ends.
    Keys<Number> seen(int64_t i) const {
        const Number *row = weights + i * row_stride;
        const int64_t start = std::clamp(starts[i], -taps, keys);  // a start further away has no visible key either
        int64_t begin = std::max<int64_t>(0, -start), end = std::min(taps, keys - start);
        while (begin < end && row[begin] == 0) ++begin;
        while (begin < end && row[end - 1] == 0) --end;
        if (begin >= end) return {row, 0, 0};
        return {row + begin, start + begin, end - begin};
    }
    // Calls body(piece, c) for pieces that cover all components; c is the first of each.
    template <class Body>
    void for_each_piece(const Body &body) const {
        int64_t c = 0;
        const auto cover = [&](auto piece) {
            for (; c + piece.size <= size; c += piece.size) body(piece, c);
        };
        cover(Piece<4, 64, Number>());
        cover(Piece<1, 64, Number>());
        cover(Piece<1, 32, Number>());
        cover(Piece<1, 16, Number>());
        if (c < size) body(LastPiece<Number>(size - c), c);
    }
};

// One head of one sequence: input and output vectors; queries are processed in order.
template <class Number, class Source = Rows<const Number>>
struct Head {
    Band<Number> band;
    Source from;
    Rows<Number> to;
    int64_t written = 0;  // initialized rows of ``to``

    // Writes zeros to the uninitialized rows before ``end``.
    void fill(int64_t end) {
        for (; written < end; ++written) std::fill_n(to.row(written), band.size, Number(0));
    }
    // The output of query i.
    void forward(int64_t i) {
        const Keys<Number> some = band.seen(i);
        band.for_each_piece([&](auto sum, int64_t c) {
            auto value = sum;
            for (int64_t k = 0; k < some.count; ++k) {
                value.load(from.row(some.first + k) + c);
                sum.add(some.weights[k], value);
            }
            sum.store(to.row(i) + c);
        });
        written = i + 1;
    }
    // Adds the contribution of the cotangent of query i to the gradients of the values.
    void backward(int64_t i) {
        const Keys<Number> some = band.seen(i);
        fill(some.first + some.count);
        band.for_each_piece([&](auto cotangent, int64_t c) {
            auto sum = cotangent;
            cotangent.load(from.row(i) + c);
            Number *row = to.row(some.first) + c;
            for (int64_t k = 0; k < some.count; ++k, row += to.stride) {
                sum.load(row);
                sum.add(some.weights[k], cotangent);
                sum.store(row);
            }
        });
    }
};

// A tensor (B, H, time, size): its address and the strides of the first three axes; the last is contiguous.
using View = std::array<int64_t, 4>;

// Arguments of a call besides its two tensors of vectors; tables are contiguous. (The name is unique because nanobind
// identifies types by name, even in anonymous namespaces.)
struct GaussianCall {
    int64_t batch, heads, queries, keys, size, taps;
    int64_t tables, rows_of_table;    // 1 or B, and 1 or T
    int64_t weights, starts;          // addresses of (tables, H, rows, K) and (tables, H, T)
    Lengths lengths, memory_lengths;

    template <class Number>
    Band<Number> band(int64_t index) const {
        const int64_t b = index / heads, table = tables == 1 ? index % heads : index;
        return {reinterpret_cast<const Number *>(weights) + table * rows_of_table * taps,
                reinterpret_cast<const int64_t *>(starts) + table * queries,
                taps,
                rows_of_table == 1 ? 0 : taps,
                lengths[b],
                memory_lengths[b],
                size};
    }
    template <class Number>
    Rows<Number> rows(const View &view, int64_t index) const {
        Number *first = reinterpret_cast<Number *>(view[0]);
        return {first + index / heads * view[1] + index % heads * view[2], view[3]};
    }
    // Threads pay off only if the total work takes longer than creating a thread, some 20 µs.
    int useful_threads(int threads) const { return batch * heads * queries * taps * size < 1000000 ? 1 : threads; }
};

// Calls body(head, i) for every head and its queries in order, then writes zeros to the remaining rows. Heads whose rows
// are adjacent are interleaved query by query, unless there are fewer sequences than threads. The order of the sums of a
// head is the same in both cases.
template <class Number, class Body>
void for_each_query(const GaussianCall &call, const View &from, const View &to, int64_t made, int threads,
                    const Body &body) {
    const bool neighbours = from[2] < from[3];
    const int64_t together = neighbours && call.batch >= threads ? call.heads : 1;
    const int64_t groups = call.batch * call.heads / std::max<int64_t>(together, 1);
    for_each_sequence(groups, call.useful_threads(threads), [&](int64_t group) {
        std::vector<Head<Number>> heads;
        for (int64_t n = group * together; n < (group + 1) * together; ++n)
            heads.push_back({call.band<Number>(n), call.rows<const Number>(from, n), call.rows<Number>(to, n)});
        for (int64_t i = 0; i < call.queries; ++i)
            for (auto &head : heads)
                if (i < head.band.queries) body(head, i);
        for (auto &head : heads) head.fill(made);
    });
}

template <class Number>
void forward(const GaussianCall &call, const View &values, const View &outputs, int threads) {
    for_each_query<Number>(call, values, outputs, call.queries, threads,
                           [](Head<Number> &head, int64_t i) { head.forward(i); });
}

// One query for each sequence, whose values are rows of a shared cache; the batch axis of the cache's view is
// ignored. ``slots`` is the address of the row indices, (B, S), which are below ``stored``.
template <class Number>
void forward_stored(const GaussianCall &call, const View &values, const View &outputs, int64_t slots, int64_t stored,
                    int threads) {
    const int64_t *numbers = checked_numbers(slots, call.batch * call.keys, stored);
    for_each_sequence(call.batch, call.useful_threads(threads), [&](int64_t b) {
        for (int64_t n = b * call.heads; n < (b + 1) * call.heads; ++n) {
            const ChosenRows<const Number> from{call.rows<const Number>(values, n), numbers + b * call.keys};
            Head<Number, ChosenRows<const Number>>{call.band<Number>(n), from, call.rows<Number>(outputs, n)}.forward(0);
        }
    });
}

template <class Number>
void backward(const GaussianCall &call, const View &cotangents, const View &gradients, int threads) {
    for_each_query<Number>(call, cotangents, gradients, call.keys, threads,
                           [](Head<Number> &head, int64_t i) { head.backward(i); });
}

}  // namespace

void register_gaussian_attention(nanobind::module_ &module) {
    namespace nb = nanobind;
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<GaussianCall>(module, "GaussianAttentionCall")
        .def("__init__", [](GaussianCall *call, std::array<int64_t, 8> sizes, std::array<int64_t, 4> addresses) {
            const auto [batch, heads, queries, keys, size, taps, tables, rows] = sizes;
            const auto [weights, starts, lengths, memory_lengths] = addresses;
            new (call) GaussianCall{batch, heads, queries, keys, size, taps, tables, rows, weights, starts,
                                    {uintptr_t(lengths), batch, queries},
                                    {uintptr_t(memory_lengths), batch, keys, "memory_lengths"}};
        });
    module.def("gaussian_attention_forward_float32", &forward<float>, Unlocked());
    module.def("gaussian_attention_forward_float64", &forward<double>, Unlocked());
    module.def("gaussian_attention_stored_float32", &forward_stored<float>, Unlocked());
    module.def("gaussian_attention_stored_float64", &forward_stored<double>, Unlocked());
    module.def("gaussian_attention_backward_float32", &backward<float>, Unlocked());
    module.def("gaussian_attention_backward_float64", &backward<double>, Unlocked());
}
