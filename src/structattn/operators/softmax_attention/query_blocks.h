// Softmax attention of one head whose numbers are all finite, without a bias: the lanes of vectors hold queries, so that
// maxima and sums over keys need no exchange between lanes, and the rest is products of small matrices.
//
// Legend: as in head.h. A block has U = ``row_unit`` queries, of which the last one may have fewer. A table by key has a row
// of U columns for each key, one by component a row of U columns for each component.
#pragma once

#include <type_traits>

#include "common/rows.h"
#include "common/scratch.h"
#include "common/small_matrix.h"
#include "softmax_attention/dropout.h"
#include "softmax_attention/rows.h"

namespace softmax {

template <class Number>
struct BlockSizes {
    int64_t queries, keys, size, value_size;  // T, S, D, E
    bool causal;
    Number scale;
    Dropout dropout;
    uint64_t first_row;  // of the dropout
};

template <class Number>
struct BlockTables {
    Number *queries, *cotangents;          // by component
    Number *query_rows, *cotangent_rows;   // U rows
    Number *weights, *kept, *scores;       // by key; weights before and after dropout
    Number *product;                       // by component
    Number *grad_keys, *grad_values;       // S rows

    BlockTables(const BlockSizes<Number> &sizes, Pieces<Number> &pieces) {
        const int64_t components = std::max(sizes.size, sizes.value_size), by_key = sizes.keys * row_unit;
        queries = pieces.take(components * row_unit), cotangents = pieces.take(components * row_unit);
        query_rows = pieces.take(row_unit * padded_row(sizes.size));
        cotangent_rows = pieces.take(row_unit * padded_row(sizes.value_size));
        weights = pieces.take(by_key), kept = pieces.take(by_key), scores = pieces.take(by_key);
        product = pieces.take(components * row_unit);
        grad_keys = pieces.take(sizes.keys * padded_row(sizes.size));
        grad_values = pieces.take(sizes.keys * padded_row(sizes.value_size));
    }
};

template <class Number>
struct QueryBlock {
    static constexpr int64_t vectors = row_unit / wide<Number>;
    using Vector = Wide<Number>;

    const BlockSizes<Number> &sizes;
    const BlockTables<Number> &tables;
    int64_t first, count, seen;  // queries, and the keys that one of them sees

    QueryBlock(const BlockSizes<Number> &sizes, const BlockTables<Number> &tables, int64_t first)
        : sizes(sizes), tables(tables), first(first), count(std::min(row_unit, sizes.queries - first)),
          seen(sizes.causal ? std::min(first + count, sizes.keys) : sizes.keys) {}

