#pragma once

#include "gelu.hpp"
#include "layout.hpp"
#include "matrix.hpp"
#include "shape.hpp"
#include <optpipe/core/contract.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace language_model {

/// The experts of a layer, which are divided evenly among peers: the same stage of several pipelines.
struct expert_shape {
    std::size_t experts = 4;
    std::size_t peers = 2;
    /// The peer that this layer belongs to; it has the experts from `self` × `per_peer()` on.
    std::size_t self = 0;

    [[nodiscard]] constexpr std::size_t per_peer() const { return experts / peers; }
};

/// A mixture of experts, each a feed-forward network. A router sends each token to one expert: y = x + p · expert(x),
/// where p is the router's probability of the expert that it chose (Fedus et al. 2022). No token is dropped: a peer has
/// room for all tokens of all peers.
///
/// Forward and backward have three phases each, with an exchange after the first and the second: each phase returns a
/// text for every peer, and the next one takes the texts of all peers, in their order. A phase that another layer
/// computes meanwhile hides the exchange.
template <class Real> class expert_layer {
public:
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;
    using stash = scattered<Real>;
    using texts = std::vector<std::string>;

    /// All peers have the same router; experts depend on the seed and their number.
    /// Contract: the number of experts is a multiple of the number of peers, and `self` is one of the peers.
    expert_layer(const shape& s, const expert_shape& e, std::uint64_t seed) : s_{s}, e_{e} {
        OPTPIPE_EXPECT(e.experts % e.peers == 0 && e.self < e.peers, "expert_layer: experts can't be divided evenly");
        router_ = parameter_layout_.take(s.hidden * e.experts);
        router_bias_ = parameter_layout_.take(e.experts);
        for (std::size_t i = 0; i < e.per_peer(); ++i)
            experts_.push_back({parameter_layout_.take(s.hidden * s.feed_forward()),
                                parameter_layout_.take(s.feed_forward()),
                                parameter_layout_.take(s.feed_forward() * s.hidden), parameter_layout_.take(s.hidden)});
        input_ = kept_layout_.take(s.boundary());
        probabilities_ = kept_layout_.take(s.tokens() * e.experts);
        counts_ = kept_layout_.take(e.experts);
        received_ = kept_layout_.take(capacity() * s.hidden);
        widened_ = kept_layout_.take(capacity() * s.feed_forward());
        activated_ = kept_layout_.take(capacity() * s.feed_forward());
        result_gradient_ = kept_layout_.take(capacity() * s.hidden);
        chosen_ = freed_layout_.take(s.tokens());
        result_ = freed_layout_.take(s.boundary());
        parameters_.resize(parameter_layout_.size());
        gradients_.resize(parameter_layout_.size());
        gradient_.resize(s.boundary());
        rows_.resize(capacity() * s.hidden);
        wide_.resize(capacity() * s.feed_forward());
        initialize(router_, s.hidden, seed);
        for (std::size_t i = 0; i < experts_.size(); ++i) {
            initialize(experts_[i].widen, s.hidden, seed + 1 + 2 * (first_expert() + i));
            initialize(experts_[i].narrow, s.feed_forward(), seed + 2 + 2 * (first_expert() + i));
        }
    }

    [[nodiscard]] std::size_t kept() const { return kept_layout_.size(); }
    [[nodiscard]] std::size_t freed() const { return freed_layout_.size(); }
    [[nodiscard]] reals parameters() { return parameters_; }
    [[nodiscard]] reals gradients() { return gradients_; }

    /// Forward, first phase: chooses the experts, and sends them the tokens.
    [[nodiscard]] texts route(const_reals x, const stash& kept, const stash& freed) {
        std::copy(x.begin(), x.end(), input_.of(kept).begin());
        const auto p = probabilities_.of(kept);
        linear<Real>(x, router_.of(parameters()), router_bias_.of(parameters()), p, s_.hidden);
        for (std::size_t token = 0; token < s_.tokens(); ++token) {
            const auto row = p.subspan(token * e_.experts, e_.experts);
            const auto best = std::max_element(row.begin(), row.end());
            chosen_.of(freed)[token] = static_cast<Real>(best - row.begin());
            const Real largest = *best;
            Real sum = 0;
            for (Real& each : row)
                sum += each = std::exp(each - largest);
            for (Real& each : row)
                each /= sum;
        }
        auto sent = texts(e_.peers);
        for (std::size_t expert = 0; expert < e_.experts; ++expert) {
            Real count = 0;
            for (const Real chosen : chosen_.of(freed))
                count += chosen == static_cast<Real>(expert) ? 1 : 0;
            put({&count, 1}, sent[peer_of(expert)]);
        }
        for_each_sent(freed, [&](std::size_t peer, std::size_t token) { put(row_of(x, token), sent[peer]); });
        return sent;
    }
    /// Second phase: the experts of this peer on the tokens of all peers.
    [[nodiscard]] texts compute(const texts& from_peers, const stash& kept) {
        const auto counts = counts_.of(kept);
        auto at = std::vector<const char*>{};
        for (std::size_t peer = 0; peer < e_.peers; ++peer) {
            at.push_back(from_peers[peer].data());
            take(at[peer], counts.subspan(peer * e_.per_peer(), e_.per_peer()));
        }
        for_each_run(
            kept, [&](std::size_t peer, reals rows) { take(at[peer], rows); }, received_.of(kept));
        for_each_expert(kept, [&](const network& of, piece narrow, piece wide) {
            const auto widened = wide.of(widened_.of(kept));
            const auto activated = wide.of(activated_.of(kept));
            linear<Real>(narrow.of(received_.of(kept)), of.widen.of(parameters()), of.widen_bias.of(parameters()),
                         widened, s_.hidden);
            for (std::size_t i = 0; i < widened.size(); ++i)
                activated[i] = gelu<Real>::value(widened[i]);
            linear<Real>(activated, of.narrow.of(parameters()), of.narrow_bias.of(parameters()),
                         narrow.of(reals{rows_}), s_.feed_forward());
        });
        return sent_back(kept);
    }
    /// Third phase: the results, added to the input.
    void combine(const texts& from_peers, const stash& kept, const stash& freed, reals out) {
        take_rows(from_peers, freed, result_.of(freed));
        const auto x = input_.of(kept);
        for (std::size_t token = 0; token < s_.tokens(); ++token) {
            const Real p = probability_of(token, kept, freed);
            for (std::size_t i = token * s_.hidden; i < (token + 1) * s_.hidden; ++i)
                out[i] = x[i] + p * result_.of(freed)[i];
        }
    }

    /// Backward, first phase: the gradient of the router, and of the results that the experts sent.
    [[nodiscard]] texts disperse(const_reals gradient, const stash& kept, const stash& freed) {
        std::copy(gradient.begin(), gradient.end(), gradient_.begin());
        auto scaled = std::vector<Real>(gradient.begin(), gradient.end());
        for (std::size_t token = 0; token < s_.tokens(); ++token) {
            const auto chosen = static_cast<std::size_t>(chosen_.of(freed)[token]);
            const Real p = probability_of(token, kept, freed);
            Real slope = 0;
            for (std::size_t i = token * s_.hidden; i < (token + 1) * s_.hidden; ++i) {
                slope += gradient[i] * result_.of(freed)[i];
                scaled[i] *= p;
            }
            const auto row = probabilities_.of(kept).subspan(token * e_.experts, e_.experts);
            for (std::size_t k = 0; k < e_.experts; ++k) // holds the gradient at the logits from here on
                row[k] = slope * p * ((k == chosen ? Real(1) : Real(0)) - row[k]);
        }
        auto sent = texts(e_.peers);
        for_each_sent(
            freed, [&](std::size_t peer, std::size_t token) { put(row_of(const_reals{scaled}, token), sent[peer]); });
        return sent;
    }
    /// Second phase: the input gradient of this peer's experts.
    [[nodiscard]] texts compute_back(const texts& from_peers, const stash& kept) {
        auto at = std::vector<const char*>{};
        for (const auto& each : from_peers)
            at.push_back(each.data());
        for_each_run(
            kept, [&](std::size_t peer, reals rows) { take(at[peer], rows); }, result_gradient_.of(kept));
        for_each_expert(kept, [&](const network& of, piece narrow, piece wide) {
            const auto widened = wide.of(widened_.of(kept)); // holds the gradient from here on
            const auto slopes = wide.of(reals{wide_});
            linear_input_gradient<Real>(narrow.of(result_gradient_.of(kept)), of.narrow.of(parameters()), slopes,
                                        s_.hidden);
            for (std::size_t i = 0; i < widened.size(); ++i)
                widened[i] = slopes[i] * gelu<Real>::slope(widened[i]);
            linear_input_gradient<Real>(widened, of.widen.of(parameters()), narrow.of(reals{rows_}), s_.feed_forward());
        });
        return sent_back(kept);
    }
    /// Third phase: the gradient at the input.
    void gather(const texts& from_peers, const stash& kept, const stash& freed, reals out) {
        auto through_router = std::vector<Real>(s_.boundary());
        linear_input_gradient<Real>(probabilities_.of(kept), router_.of(parameters()), reals{through_router},
                                    e_.experts);
        take_rows(from_peers, freed, out);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] += gradient_[i] + through_router[i];
    }

    /// Adds to the gradients of the router and of this peer's experts.
    void backward_weight(const stash& kept) {
        linear_weight_gradient<Real>(input_.of(kept), probabilities_.of(kept), router_.of(gradients()),
                                     router_bias_.of(gradients()));
        for_each_expert(kept, [&](const network& of, piece narrow, piece wide) {
            linear_weight_gradient<Real>(wide.of(activated_.of(kept)), narrow.of(result_gradient_.of(kept)),
                                         of.narrow.of(gradients()), of.narrow_bias.of(gradients()));
            linear_weight_gradient<Real>(narrow.of(received_.of(kept)), wide.of(widened_.of(kept)),
                                         of.widen.of(gradients()), of.widen_bias.of(gradients()));
        });
    }

