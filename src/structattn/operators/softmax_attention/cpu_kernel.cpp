// Softmax attention, forward and backward, for the sizes of small models: see DERIVATION.md.
//
// Legend: q, k, v queries, keys, values; T queries, S keys of one head of one sequence; D, E their components; P the
// weights, g the cotangent of the outputs. Positions past a sequence's length and keys that a query may not see are
// never read, so that nothing they hold can matter.
#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>

#include "common/kernels.h"
#include "common/scratch.h"
#include "softmax_attention/rows.h"

namespace {

constexpr int block = 4;  // queries worked on together

// Which weights are dropped: a hash of (seed, query, key), so that the backward pass finds the same ones.
struct Dropout {
    uint64_t seed;
    double rate;

    static uint64_t mixed(uint64_t x) {  // splitmix64
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    // factors[s] = 0 or 1 / (1 - rate), for the row-th query of the call.
    template <class Number>
    void draw(uint64_t row, int64_t count, Number *factors) const {
        const uint64_t key = mixed(seed + row * 0x9e3779b97f4a7c15u);
        const uint32_t first = uint32_t(key), second = uint32_t(key >> 32);
        const uint32_t limit = uint32_t(rate * 4294967296.0);
        const Number kept = Number(1 / (1 - rate));
        for (int64_t s = 0; s < count; ++s) {
            uint32_t x = first ^ (uint32_t(s) * 0x9e3779b9u);
            x = (x ^ (x >> 16)) * 0x7feb352du;
            x = ((x ^ (x >> 15)) + second) * 0x846ca68bu;
            x ^= x >> 16;
            factors[s] = x < limit ? Number(0) : kept;
        }
    }
};

// Everything about one head of one sequence.
template <class Number>
struct Head {
    int64_t queries, keys, size, value_size;  // T and S of this sequence, D, E
    bool causal;
    Number scale;
    Dropout dropout;
    uint64_t first_row;  // the number of this head's first query within the call

    int64_t width() const { return padded<Number>(size); }
    int64_t value_width() const { return padded<Number>(value_size); }
    int64_t stride() const { return padded<Number>(keys); }
    int64_t seen(int64_t t) const { return causal ? std::min(t + 1, keys) : keys; }
};

// The rows of one head within a tensor.
template <class Number>
struct Rows {
    Number *first;
    int64_t stride;
    Number *row(int64_t index) const { return first + index * stride; }
};

// Working memory for one head. Forward uses a part of it; what is not touched costs nothing.
template <class Number>
struct Tables {
    Number *key_columns, *value_columns, *keys, *values, *grad_keys, *grad_values;
    Number *weights, *factors, *kept, *scores, *query, *cotangent, *product;
    int64_t numbers = 0;

    Tables(const Head<Number> &head, Number *memory) {
        const int64_t row = block * head.stride(), widest = std::max(head.width(), head.value_width());
        auto take = [&](int64_t count) {
            Number *piece = memory ? memory + numbers : nullptr;
            numbers += (count + 15) / 16 * 16;
            return piece;
        };
        key_columns = take(head.size * head.stride()), value_columns = take(head.value_size * head.stride());
        keys = take(head.keys * head.width()), values = take(head.keys * head.value_width());
        grad_keys = take(head.keys * head.width()), grad_values = take(head.keys * head.value_width());
        weights = take(row), factors = take(row), kept = take(row), scores = take(row);
        query = take(block * widest), cotangent = take(block * widest), product = take(block * widest);
    }
    static int64_t bytes(const Head<Number> &head) { return Tables(head, nullptr).numbers * sizeof(Number); }
};

// table[r][c] = factor * rows[r][c], and zeros in the columns that fill up the last lanes.
template <class Number>
void copy_rows(Rows<const Number> rows, int64_t first, int64_t count, int64_t size, Number factor, Number *table) {
    const int64_t width = padded<Number>(size);
    for (int64_t r = 0; r < count; ++r, table += width) {
        for (int64_t c = 0; c < size; ++c) table[c] = factor * rows.row(first + r)[c];
        std::fill(table + size, table + width, Number(0));
    }
}

template <class Number>
void copy_columns(Rows<const Number> rows, int64_t count, int64_t size, Number *columns) {
    const int64_t stride = padded<Number>(count);
    for (int64_t c = 0; c < size; ++c) {
        for (int64_t r = 0; r < count; ++r) columns[c * stride + r] = rows.row(r)[c];
        std::fill(columns + c * stride + count, columns + (c + 1) * stride, Number(0));
    }
}

template <class Number>
void write_rows(const Number *table, int64_t first, int64_t count, int64_t size, Number factor, Rows<Number> rows) {
    const int64_t width = padded<Number>(size);
    for (int64_t r = 0; r < count; ++r)
        for (int64_t c = 0; c < size; ++c) rows.row(first + r)[c] = factor * table[r * width + c];
}

template <class Number>
struct Inputs {
    Rows<const Number> query, key, value;
};

// N queries from ``first`` on, and how many keys each of them sees; the last one sees most.
template <int N, class Number>
struct Block {
    const Head<Number> &head;
    int64_t first, seen[N], end;