    void forward(Rows<const Number> query, Rows<const Number> key, Rows<const Number> value, Rows<Number> out) const {
        weigh(query, key);
        for (int64_t v = 0; v < vectors; ++v) {
            normalize(v);  // before the product, which might overflow
            if (dropping()) drop(v);
        }
        multiply<Number>({value.first, 1, value.stride}, sizes.value_size, seen, used(), row_unit, {}, tables.product);
        write_product(sizes.value_size, out);
    }
    // Adds to the tables of gradients of keys and values.
    void backward(Rows<const Number> query, Rows<const Number> key, Rows<const Number> value, Rows<const Number> cotangent,
                  Rows<Number> grad_query) const {
        weigh(query, key);
        columns_of(cotangent, sizes.value_size, 1, tables.cotangents, tables.cotangent_rows);
        multiply<Number>({value.first, value.stride, 1}, seen, sizes.value_size, tables.cotangents, row_unit, {},
                         tables.scores);
        for (int64_t v = 0; v < vectors; ++v) {
            normalize(v);
            hide(tables.scores, v, 0);  // products of numbers that are finite may overflow
            if (dropping()) drop(v, tables.scores);
            through_softmax(v);
            hide(tables.scores, v, 0);
        }
        add_product(used(), tables.cotangent_rows, sizes.value_size, tables.grad_values);
        add_product(tables.scores, tables.query_rows, sizes.size, tables.grad_keys);
        multiply<Number>({key.first, 1, key.stride}, sizes.size, seen, tables.scores, row_unit, {}, tables.product);
        scale_product();
        write_product(sizes.size, grad_query);
    }

private:
    bool dropping() const { return sizes.dropout.rate > 0; }
    const Number *used() const { return dropping() ? tables.kept : tables.weights; }
    static Vector at(const Number *table, int64_t row, int64_t v) {
        return load_wide(table + row * row_unit + v * wide<Number>);
    }
    static void at(Number *table, int64_t row, int64_t v, Vector vector) {
        store_wide<Number>(table + row * row_unit + v * wide<Number>, vector);
    }
    // Copies the block's rows times a factor to a table of rows and to one by component; zeros where there are fewer than U.
    void columns_of(Rows<const Number> rows, int64_t size, Number factor, Number *columns, Number *copied) const {
        const int64_t stride = padded_row(size);
        std::fill_n(columns, size * row_unit, Number(0));
        std::fill_n(copied, row_unit * stride, Number(0));
        for (int64_t i = 0; i < count; ++i)
            for (int64_t c = 0; c < size; ++c)
                columns[c * row_unit + i] = copied[i * stride + c] = factor * rows.row(first + i)[c];
    }
    // The scores, in the table of weights.
    void weigh(Rows<const Number> query, Rows<const Number> key) const {
        columns_of(query, sizes.size, sizes.scale, tables.queries, tables.query_rows);
        multiply<Number>({key.first, key.stride, 1}, seen, sizes.size, tables.queries, row_unit, {}, tables.weights);
    }
    // Replaces the numbers of keys after the query.
    void hide(Number *by_key, int64_t v, Number by) const {
        const Vector hidden = Vector{} + by;
        Vector lane;
        for (int64_t l = 0; l < wide<Number>; ++l) lane[l] = Number(first + v * wide<Number> + l);
        const int64_t visible = sizes.causal ? std::min(first, seen) : seen;  // to all queries
        for (int64_t s = visible; s < seen; ++s) at(by_key, s, v, lane < Number(s) ? hidden : at(by_key, s, v));
    }
    // Replaces scores by weights: the softmax over the keys, and 0 for those after the query.
    void normalize(int64_t v) const {
        Vector most = Vector{} - __builtin_inff(), sum{};
        hide(tables.weights, v, -__builtin_inff());
        for (int64_t s = 0; s < seen; ++s) {
            const Vector score = at(tables.weights, s, v);
            most = score > most ? score : most;
        }
        for (int64_t s = 0; s < seen; ++s) {
            const Vector power = exp_of_negative<Number>(at(tables.weights, s, v) - most);
            at(tables.weights, s, v, power);
            sum += power;
        }
        const Vector inverse = 1 / sum;
        for (int64_t s = 0; s < seen; ++s) at(tables.weights, s, v, at(tables.weights, s, v) * inverse);
    }
    // kept = weights with some dropped; the same is applied to ``cotangent`` if given.
    void drop(int64_t v, Number *cotangent = nullptr) const {
        const uint64_t row = sizes.first_row + uint64_t(first + v * wide<Number>);
        const DropoutLanes<Number> lanes(sizes.dropout, row);
        for (int64_t s = 0; s < seen; ++s) {
            const Vector factors = lanes.factors(uint32_t(s));
            at(tables.kept, s, v, at(tables.weights, s, v) * factors);
            if (cotangent) at(cotangent, s, v, at(cotangent, s, v) * factors);
        }
    }
    // From the cotangent of P to that of the scores: P * (cotangent - sum_s P * cotangent).
    void through_softmax(int64_t v) const {
        Vector sum{};
        for (int64_t s = 0; s < seen; ++s) sum += at(tables.weights, s, v) * at(tables.scores, s, v);
        for (int64_t s = 0; s < seen; ++s)
            at(tables.scores, s, v, at(tables.weights, s, v) * (at(tables.scores, s, v) - sum));
    }
    // gradient[s] += sum_i by_key[s][i] * rows[i]
    void add_product(const Number *by_key, const Number *rows, int64_t size, Number *gradient) const {
        multiply<Number>({by_key, row_unit, 1}, seen, row_unit, rows, size, {gradient, padded_row(size)}, gradient);
    }
    void scale_product() const {
        for (int64_t c = 0; c < sizes.size; ++c)
            for (int64_t v = 0; v < vectors; ++v) at(tables.product, c, v, at(tables.product, c, v) * sizes.scale);
    }
    void write_product(int64_t size, Rows<Number> rows) const {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t c = 0; c < size; ++c) rows.row(first + i)[c] = tables.product[c * row_unit + i];
    }
};

// Calls body(block) for all queries.
template <class Number, class Body>
void for_each_query_block(const BlockSizes<Number> &sizes, const BlockTables<Number> &tables, const Body &body) {
    for (int64_t first = 0; first < sizes.queries; first += row_unit) body(QueryBlock<Number>(sizes, tables, first));
}

}  // namespace softmax
