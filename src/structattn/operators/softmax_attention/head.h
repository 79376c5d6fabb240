// Softmax attention of one head of one sequence, forward and backward: see DERIVATION.md.
//
// Legend: q, k, v queries, keys, values; T queries, S keys; D, E their components; P the weights, g the cotangent of the
// outputs. Positions past a sequence's length and keys masked by causality are never loaded, so that their values have no
// effect. A key masked by a bias of -inf is processed with weight 0, and a cotangent of its weight of 0, which is equivalent
// as long as all numbers are finite; otherwise such keys are skipped individually.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "common/rows.h"
#include "common/scratch.h"
#include "softmax_attention/dropout.h"
#include "softmax_attention/query_blocks.h"
#include "softmax_attention/rows.h"

namespace softmax {

constexpr int block = 4;  // queries processed together

// Inputs of one head of one sequence.
template <class Number>
struct Head {
    int64_t queries, keys, size, value_size;  // T and S of this sequence, D, E
    bool causal;
    Number scale;
    Dropout dropout;
    uint64_t first_row;         // index of this head's first query within the call
    Rows<const Number> bias;    // added to the scores, T by S
    bool pass_hidden_over;      // there are masked keys and non-finite numbers
    bool known_finite = false;  // all numbers have been found finite

    int64_t width() const { return padded<Number>(size); }
    int64_t value_width() const { return padded<Number>(value_size); }
    int64_t stride() const { return padded<Number>(keys); }
    int64_t seen(int64_t t) const { return causal ? std::min(t + 1, keys) : keys; }
};

// Working memory for one head. Forward uses a part of it; untouched memory costs nothing.
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

// The same for a table whose rows are padded to ``row_unit``.
template <class Number>
void write_padded(const Number *table, int64_t count, int64_t size, Rows<Number> rows) {
    for (int64_t r = 0; r < count; ++r) std::copy_n(table + r * padded_row(size), size, rows.row(r));
}

// Whether all numbers are finite; -inf is accepted if it is allowed.
template <class Number>
bool finite(Rows<const Number> rows, int64_t count, int64_t size, bool minus_infinity = false) {
    typename Format<Number>::Mask others{};
    auto add = [&](Lanes<Number> numbers) {
        if (minus_infinity) numbers = numbers == -__builtin_inff() ? Lanes<Number>{} : numbers;
        others |= numbers * Number(0) != Lanes<Number>{};  // 0, or NaN
    };
    const int64_t whole = size / lanes<Number> * lanes<Number>;
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < whole; c += lanes<Number>) add(load(rows.row(r) + c));
        if (whole < size) add(load_some(rows.row(r) + whole, size - whole));
    }
    bool some = false;
    for (int64_t l = 0; l < lanes<Number>; ++l) some |= others[l] != 0;
    return !some;
}

template <class Number>
struct Inputs {
    Rows<const Number> query, key, value;
};
template <class Number>
struct Outputs {
    Rows<Number> readings, weights;
};
template <class Number>
struct Cotangents {
    Rows<const Number> readings, weights;
};
template <class Number>
struct Gradients {
    Rows<Number> query, key, value, bias;
};