private:
    struct network {
        piece widen, widen_bias, narrow, narrow_bias;
    };

    [[nodiscard]] std::size_t capacity() const { return e_.peers * s_.tokens(); }
    [[nodiscard]] std::size_t first_expert() const { return e_.self * e_.per_peer(); }
    [[nodiscard]] std::size_t peer_of(std::size_t expert) const { return expert / e_.per_peer(); }
    [[nodiscard]] const_reals row_of(const_reals of, std::size_t token) const {
        return of.subspan(token * s_.hidden, s_.hidden);
    }
    [[nodiscard]] Real probability_of(std::size_t token, const stash& kept, const stash& freed) const {
        const auto chosen = static_cast<std::size_t>(chosen_.of(freed)[token]);
        return probabilities_.of(kept)[token * e_.experts + chosen];
    }
    void initialize(piece which, std::size_t inputs, std::uint64_t seed) {
        std::mt19937_64 bits{seed};
        for (Real& x : which.of(parameters())) {
            const auto uniform = static_cast<double>(bits() >> 11U) * 0x1p-53;
            x = static_cast<Real>((uniform - 0.5) * std::sqrt(12.0 / static_cast<double>(inputs)));
        }
    }

    static void put(const_reals values, std::string& text) {
        text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    }
    static void take(const char*& from, reals values) {
        if (!values.empty()) std::memcpy(values.data(), from, values.size_bytes());
        from += values.size_bytes();
    }
    /// Calls `visit(peer, token)` for the tokens in the order in which they are sent: by expert, then by token.
    template <class Visit> void for_each_sent(const stash& freed, const Visit& visit) const {
        for (std::size_t expert = 0; expert < e_.experts; ++expert)
            for (std::size_t token = 0; token < s_.tokens(); ++token)
                if (chosen_.of(freed)[token] == static_cast<Real>(expert)) visit(peer_of(expert), token);
    }
    /// The rows that come back, each to its token.
    void take_rows(const texts& from_peers, const stash& freed, reals to) const {
        auto at = std::vector<const char*>{};
        for (const auto& each : from_peers)
            at.push_back(each.data());
        for_each_sent(freed, [&](std::size_t peer, std::size_t token) {
            take(at[peer], to.subspan(token * s_.hidden, s_.hidden));
        });
    }
    /// Calls `visit(peer, rows)` for the tokens of each peer for each expert: rows lie by expert, then by peer.
    template <class Visit> void for_each_run(const stash& kept, const Visit& visit, reals rows) const {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < e_.per_peer(); ++i)
            for (std::size_t peer = 0; peer < e_.peers; ++peer) {
                const auto size = count_of(kept, peer, i) * s_.hidden;
                visit(peer, rows.subspan(begin, size));
                begin += size;
            }
    }
    [[nodiscard]] std::size_t count_of(const stash& kept, std::size_t peer, std::size_t expert) const {
        return static_cast<std::size_t>(counts_.of(kept)[peer * e_.per_peer() + expert]);
    }
    /// Calls `visit(expert, rows, wide rows)` for this peer's experts, with the ranges of their tokens.
    template <class Visit> void for_each_expert(const stash& kept, const Visit& visit) const {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < experts_.size(); ++i) {
            std::size_t count = 0;
            for (std::size_t peer = 0; peer < e_.peers; ++peer)
                count += count_of(kept, peer, i);
            visit(experts_[i], piece{begin * s_.hidden, count * s_.hidden},
                  piece{begin * s_.feed_forward(), count * s_.feed_forward()});
            begin += count;
        }
    }
    /// The rows that the experts computed, for the peers whose tokens they are.
    [[nodiscard]] texts sent_back(const stash& kept) {
        auto sent = texts(e_.peers);
        for_each_run(
            kept, [&](std::size_t peer, reals rows) { put(rows, sent[peer]); }, rows_);
        return sent;
    }

    shape s_;
    expert_shape e_;
    layout parameter_layout_, kept_layout_, freed_layout_;
    piece router_{}, router_bias_{};
    std::vector<network> experts_;
    piece input_{}, probabilities_{}, counts_{}, received_{}, widened_{}, activated_{}, result_gradient_{};
    piece chosen_{}, result_{};
    std::vector<Real> parameters_, gradients_;
    /// Between the phases of a backward: the gradient at the output.
    std::vector<Real> gradient_;
    std::vector<Real> rows_, wide_;
};

} // namespace language_model
