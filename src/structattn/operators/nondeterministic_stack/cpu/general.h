// Equations (1) to (5) of DERIVATION.md and their gradients, implemented directly for any Q and S and any number
// type. With Wide it is exact for every logit up to 1e30, for sequences beyond the range of doubles; Plain is used for
// sizes for which no other form is compiled.
#pragma once

#include <algorithm>
#include <vector>

#include "common/wide_number.h"
#include "nondeterministic_stack/cpu/sequence.h"

namespace general {

template <class Real>
class Tables {
public:
    explicit Tables(const Sequence &s) : seq(s), C(s.configurations()), Q(s.Q), S(s.S), n(s.n) {
        a.resize((n + 1) * C);
        inverse.resize((n + 1) * C);
        pi.resize((n + 1) * C * C), rho.resize((n + 1) * C * C);
        R.resize(n + 2), W.resize(n + 2);
        for (int64_t t = 1; t <= n; ++t) R[t].resize(slots(t)), W[t].resize(slots(t));
        E.resize((n + 1) * C * s.columns);
    }

    Outcome forward(const Outputs &out) {
        at(a, 0, 0) = Real(1);
        for (int64_t c = 0; c < seq.columns; ++c) at_E(0, 0, c) = Real(seq.value(0, c));
        double log_total = 0, lost = 0;  // lost: as if something were lost in every step
        for (int64_t t = 1; t <= n; ++t) {
            const double growth = step(t);
            if (growth == -INFINITY) return {t - 1, Real::exact};
            if (!Real::exact && !(std::fabs(growth) <= largest_growth_of_doubles)) return {t - 1, false};
            if (!Real::exact) lost = lost_after(lost, seq.step(t), growth, true);
            log_total += growth;
            top_vectors(t);
            write(t, log_total, out);
        }
        return {n, Real::exact || lost < largest_regrowth};
    }

    void backward(const Outcome &outcome, const Cotangents &cot, const InputGradients &grad);

private:
    const Sequence &seq;
    const int64_t C, Q, S, n;
    std::vector<Real> a, inverse, pi, rho, E;
    std::vector<std::vector<Real>> R, W;

    // Configuration (q, x) is q * S + x; slot (s, z, r) of R, D and W is (s * S + z) * Q + r.
    Real &at(std::vector<Real> &table, int64_t t, int64_t c) { return table[t * C + c]; }
    Real &at2(std::vector<Real> &table, int64_t t, int64_t from, int64_t to) { return table[(t * C + from) * C + to]; }
    Real &at_E(int64_t t, int64_t c, int64_t column) { return E[(t * C + c) * seq.columns + column]; }
    // Row t reaches back to the time before the earliest push that a pop at t can undo.
    Real &slot(std::vector<std::vector<Real>> &table, int64_t t, int64_t j, int64_t c, int64_t r) {
        return table[t][((j - first(t)) * C + c) * Q + r];
    }
    int64_t first(int64_t t) const { return seq.low(t) - 1; }
    int64_t slots(int64_t t) const { return (t - first(t)) * C * Q; }
    double push(int64_t t, int64_t from, int64_t to) const { return seq.push[((t - 1) * C + from) * C + to]; }
    double repl(int64_t t, int64_t from, int64_t to) const { return seq.repl[((t - 1) * C + from) * C + to]; }
    double pop(int64_t t, int64_t from, int64_t r) const { return seq.pop[((t - 1) * C + from) * Q + r]; }

    // The largest logit + log a over the possible transitions; -inf if there are none.
    template <class Logit>
    double largest(int64_t t, int64_t width, const Logit &logit) {
        double result = -INFINITY;
        for (int64_t c = 0; c < C; ++c)
            for (int64_t to = 0; to < width && !at(a, t - 1, c).is_zero(); ++to)
                result = std::max(result, logit(c, to) + at(a, t - 1, c).log());
        return result;
    }

    // (1): R_t[j] for falling j, given R_t[t-1].
    void popped_slots(int64_t t) {
        for (int64_t j = t - 2; j >= seq.low(t); --j)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r) {
                    Real sum;
                    for (int64_t d = 0; d < C; ++d) sum += at2(rho, j + 1, c, d) * slot(R, t, j + 1, d, r);
                    for (int64_t k = j + 2; k < t; ++k)
                        for (int64_t u = 0; u < Q; ++u)
                            sum += slot(W, k, j, c, u) * slot(R, t, k, u * S + c % S, r);
                    slot(R, t, j, c, r) = sum;
                }
    }

