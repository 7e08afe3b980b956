#pragma once

#include "expert_layer.hpp"
#include "pipeline_model.hpp"
#include <optpipe/execution/control_channel.hpp>
#include <optpipe/execution/stage_model.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// The expert layers of a peer's stages: one before the blocks of every stage, except the first.
template <class Real>
[[nodiscard]] std::vector<expert_layer<Real>> make_experts(const shape& s, const expert_shape& e, std::size_t stages,
                                                           std::uint64_t seed) {
    std::vector<expert_layer<Real>> result;
    for (std::size_t i = 1; i < stages; ++i)
        result.emplace_back(s, e, seed + 1000 * i);
    return result;
}

/// Adds the stashes of the expert layers to a problem of the stages.
template <class Real> void add_experts(optpipe::problem& p, const std::vector<expert_layer<Real>>& experts) {
    for (const auto s : p.graph.all_stages()) {
        if (s == optpipe::stage{0}) continue;
        const auto& layer = experts[s.position() - 1];
        const auto bytes = [](std::size_t count) {
            return optpipe::memory_size{static_cast<double>(sizeof(Real) * count)};
        };
        p.change_stage(s, [&](optpipe::stage_costs& costs) {
            costs.weight_stash += bytes(layer.kept());
            costs.activation += bytes(layer.kept() + layer.freed());
        });
    }
}

/// A piece of computation between the exchanges of tokens.
enum class expert_phase : std::uint8_t {
    router,
    experts,
    blocks,
    blocks_back,
    experts_back,
    block_weights,
    expert_weights,
};