// N queries from ``first`` on, and the number of visible keys of each; the last query has most.
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
        copy_rows(in.query, first, N, head.size, head.scale, tables.query);
        times_columns<N>(tables.query, head.width(), tables.key_columns, head.size, head.stride(), end, tables.weights);
        return weigh_scores(tables);
    }
    // The same, from scores stored in the memory of P.
    Number *weigh_scores(Tables<Number> &tables) const {
        const int64_t stride = head.stride();
        for (int64_t i = 0; i < N; ++i) softmax_row(tables.weights + i * stride, biased(i, tables.weights + i * stride), end);
        if (head.dropout.rate == 0) return tables.weights;
        for (int64_t i = 0; i < N; ++i) head.dropout.draw(head.first_row + first + i, end, tables.factors + i * stride);
        multiply(tables.factors, tables.weights, tables.kept);
        return tables.kept;
    }
    // Adds the bias to the i-th query's scores; returns the number of keys including masked ones, or 0 if all are masked.
    int64_t biased(int64_t i, Number *scores) const {
        if (!head.bias) return seen[i];
        return add_bias(head.bias.row(first + i), seen[i], scores) ? seen[i] : 0;
    }
    template <class Body>
    void for_each_visible_pair(const Body &body) const {
        for (int64_t i = 0; i < N; ++i)
            for (int64_t s = 0; s < seen[i]; ++s)
                if (head.bias.row(first + i)[s] != -__builtin_inff()) body(i, s);
    }
    // products[i] = sum_s weights[i][s] * table[s]
    void gather(const Number *weights, const Number *table, int64_t width, Number *products) const {
        const int64_t stride = head.stride();
        if (!head.pass_hidden_over) return times_rows<N>(weights, stride, seen, table, width, products);
        std::fill_n(products, N * width, Number(0));
        for_each_visible_pair([&](int64_t i, int64_t s) {
            add_row(weights[i * stride + s], table + s * width, width, products + i * width);
        });
    }
    // table[s] += sum_i weights[i][s] * rows[i]
    void scatter(const Number *weights, const Number *rows, int64_t width, Number *table) const {
        const int64_t stride = head.stride();
        if (!head.pass_hidden_over) return add_outer<N>(weights, stride, seen, rows, width, table);
        for_each_visible_pair([&](int64_t i, int64_t s) {
            add_row(weights[i * stride + s], rows + i * width, width, table + s * width);
        });
    }
    void clear_hidden(Number *row_of_pairs) const {
        if (!head.bias) return;
        for (int64_t i = 0; i < N; ++i, row_of_pairs += head.stride()) {
            const Number *bias = head.bias.row(first + i);
            for (int64_t s = 0; s < seen[i]; ++s) row_of_pairs[s] = bias[s] == -__builtin_inff() ? Number(0) : row_of_pairs[s];
        }
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
    // Copies values of pairs of the block's queries and keys to or from a tensor.
    void write_pairs(const Number *pairs, Rows<Number> rows) const {
        for (int64_t i = 0; i < N; ++i) std::copy_n(pairs + i * head.stride(), seen[i], rows.row(first + i));
    }
    void add_pairs(Rows<const Number> rows, Number *pairs) const {
        for (int64_t i = 0; i < N; ++i, pairs += head.stride())
            for (int64_t s = 0; s < seen[i]; ++s) pairs[s] += rows.row(first + i)[s];
    }
    void forward(const Inputs<Number> &in, Tables<Number> &tables, const Outputs<Number> &out) const {
        gather(weigh(in, tables), tables.values, head.value_width(), tables.product);
        write(tables, out);
    }
    // The same for a single query, as in incremental decoding. Keys and values are used in place: copying them to tables
    // would take longer than the arithmetic.
    template <class Source>
    void forward_alone(Rows<const Number> query, Source keys, Source values, Tables<Number> &tables,
                       const Outputs<Number> &out) const {
        copy_rows(query, 0, 1, head.size, head.scale, tables.query);
        times_each_row(tables.query, keys, seen[0], head.size, tables.weights);
        const Number *used = weigh_scores(tables);
        if (head.pass_hidden_over) {
            std::fill_n(tables.product, head.value_width(), Number(0));
            for_each_visible_pair([&](int64_t, int64_t s) {
                add_some(used[s], values.row(s), head.value_size, tables.product);
            });
        } else weigh_each_row(used, values, seen[0], head.value_size, tables.product);
        write(tables, out);
    }
    // Computes the outputs and, if requested, the weights.
    void write(Tables<Number> &tables, const Outputs<Number> &out) const {
        write_rows(tables.product, first, N, head.value_size, Number(1), out.readings);
        if (head.pass_hidden_over) clear_hidden(tables.weights);
        if (out.weights) write_pairs(tables.weights, out.weights);
    }
    void backward(const Inputs<Number> &in, const Cotangents<Number> &cotangents, Tables<Number> &tables,
                  const Gradients<Number> &gradients) const {
        const int64_t stride = head.stride(), width = head.width(), value_width = head.value_width();
        const Number *used = weigh(in, tables);
        copy_rows(cotangents.readings, first, N, head.value_size, Number(1), tables.cotangent);
        scatter(used, tables.cotangent, value_width, tables.grad_values);
        times_columns<N>(tables.cotangent, value_width, tables.value_columns, head.value_size, stride, end,
                         tables.scores);
        if (head.dropout.rate > 0) multiply(tables.factors, tables.scores, tables.scores);
        if (cotangents.weights) add_pairs(cotangents.weights, tables.scores);
        clear_hidden(tables.scores);  // products of numbers that are finite may overflow
        through_softmax(tables.weights, tables.scores);
        clear_hidden(tables.scores);
        scatter(tables.scores, tables.query, width, tables.grad_keys);
        gather(tables.scores, tables.keys, width, tables.product);
        write_rows(tables.product, first, N, head.size, head.scale, gradients.query);
        if (gradients.bias) write_pairs(tables.scores, gradients.bias);
    }
};

// Calls body(block) for all queries, four at a time, then one at a time.
template <class Number, class Body>
void for_each_block(const Head<Number> &head, const Body &body) {
    int64_t first = 0;
    for (; first + block <= head.queries; first += block) body(Block<block, Number>(head, first));
    for (; first < head.queries; ++first) body(Block<1, Number>(head, first));
}