    // (1) to (4) for step t; the growth log Σ α_t, -inf without possible transitions. Numbers with an unlimited exponent
    // need no scale, whose logarithm would be rounded.
    double step(int64_t t) {
        const double scale = Real::exact ? 0 : largest(t, C, [&](int64_t c, int64_t to) { return std::max(push(t, c, to), repl(t, c, to)); });
        const double pop_scale = t < 2 ? -INFINITY : Real::exact ? 0 : largest(t, Q, [&](int64_t c, int64_t r) { return pop(t, c, r); });
        std::vector<Real> stay(C), popped(C);
        auto weight = [&](double logit, int64_t c, double shift) {
            const Real &share = at(a, t - 1, c);
            if (share.is_zero() || logit == -INFINITY) return Real();
            return Real::exact ? Real::exp(logit) * share : Real::exp(logit + share.log() - shift);
        };
        for (int64_t c = 0; c < C && scale > -INFINITY; ++c)
            for (int64_t to = 0; to < C; ++to) {
                at2(pi, t, c, to) = weight(push(t, c, to), c, scale);
                at2(rho, t, c, to) = weight(repl(t, c, to), c, scale);
                stay[to] += at2(pi, t, c, to) + at2(rho, t, c, to);
            }
        if (pop_scale > -INFINITY) {
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r) slot(R, t, t - 1, c, r) = weight(pop(t, c, r), c, pop_scale);
            popped_slots(t);
            for (int64_t k = first(t); k <= t - 2; ++k)
                for (int64_t c = 0; c < C; ++c)
                    for (int64_t r = 0; r < Q; ++r) {
                        Real &D = slot(W, t, k, c, r);  // (2); divided by α_t below
                        for (int64_t d = 0; d < C; ++d) D += at2(pi, k + 1, c, d) * slot(R, t, k + 1, d, r);
                        popped[r * S + c % S] += D;
                    }
        }
        return normalise(t, scale, pop_scale, stay, popped);
    }

    double normalise(int64_t t, double scale, double pop_scale, std::vector<Real> &stay, std::vector<Real> &popped) {
        Real stay_sum, popped_sum;
        for (int64_t c = 0; c < C; ++c) stay_sum += stay[c], popped_sum += popped[c];
        if (stay_sum.is_zero() && popped_sum.is_zero()) return -INFINITY;
        const double top = Real::exact ? 0
                                       : std::max(stay_sum.is_zero() ? -INFINITY : scale + stay_sum.log(),
                                                  popped_sum.is_zero() ? -INFINITY : pop_scale + popped_sum.log());
        const Real stay_factor = stay_sum.is_zero() ? Real() : Real::exp(scale - top);
        const Real pop_factor = popped_sum.is_zero() ? Real() : Real::exp(pop_scale - top);
        const Real total = stay_factor * stay_sum + pop_factor * popped_sum;
        for (int64_t c = 0; c < C; ++c) {
            Real alpha = stay_factor * stay[c] + pop_factor * popped[c];
            if (Real::negligible(alpha / total)) alpha = Real();
            at(a, t, c) = alpha / total;
            const Real stay_inverse = alpha.is_zero() ? Real() : stay_factor / alpha;
            at(inverse, t, c) = alpha.is_zero() ? Real() : pop_factor / alpha;
            for (int64_t d = 0; d < C; ++d) {
                at2(pi, t, d, c) = at2(pi, t, d, c) * stay_inverse;
                at2(rho, t, d, c) = at2(rho, t, d, c) * stay_inverse;
            }
        }
        for (int64_t k = first(t); k <= t - 2; ++k)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r)
                    slot(W, t, k, c, r) = slot(W, t, k, c, r) * at(inverse, t, r * S + c % S);
        return top + total.log();
    }

    // (5), applied to the vectors.
    void top_vectors(int64_t t) {
        for (int64_t c = 0; c < C; ++c) {
            Real pushed;
            for (int64_t d = 0; d < C; ++d) pushed += at2(pi, t, d, c);
            for (int64_t m = 0; m < seq.columns; ++m) {
                Real sum = pushed * Real(seq.value(t, m));
                for (int64_t d = 0; d < C; ++d) sum += at2(rho, t, d, c) * at_E(t - 1, d, m);
                for (int64_t k = std::max(seq.first_time(m), first(t)); k <= t - 2; ++k)
                    for (int64_t u = 0; u < Q; ++u)
                        sum += slot(W, t, k, u * S + c % S, c / S) * at_E(k, u * S + c % S, m);
                at_E(t, c, m) = sum;
            }
        }
    }

    void write(int64_t t, double log_total, const Outputs &out) {
        for (int64_t c = 0; c < C; ++c)
            for (int64_t m = 0; m < seq.columns; ++m)
                out.readings[((t - 1) * C + c) * seq.columns + m] = (at(a, t, c) * at_E(t, c, m)).to_double();
        out.log_weight[t - 1] = log_total;
    }
};