/// One of several pipelines that share the experts of each layer. All run the same programs, so that their exchanges
/// meet. Blocks and routers are the same in all pipelines, but their gradients aren't summed here: a model that updates
/// parameters has to. Each rank has a channel to its peers, the same rank of the other pipelines. In a pair, the
/// exchanges of one microbatch are under way while the other computes.
template <class Real, optpipe::execution::peer_channel Channel> class expert_model : public pipeline_model<Real> {
    using base = pipeline_model<Real>;
    using layer_type = expert_layer<Real>;
    using texts = typename layer_type::texts;
    using forward_task = optpipe::execution::forward_task;
    using backward_task = optpipe::execution::backward_task;
    using weight_task = optpipe::execution::weight_task;

public:
    using clock = std::chrono::steady_clock;
    /// Called when a piece of computation of a stage ends, with the time of its start; a benchmark makes it last. Must
    /// not throw.
    using pace = std::function<void(optpipe::stage, expert_phase, clock::time_point)>;

    /// Borrows everything but the shape. See `pipeline_model`; `pipelines` tells this pipeline's place among its peers.
    expert_model(std::vector<model_stage<Real>>& stages, std::vector<layer_type>& experts, std::string_view text,
                 const shape& s, std::size_t microbatches, const replica_place& pipelines, Channel& peers,
                 pace keep = {})
        : base{stages, text, s, microbatches, {}, {}, pipelines}, experts_{&experts}, peers_{&peers}, pace_{std::move(
                                                                                                          keep)},
          mixed_(s.boundary()), gradient_(s.boundary()) {}

    template <class Lane> void forward(Lane& on, const forward_task& t) {
        start(t);
        run_experts(t);
        finish(on, t);
    }
    template <class Lane> void backward_input(Lane& on, const backward_task& t) {
        start_back(on, t);
        run_experts_back(t);
        finish_back(t);
    }
    template <class Lane> void backward_weight(Lane& on, const weight_task& t) {
        add_block_weights(on, t);
        add_expert_weights(t);
    }
    template <class Lane> void backward(Lane& on, const backward_task& t) {
        backward_input(on, t);
        backward_weight(on, {.stage = t.stage, .microbatch = t.microbatch, .kept = t.kept});
    }
    /// Every exchange of one part is under way while the other part computes.
    template <class Lane> void overlap(Lane& on, const forward_task& f, const backward_task& b) {
        start(f);
        start_back(on, b);
        run_experts(f);
        const weight_task weights{.stage = b.stage, .microbatch = b.microbatch, .kept = b.kept};
        if (b.is_full) add_block_weights(on, weights);
        run_experts_back(b);
        finish(on, f);
        finish_back(b);
        if (b.is_full) add_expert_weights(weights);
    }

private:
    /// A part of a stash: that of the blocks, followed by that of the expert layer. `Which`: 0 is kept, 1 is freed.
    template <int Which> class part_of {
    public:
        part_of(expert_model& of, optpipe::stage s, optpipe::execution::stash_part whole) {
            const auto all = optpipe::execution::contiguous(whole);
            const auto& stage = of.stage(s);
            const auto size = sizeof(Real) * (Which == 0 ? stage.kept() : stage.freed());
            blocks_ = all.first(size);
            experts_ = all.subspan(size);
        }
        [[nodiscard]] optpipe::execution::stash_part blocks() const { return {&blocks_, 1}; }
        [[nodiscard]] typename layer_type::stash experts() const { return reals(experts_); }

    private:
        std::span<std::byte> blocks_;
        std::span<std::byte> experts_;
    };

    using base::reals;
    [[nodiscard]] static bool has_experts(optpipe::stage s) { return s != optpipe::stage{0}; }
    [[nodiscard]] layer_type& layer(optpipe::stage s) { return (*experts_)[s.position() - 1]; }
    /// A piece of computation, from its construction on.
    class computation {
    public:
        computation(const expert_model& of, optpipe::stage s, expert_phase what) : of_{of}, stage_{s}, what_{what} {}
        computation(const computation&) = delete;
        computation& operator=(const computation&) = delete;
        ~computation() {
            if (of_.pace_) of_.pace_(stage_, what_, began_);
        }

    private:
        const expert_model& of_;
        optpipe::stage stage_;
        expert_phase what_;
        clock::time_point began_ = clock::now();
    };

    void send(const texts& to_peers) {
        for (std::size_t peer = 0; peer < to_peers.size(); ++peer)
            peers_->send(optpipe::rank{peer}, to_peers[peer]);
    }
    [[nodiscard]] texts receive() {
        texts from_peers;
        for (std::size_t peer = 0; peer < peers_->ranks(); ++peer)
            from_peers.push_back(peers_->receive(optpipe::rank{peer}));
        return from_peers;
    }

    /// Runs the router; afterwards its tokens are under way.
    void start(const forward_task& t) {
        if (has_experts(t.stage)) send(route(t));
    }
    [[nodiscard]] texts route(const forward_task& t) {
        const computation here{*this, t.stage, expert_phase::router};
        const part_of<0> kept{*this, t.stage, t.kept};
        const part_of<1> freed{*this, t.stage, t.freed};
        return layer(t.stage).route(reals(t.input), kept.experts(), freed.experts());
    }
    void run_experts(const forward_task& t) {
        if (has_experts(t.stage)) send(compute(t, receive()));
    }
    [[nodiscard]] texts compute(const forward_task& t, const texts& tokens) {
        const computation here{*this, t.stage, expert_phase::experts};
        return layer(t.stage).compute(tokens, part_of<0>{*this, t.stage, t.kept}.experts());
    }
    template <class Lane> void finish(Lane& on, const forward_task& t) {
        const auto results = has_experts(t.stage) ? receive() : texts{};
        const computation here{*this, t.stage, expert_phase::blocks};
        const part_of<0> kept{*this, t.stage, t.kept};
        const part_of<1> freed{*this, t.stage, t.freed};
        auto blocks = t;
        blocks.kept = kept.blocks();
        blocks.freed = freed.blocks();
        if (has_experts(t.stage)) {
            layer(t.stage).combine(results, kept.experts(), freed.experts(), mixed_);
            blocks.input = std::as_bytes(std::span{mixed_});
        }
        base::forward(on, blocks);
    }

    /// Runs the blocks' backward; afterwards the gradients of the experts' results are under way.
    template <class Lane> void start_back(Lane& on, const backward_task& t) {
        const auto gradients = compute_blocks_back(on, t);
        if (has_experts(t.stage)) send(gradients);
    }
    template <class Lane> [[nodiscard]] texts compute_blocks_back(Lane& on, const backward_task& t) {
        const computation here{*this, t.stage, expert_phase::blocks_back};
        const part_of<0> kept{*this, t.stage, t.kept};
        const part_of<1> freed{*this, t.stage, t.freed};
        auto blocks = t;
        blocks.kept = kept.blocks();
        blocks.freed = freed.blocks();
        if (has_experts(t.stage)) blocks.output = std::as_writable_bytes(std::span{gradient_});
        base::backward_input(on, blocks);
        return has_experts(t.stage) ? layer(t.stage).disperse(gradient_, kept.experts(), freed.experts()) : texts{};
    }
    void run_experts_back(const backward_task& t) {
        if (has_experts(t.stage)) send(compute_back(t, receive()));
    }
    [[nodiscard]] texts compute_back(const backward_task& t, const texts& gradients) {
        const computation here{*this, t.stage, expert_phase::experts_back};
        return layer(t.stage).compute_back(gradients, part_of<0>{*this, t.stage, t.kept}.experts());
    }
    void finish_back(const backward_task& t) {
        if (!has_experts(t.stage)) return;
        const part_of<0> kept{*this, t.stage, t.kept};
        const part_of<1> freed{*this, t.stage, t.freed};
        layer(t.stage).gather(receive(), kept.experts(), freed.experts(), reals(t.output));
    }

    template <class Lane> void add_block_weights(Lane& on, const weight_task& t) {
        const computation here{*this, t.stage, expert_phase::block_weights};
        const part_of<0> kept{*this, t.stage, t.kept};
        auto blocks = t;
        blocks.kept = kept.blocks();
        base::backward_weight(on, blocks);
    }
    void add_expert_weights(const weight_task& t) {
        if (!has_experts(t.stage)) return;
        const computation here{*this, t.stage, expert_phase::expert_weights};
        layer(t.stage).backward_weight(part_of<0>{*this, t.stage, t.kept}.experts());
    }

    std::vector<layer_type>* experts_;
    Channel* peers_;
    pace pace_;
    /// The output of the expert layer, and the gradient there.
    std::vector<Real> mixed_, gradient_;
};

} // namespace language_model