template <class Number>
bool all_finite(const Head<Number> &head, const Inputs<Number> &in) {
    if (head.known_finite) return true;
    return finite(in.query, head.queries, head.size) && finite(in.key, head.keys, head.size) &&
           finite(in.value, head.keys, head.value_size) &&
           (!head.bias || finite(head.bias, head.queries, head.keys, true));
}
template <class Number>
bool all_finite(const Head<Number> &head, const Cotangents<Number> &cotangents) {
    if (head.known_finite) return true;
    return finite(cotangents.readings, head.queries, head.value_size) &&
           (!cotangents.weights || finite(cotangents.weights, head.queries, head.keys));
}

// Whether blocks of queries are faster, and equivalent: they load keys and values that causality masks.
template <class Number>
bool fits_query_blocks(const Head<Number> &head, const Inputs<Number> &in, bool with_weights) {
    return !head.bias && !with_weights && head.queries > block && head.keys > 0 && all_finite(head, in);
}
template <class Number>
BlockSizes<Number> block_sizes(const Head<Number> &head) {
    return {head.queries, head.keys, head.size, head.value_size, head.causal, head.scale, head.dropout, head.first_row};
}
// Calls body(sizes, tables).
template <class Number, class Body>
void with_block_tables(const Head<Number> &head, const Body &body) {
    const BlockSizes<Number> sizes = block_sizes(head);
    Pieces<Number> counted(nullptr);
    BlockTables<Number>(sizes, counted);
    Scratch scratch(counted.bytes());
    Pieces<Number> pieces(scratch.as<Number>());
    body(sizes, BlockTables<Number>(sizes, pieces));
}

template <class Number>
void forward_head(Head<Number> head, const Inputs<Number> &in, const Outputs<Number> &out) {
    if (fits_query_blocks(head, in, bool(out.weights)))
        return with_block_tables(head, [&](const BlockSizes<Number> &sizes, const BlockTables<Number> &tables) {
            for_each_query_block(sizes, tables, [&](const QueryBlock<Number> &some) {
                some.forward(in.query, in.key, in.value, out.readings);
            });
        });
    head.pass_hidden_over = head.bias && !all_finite(head, in);
    Scratch scratch(Tables<Number>::bytes(head));
    Tables<Number> tables(head, scratch.as<Number>());
    if (head.queries == 1) return Block<1, Number>(head, 0).forward_alone(in.query, in.key, in.value, tables, out);
    copy_columns(in.key, head.keys, head.size, tables.key_columns);
    copy_rows(in.value, 0, head.keys, head.value_size, Number(1), tables.values);
    for_each_block(head, [&](const auto &some) { some.forward(in, tables, out); });
}

template <class Number>
void backward_head(Head<Number> head, const Inputs<Number> &in, const Cotangents<Number> &cotangents,
                   const Gradients<Number> &gradients) {
    if (fits_query_blocks(head, in, bool(cotangents.weights)) && all_finite(head, cotangents))
        return with_block_tables(head, [&](const BlockSizes<Number> &sizes, const BlockTables<Number> &tables) {
            std::fill_n(tables.grad_keys, head.keys * padded_row(head.size), Number(0));
            std::fill_n(tables.grad_values, head.keys * padded_row(head.value_size), Number(0));
            for_each_query_block(sizes, tables, [&](const QueryBlock<Number> &some) {
                some.backward(in.query, in.key, in.value, cotangents.readings, gradients.query);
            });
            write_padded(tables.grad_keys, head.keys, head.size, gradients.key);
            write_padded(tables.grad_values, head.keys, head.value_size, gradients.value);
        });
    head.pass_hidden_over = head.bias && !(all_finite(head, in) && all_finite(head, cotangents));
    Scratch scratch(Tables<Number>::bytes(head));
    Tables<Number> tables(head, scratch.as<Number>());
    copy_columns(in.key, head.keys, head.size, tables.key_columns);
    copy_columns(in.value, head.keys, head.value_size, tables.value_columns);
    copy_rows(in.key, 0, head.keys, head.size, Number(1), tables.keys);
    std::fill_n(tables.grad_keys, head.keys * head.width(), Number(0));
    std::fill_n(tables.grad_values, head.keys * head.value_width(), Number(0));
    for_each_block(head, [&](const auto &some) { some.backward(in, cotangents, tables, gradients); });
    write_rows(tables.grad_keys, 0, head.keys, head.size, Number(1), gradients.key);
    write_rows(tables.grad_values, 0, head.keys, head.value_size, Number(1), gradients.value);
}

}  // namespace softmax