// The gradients, for falling t; the names are those of DERIVATION.md with _ for the bar. a_ is the adjoint of a_t
// times a_t.
template <class Real>
void Tables<Real>::backward(const Outcome &outcome, const Cotangents &cot, const InputGradients &grad) {
    const int64_t live = outcome.live, M = seq.columns;
    std::vector<Real> a_((n + 1) * C), E_((n + 1) * C * M), pi_(pi.size()), rho_(rho.size());
    std::vector<std::vector<Real>> W_(n + 2);
    for (int64_t t = 1; t <= live; ++t) W_[t].resize(slots(t));
    auto at_E_ = [&](int64_t t, int64_t c, int64_t m) -> Real & { return E_[(t * C + c) * M + m]; };
    for (int64_t t = 1; t <= live; ++t)
        for (int64_t c = 0; c < C; ++c)
            for (int64_t m = 0; m < M; ++m) {
                const Real share = at(a, t, c) * Real(cot.readings[((t - 1) * C + c) * M + m]);
                at_E_(t, c, m) = share;
                at(a_, t, c) += share * at_E(t, c, m);
            }
    Real weight_;
    for (int64_t t = live; t >= 1; --t) {
        weight_ += Real(cot.log_weight[t - 1]);
        Real a_sum;
        std::vector<Real> lambda(C), R_(slots(t));
        auto at_R_ = [&](int64_t j, int64_t c, int64_t r) -> Real & { return R_[((j - first(t)) * C + c) * Q + r]; };
        for (int64_t c = 0; c < C; ++c) a_sum += at(a_, t, c);
        for (int64_t c = 0; c < C; ++c) {
            Real pushed_, pushed;
            for (int64_t d = 0; d < C; ++d) pushed += at2(pi, t, d, c);
            for (int64_t m = 0; m < M; ++m) {
                const Real top_ = at_E_(t, c, m);
                pushed_ += top_ * Real(seq.value(t, m));
                if (grad.values) grad.values[t * M + m] += (pushed * top_).to_double();
                for (int64_t d = 0; d < C; ++d) {
                    at2(rho_, t, d, c) += top_ * at_E(t - 1, d, m);
                    at_E_(t - 1, d, m) += at2(rho, t, d, c) * top_;
                }
                for (int64_t k = std::max(seq.first_time(m), first(t)); k <= t - 2; ++k)
                    for (int64_t u = 0; u < Q; ++u) {
                        const int64_t below = u * S + c % S;
                        slot(W_, t, k, below, c / S) += top_ * at_E(k, below, m);
                        at_E_(k, below, m) += slot(W, t, k, below, c / S) * top_;
                    }
            }
            lambda[c] = at(a_, t, c) - at(a, t, c) * a_sum + at(a, t, c) * weight_;
            for (int64_t d = 0; d < C; ++d) {
                at2(pi_, t, d, c) += pushed_;
                lambda[c] += -(at2(pi, t, d, c) * at2(pi_, t, d, c)) - at2(rho, t, d, c) * at2(rho_, t, d, c);
            }
            for (int64_t k = first(t); k <= t - 2; ++k)
                for (int64_t u = 0; u < Q; ++u) {
                    const int64_t below = u * S + c % S;
                    lambda[c] += -(slot(W, t, k, below, c / S) * slot(W_, t, k, below, c / S));
                }
        }
        for (int64_t d = 0; d < C; ++d)
            for (int64_t c = 0; c < C; ++c) {
                const Real push_ = at2(pi, t, d, c) * (at2(pi_, t, d, c) + lambda[c]);
                const Real repl_ = at2(rho, t, d, c) * (at2(rho_, t, d, c) + lambda[c]);
                grad.push[((t - 1) * C + d) * C + c] = push_.to_double();
                grad.repl[((t - 1) * C + d) * C + c] = repl_.to_double();
                at(a_, t - 1, d) += push_ + repl_;
            }
        for (int64_t k = first(t); k <= t - 2; ++k)
            for (int64_t c = 0; c < C; ++c)
                for (int64_t r = 0; r < Q; ++r) {
                    const int64_t after = r * S + c % S;
                    const Real D_ = (slot(W_, t, k, c, r) + lambda[after]) * at(inverse, t, after);
                    for (int64_t d = 0; d < C; ++d) {
                        at_R_(k + 1, d, r) += at2(pi, k + 1, c, d) * D_;
                        at2(pi_, k + 1, c, d) += D_ * slot(R, t, k + 1, d, r);
                    }
                }
        for (int64_t k = seq.low(t) + 1; k <= t - 1; ++k)
            for (int64_t r = 0; r < Q; ++r)
                for (int64_t d = 0; d < C; ++d) {
                    const Real value = slot(R, t, k, d, r);
                    Real sum = at_R_(k, d, r);
                    for (int64_t c = 0; c < C; ++c) {
                        sum += at2(rho, k, c, d) * at_R_(k - 1, c, r);
                        at2(rho_, k, c, d) += at_R_(k - 1, c, r) * value;
                    }
                    for (int64_t j = seq.low(t); j <= k - 2; ++j)
                        for (int64_t s = 0; s < Q; ++s) {
                            const int64_t c = s * S + d % S;
                            sum += slot(W, k, j, c, d / S) * at_R_(j, c, r);
                            slot(W_, k, j, c, d / S) += at_R_(j, c, r) * value;
                        }
                    at_R_(k, d, r) = sum;
                }
        for (int64_t c = 0; c < C && t >= 2; ++c)
            for (int64_t r = 0; r < Q; ++r) {
                const Real pop_ = slot(R, t, t - 1, c, r) * at_R_(t - 1, c, r);
                grad.pop[((t - 1) * C + c) * Q + r] = pop_.to_double();
                at(a_, t - 1, c) += pop_;
            }
    }
    if (grad.values)
        for (int64_t m = 0; m < M; ++m) grad.values[m] += at_E_(0, 0, m).to_double();
}

}  // namespace general
