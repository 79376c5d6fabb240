// The best one-token continuations of the hypotheses of a beam, without a full table of log-probabilities.
//
// Legend: W hypotheses of each sentence, C classes. The logits of a hypothesis are read three times while they are in the
// cache: for their maxima, for log sum_c exp(logit_c), and, only where a maximum exceeds the k-th best score so far, for
// the continuations themselves.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/kernels.h"
#include "common/scratch.h"
#include "softmax_attention/rows.h"

namespace {

constexpr int64_t block = 256;  // logits with one maximum

// The k greatest scores, in descending order, equal ones in the order of insertion.
template <class Number>
struct Best {
    int64_t k, count = 0;
    Number *scores;
    int64_t *indices;

    Number least() const { return count < k ? -std::numeric_limits<Number>::infinity() : scores[k - 1]; }
    void insert(Number score, int64_t index) {  // score > least()
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && scores[at - 1] < score; --at) scores[at] = scores[at - 1], indices[at] = indices[at - 1];
        scores[at] = score, indices[at] = index;
    }
};

// The maximum of each block, without NaN; returns the greatest of them.
template <class Number>
Number block_maxima(const Number *logits, int64_t classes, Number *maxima) {
    const Lanes<Number> lowest = Lanes<Number>{} - std::numeric_limits<Number>::infinity();
    Number greatest = lowest[0];
    for (int64_t first = 0; first < classes; first += block) {
        const int64_t end = std::min(first + block, classes);
        Lanes<Number> some[4] = {lowest, lowest, lowest, lowest};
        int64_t c = first;
        for (; c + 4 * lanes<Number> <= end; c += 4 * lanes<Number>)
            for (int i = 0; i < 4; ++i) {
                const Lanes<Number> here = load(logits + c + i * lanes<Number>);
                some[i] = here > some[i] ? here : some[i];
            }
        Number most = lowest[0];
        for (int i = 0; i < 4; ++i)
            for (int64_t l = 0; l < lanes<Number>; ++l) most = some[i][l] > most ? some[i][l] : most;
        for (; c < end; ++c) most = logits[c] > most ? logits[c] : most;
        *maxima++ = most;
        greatest = most > greatest ? most : greatest;
    }
    return greatest;
}

// log sum_c exp(logit_c); 0 if all are -inf, NaN if one is NaN or +inf.
template <class Number>
Number log_normalizer(const Number *logits, int64_t classes, Number greatest) {
    if (greatest == -std::numeric_limits<Number>::infinity()) {
        const bool some_nan = std::any_of(logits, logits + classes, [](Number logit) { return logit != logit; });
        return some_nan ? std::numeric_limits<Number>::quiet_NaN() : 0;
    }
    double total = 0;
    for (int64_t first = 0; first < classes; first += block) {
        const int64_t end = std::min(first + block, classes);
        Lanes<Number> sums{};
        int64_t c = first;
        for (; c + lanes<Number> <= end; c += lanes<Number>) sums += exp_of_negative<Number>(load(logits + c) - greatest);
        if (c < end) {
            Lanes<Number> rest = Lanes<Number>{} - std::numeric_limits<Number>::infinity();
            for (int64_t l = 0; l < end - c; ++l) rest[l] = logits[c + l] - greatest;
            sums += exp_of_negative<Number>(rest);
        }
        for (int64_t l = 0; l < lanes<Number>; ++l) total += sums[l];
    }
    return Number(greatest + std::log(total));
}

// Adds the continuations of one hypothesis; ``offset`` is added to its logits.
template <class Number>
void add_continuations(const Number *logits, int64_t classes, const Number *maxima, Number offset, int64_t first_index,
                       Best<Number> &best) {
    for (int64_t first = 0; first < classes; first += block) {
        if (!(*maxima++ + offset > best.least())) continue;
        for (int64_t c = first; c < std::min(first + block, classes); ++c) {
            const Number score = logits[c] + offset;
            if (score > best.least()) best.insert(score, first_index + c);
        }
    }
}


// ``required`` is the address of the class that must follow in each sentence, negative where any may; 0: any in all.
template <class Number>
void top_continuations(uintptr_t logits, int64_t stride, uintptr_t log_probs, uintptr_t required, uintptr_t scores,
                       uintptr_t indices, int64_t batch, int64_t beam, int64_t classes, int64_t k, int threads) {
    std::atomic<bool> invalid_logits{false}, invalid_log_probs{false};
    for_each_sequence(batch, batch * beam * classes < 100000 ? 1 : threads, [&](int64_t b) {
        Scratch scratch((classes / block + 1) * sizeof(Number));
        Number *maxima = scratch.as<Number>();
        Best<Number> best{k, 0, reinterpret_cast<Number *>(scores) + b * k, reinterpret_cast<int64_t *>(indices) + b * k};
        std::fill_n(best.scores, k, -std::numeric_limits<Number>::infinity());
        std::fill_n(best.indices, k, 0);
        for (int64_t w = 0; w < beam; ++w) {
            const Number *row = reinterpret_cast<const Number *>(logits) + (b * beam + w) * stride;
            const Number normalizer = log_normalizer(row, classes, block_maxima(row, classes, maxima));
            const Number log_prob = reinterpret_cast<const Number *>(log_probs)[b * beam + w], offset = log_prob - normalizer;
            if (normalizer != normalizer) invalid_logits = true;
            if (!(log_prob < std::numeric_limits<Number>::infinity())) invalid_log_probs = true;
            const int64_t only = required ? reinterpret_cast<const int64_t *>(required)[b] : -1;
            if (only < 0) add_continuations(row, classes, maxima, offset, w * classes, best);
            else if (only < classes && row[only] + offset > best.least())
                best.insert(row[only] + offset, w * classes + only);
        }
    });
    if (invalid_log_probs) throw std::domain_error("log_probs holds NaN or inf; expected finite numbers or -inf");
    if (invalid_logits) throw std::domain_error("the model returned NaN or inf logits; expected finite numbers or -inf");
}

}  // namespace

void register_top_continuations(nanobind::module_ &module) {
    using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;
    module.def("top_continuations_float32", &top_continuations<float>, Unlocked());
    module.def("top_continuations_float64", &top_continuations<double>, Unlocked());
}