    Block(const Head<Number> &head, int64_t first) : head(head), first(first) {
        for (int64_t i = 0; i < N; ++i) seen[i] = head.seen(first + i);
        end = padded<Number>(seen[N - 1]);
    }
    // P, and P with some weights dropped, which is returned.
    Number *weigh(const Inputs<Number> &in, Tables<Number> &tables) const {
        const int64_t stride = head.stride();
        copy_rows(in.query, first, N, head.size, head.scale, tables.query);
        times_columns<N>(tables.query, head.width(), tables.key_columns, head.size, stride, end, tables.weights);
        for (int64_t i = 0; i < N; ++i) softmax_row(tables.weights + i * stride, seen[i], end);
        if (head.dropout.rate == 0) return tables.weights;
        for (int64_t i = 0; i < N; ++i) head.dropout.draw(head.first_row + first + i, end, tables.factors + i * stride);
        multiply(tables.factors, tables.weights, tables.kept);
        return tables.kept;
    }
    void multiply(const Number *factors, const Number *from, Number *to) const {
        for (int64_t i = 0; i < N; ++i)
            for (int64_t k = i * head.stride(); k < i * head.stride() + end; ++k) to[k] = from[k] * factors[k];
    }
    // From the cotangent of P to that of the scores: P * (cotangent - sum_s P * cotangent).
    void through_softmax(const Number *weights, Number *cotangent) const {
        for (int64_t i = 0; i < N; ++i, weights += head.stride(), cotangent += head.stride()) {
            std::fill(cotangent + seen[i], cotangent + end, Number(0));
            Lanes<Number> sums{};
            for (int64_t s = 0; s < end; s += lanes<Number>) sums += load(weights + s) * load(cotangent + s);
            const Number sum = sum_lanes<Number>(sums);
            for (int64_t s = 0; s < end; ++s) cotangent[s] = weights[s] * (cotangent[s] - sum);
        }
    }
    void forward(const Inputs<Number> &in, Tables<Number> &tables, Rows<Number> outputs) const {
        const Number *used = weigh(in, tables);
        times_rows<N>(used, head.stride(), seen, tables.values, head.value_width(), tables.product);
        write_rows(tables.product, first, N, head.value_size, Number(1), outputs);
    }
    void backward(const Inputs<Number> &in, Rows<const Number> cotangents, Tables<Number> &tables,
                  Rows<Number> grad_query) const {
        const int64_t stride = head.stride(), width = head.width(), value_width = head.value_width();
        const Number *used = weigh(in, tables);
        copy_rows(cotangents, first, N, head.value_size, Number(1), tables.cotangent);
        add_outer<N>(used, stride, seen, tables.cotangent, value_width, tables.grad_values);
        times_columns<N>(tables.cotangent, value_width, tables.value_columns, head.value_size, stride, end,
                         tables.scores);
        if (head.dropout.rate > 0) multiply(tables.factors, tables.scores, tables.scores);
        through_softmax(tables.weights, tables.scores);
        add_outer<N>(tables.scores, stride, seen, tables.query, width, tables.grad_keys);
        times_rows<N>(tables.scores, stride, seen, tables.keys, width, tables.product);
        write_rows(tables.product, first, N, head.size, head.scale, grad_query);
    }
};

// Calls body(block) for all queries, four at a time and the rest singly.
template <class Number, class Body>
void for_each_block(const Head<Number> &head, const Body &body) {
    int64_t first = 0;
    for (; first + block <= head.queries; first += block) body(Block<block, Number>(head, first));
    for (; first < head.queries; ++first) body(Block<1, Number>(head, first));
}

template <class Number>
void forward_head(const Head<Number> &head, const Inputs<Number> &in, Rows<Number> outputs) {
    Scratch scratch(Tables<Number>::bytes(head));
    Tables<Number> tables(head, scratch.as<Number>());
    copy_columns(in.key, head.keys, head.size, tables.key_columns);
    copy_rows(in.value, 0, head.keys, head.value_size, Number(1), tables.values);
    for_each_block(head, [&](const auto &some) { some.forward(in, tables, outputs); });
}

template <class Number>
void backward_head(const Head<Number> &head, const Inputs<Number> &in, Rows<const Number> cotangents,
                   Rows<Number> grad_query, Rows<Number> grad_key, Rows<Number> grad_value) {
    Scratch scratch(Tables<Number>::bytes(head));
    Tables<Number> tables(head, scratch.as<Number>());
    copy_columns(in.key, head.keys, head.size, tables.key_columns);
    copy_columns(in.value, head.keys, head.value_size, tables.value_columns);
    copy_rows(in.key, 0, head.keys, head.size, Number(1), tables.keys);
    std::fill_n(tables.grad_keys, head.keys * head.width(), Number(0));
    std::fill_n(tables.grad_values, head.keys * head.value_width(), Number(0));
    for_each_block(head, [&](const auto &some) { some.backward(in, cotangents, tables, grad_query); });
    write_rows(tables.grad_keys, 0, head.keys, head.size, Number(1), grad_key);
    write_rows(tables.grad_values, 0, head.keys, head.value_size, Number(1), grad_value);
}

// A tensor (B, H, time, size): its address and the strides of the first three axes; the last is contiguous.
using View = std::array<int64_t, 4>;

// What a call is about besides its tensors.
struct Call {
    int64_t batch, heads, queries, keys, size, value_size;
    bool causal;
    double scale, rate;
    int64_t lengths, seed;  // addresses; 0 where all positions count, or nothing is dropped

    template <class Number>
    Head<Number> head(int64_t index) const {
        const int64_t *given = reinterpret_cast<const int64_t *>(lengths), b = index / heads;
        const int64_t t = given ? std::clamp<int64_t>(given[b], 0, queries) : queries;
        const int64_t s = given ? std::clamp<int64_t>(given[b], 0, keys) : keys;
        const Dropout dropout{seed ? *reinterpret_cast<const uint64_t *>(seed) : 0, rate};
        return {t, s, size, value_size, causal, Number(scale), dropout, uint64_t(index * queries)};
    }
    template <class Number>
    Rows<Number> rows(const View &view, int64_t index) const {
        Number *first = reinterpret_cast<Number *>(view[0]);
        return {first + index / heads * view[1] + index % heads * view[2], view[3]};
    }
    template <class Number>
    Inputs<Number> inputs(const std::array<View, 3> &views, int64_t index) const {
        return {rows<const Number>(views[0], index), rows<const Number>(views[1], index),
                rows<const Number>(views[2], index)};
    }
    // Threads pay only where the work of all outlasts the making of a thread, some 20 µs.
    int useful_threads(int threads) const {
        return batch * heads * queries * keys * (size + value_size) < 1000000 ? 1 : threads;
    }
};

// Zeros from row ``first`` on.
template <class Number>
void clear(Rows<Number> rows, int64_t first, int64_t count, int64_t size) {
    for (; first < count; ++first) std::fill_n(rows.row(first), size, Number(0));
}

template <class Number>
void forward(const Call &call, const std::array<View, 3> &inputs, const View &outputs, int threads) {
    for_each_sequence(call.batch * call.heads, call.useful_threads(threads), [&](int64_t i) {
        const Head<Number> head = call.head<Number>(i);
        const Rows<Number> output = call.rows<Number>(outputs, i);
        forward_head(head, call.inputs<Number>(inputs, i), output);
        clear(output, head.queries, call.queries, call.value_size);
    });
}

template <class Number>
void backward(const Call &call, const std::array<View, 3> &inputs, const View &cotangents,
              const std::array<View, 3> &gradients, int threads) {
    for_each_sequence(call.batch * call.heads, call.useful_threads(threads), [&](int64_t i) {
        const Head<Number> head = call.head<Number>(i);
        const Rows<Number> grad_query = call.rows<Number>(gradients[0], i);
        const Rows<Number> grad_key = call.rows<Number>(gradients[1], i);
        const Rows<Number> grad_value = call.rows<Number>(gradients[2], i);
        backward_head(head, call.inputs<Number>(inputs, i), call.rows<const Number>(cotangents, i), grad_query,
                      grad_key, grad_value);
        clear(grad_query, head.queries, call.queries, call.size);
        clear(grad_key, head.keys, call.keys, call.size);
        clear(grad_value, head.keys, call.keys, call.value_size);
    });
}

}  // namespace

void register_softmax_attention(nanobind::module_ &module) {
    namespace nb = nanobind;
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;
    nb::class_<Call>(module, "SoftmaxAttentionCall")
        .def("__init__", [](Call *call, std::array<int64_t, 6> sizes, bool causal, double scale, double rate,
                            int64_t lengths, int64_t seed) {
            const auto [batch, heads, queries, keys, size, value_size] = sizes;
            new (call) Call{batch, heads, queries, keys, size, value_size, causal, scale, rate, lengths, seed};
        });
    module.def("softmax_attention_forward_float32", &forward<float>, Unlocked());
    module.def("softmax_attention_forward_float64", &forward<double>, Unlocked());
    module.def("softmax_attention_backward_float32", &backward<float>, Unlocked());
    module.def("softmax_attention_backward_float64", &backward<double>, Unlocked());
}
