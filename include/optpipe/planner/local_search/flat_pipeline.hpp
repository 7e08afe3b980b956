#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::detail {

/// A problem as flat arrays of plain numbers, for inner loops. The number of an operation is (stage · 7 + kind) ·
/// microbatches + microbatch. So dependent operations have numbers that differ by a constant.
class flat_pipeline {
public:
    using id = std::int32_t;
    static constexpr id none = -1;
    static constexpr id kinds = static_cast<id>(all_operation_kinds.size());

    /// Properties common to all operations of one kind on one stage with one storage option. Rank, kind, hop, channel
    /// and engine are the same for all options.
    struct kind_facts {
        double duration = 0.0;
        double acquired = 0.0;
        double released = 0.0;
        double host_acquired = 0.0;
        double host_released = 0.0;
        /// Time from the end of the input on another stage to the operation's start.
        double hop = 0.0;
        std::int32_t rank = 0;
        operation_kind kind{};
        /// The operation's input on its own stage, its input on another stage, and its consumer on another stage. Each
        /// is given as a difference of operation numbers, or 0 if there is no such operation.
        id own_input = 0;
        id input = 0;
        id consumer = 0;
        /// The number of the link direction that the operation shares with other ranks, or `none`.
        std::int32_t channel = none;
        /// The copy engine of a transfer.
        std::int32_t engine = 0;
        /// For forwards and gradients, the operation of the same kind that must run before it on the nearest stage of
        /// the same rank. The other operation is given as a difference of operation numbers, or 0 if there is no such
        /// operation.
        id same_rank_before = 0;
        friend bool operator==(const kind_facts&, const kind_facts&) = default;
    };
    /// A storage option of a stage.
    struct option_facts {
        bool offloads = false;
        bool recomputes = false;
        /// Device memory that a stash takes between its forward and backward. If the stash is offloaded, only the part
        /// that stays on the device takes memory.
        double left_on_device = 0.0;
        /// Time of recomputation, in addition to the work with a kept stash.
        double extra_work = 0.0;
    };

    explicit flat_pipeline(const problem& p)
        : stages_{static_cast<id>(p.graph.stages())}, microbatches_{static_cast<id>(p.graph.microbatches())},
          ranks_{static_cast<id>(p.graph.ranks())}, span_{p.objective == objective_kind::span}, split_{
                                                                                                    p.split_backward} {
        const double slack = tolerance{}.at(p.memory_scale()).value();
        for (const rank r : p.graph.all_ranks()) {
            limit_.push_back(p.memory_limit[r].value() + slack);
            host_limit_.push_back(p.host_memory_limit[r].value() + slack);
        }
        number_channels(p);
        for (const stage s : p.graph.all_stages())
            add_stage(p, s);
        for (id of_kind = 0; of_kind < stages_ * kinds; ++of_kind)
            kind_of_.insert(kind_of_.end(), static_cast<std::size_t>(microbatches_), of_kind);
        for (const auto& c : p.costs)
            mean_ += c.work().value() / static_cast<double>(3 * stages_);
    }

    [[nodiscard]] id ranks() const { return ranks_; }
    [[nodiscard]] id stages() const { return stages_; }
    [[nodiscard]] id microbatches() const { return microbatches_; }
    /// One more than the largest number of an operation.
    [[nodiscard]] std::size_t size() const { return kind_of_.size(); }
    [[nodiscard]] id channels() const { return channels_; }
    [[nodiscard]] bool span() const { return span_; }
    [[nodiscard]] bool split() const { return split_; }
    /// Whether any stage can be offloaded.
    [[nodiscard]] bool offloads() const { return offloads_; }
    /// Whether any stage has several storage options.
    [[nodiscard]] bool chooses_storage() const { return chooses_storage_; }
    /// Whether some storage options take more of a rank's time than others.
    [[nodiscard]] bool trades_time() const { return trades_time_; }
    [[nodiscard]] bool can_offload(id s) const { return stage_[at(s)].offloads; }
    /// Whether a storage option of the stage recomputes in an operation of its own.
    [[nodiscard]] bool can_recompute(id s) const { return stage_[at(s)].recomputes; }
    /// Number of storage options of a stage.
    [[nodiscard]] id options(id s) const { return stage_[at(s)].options; }
    [[nodiscard]] const option_facts& option(id s, id number) const {
        return options_[at(stage_[at(s)].first_option + number)];
    }
    /// Whether a stash with this option needs an operation of this optional kind (a transfer or recomputation).
    [[nodiscard]] bool requires_operation(id s, id number, operation_kind kind) const {
        if (is_transfer(kind)) return option(s, number).offloads;
        return kind == operation_kind::recompute && option(s, number).recomputes;
    }
    /// Whether a B may be better than I and W, because splitting may take more memory.
    [[nodiscard]] bool full_may_pay(id s) const { return stage_[at(s)].full_may_pay; }
    /// Whether operations of this kind may be active on the stage.
    [[nodiscard]] bool may_be_active(id s, operation_kind kind) const {
        switch (kind) {
        case operation_kind::forward: return true;
        case operation_kind::backward_input:
        case operation_kind::backward_weight: return split();
        case operation_kind::backward: return !split() || full_may_pay(s);
        case operation_kind::offload:
        case operation_kind::reload: return can_offload(s);
        case operation_kind::recompute: return can_recompute(s);
        }
        return false;
    }
    [[nodiscard]] double limit(id r) const { return limit_[at(r)]; }
    [[nodiscard]] double host_limit(id r) const { return host_limit_[at(r)]; }
    /// The mean duration of F, I and W.
    [[nodiscard]] double mean_duration() const { return mean_; }

    [[nodiscard]] id number(id s, operation_kind kind, id m) const {
        return (s * kinds + static_cast<id>(kind)) * microbatches_ + m;
    }
    [[nodiscard]] id number(const operation& op) const {
        return number(static_cast<id>(op.stage.value()), op.kind, static_cast<id>(op.microbatch.value()));
    }
    [[nodiscard]] operation operation_of(id i, id option_number) const {
        const id of_kind = kind_number(i);
        const id s = of_kind / kinds;
        return {stage{s}, static_cast<operation_kind>(of_kind % kinds), microbatch{microbatch_of(i)},
                static_cast<storage_index>(option_number)};
    }
    /// A number that identifies the operation's stage and kind. Operations with equal kind numbers differ only in the
    /// microbatch.
    [[nodiscard]] id kind_number(id i) const { return kind_of_[at(i)]; }
    [[nodiscard]] id microbatch_of(id i) const { return i - kind_number(i) * microbatches_; }
    [[nodiscard]] id stage_of(id i) const { return kind_number(i) / kinds; }
    /// Facts of an operation with the first storage option of its stage.
    [[nodiscard]] const kind_facts& facts(id i) const { return facts_[at(facts_number(i, 0))]; }
    [[nodiscard]] const kind_facts& facts(id i, id option) const { return facts_[at(facts_number(i, option))]; }
    [[nodiscard]] const kind_facts& facts_at(id number) const { return facts_[at(number)]; }
    [[nodiscard]] id facts_number(id i, id option) const {
        const id of_kind = kind_number(i);
        const id s = of_kind / kinds;
        return (stage_[at(s)].first_option + option) * kinds + (of_kind - s * kinds);
    }
    [[nodiscard]] operation_kind kind(id i) const { return static_cast<operation_kind>(kind_number(i) % kinds); }
    [[nodiscard]] id cell(id i) const { return stage_of(i) * microbatches_ + microbatch_of(i); }
    /// The operation of the given kind on the stage and microbatch of `i`.
    [[nodiscard]] id sibling(id i, operation_kind kind) const {
        return i + (static_cast<id>(kind) - static_cast<id>(this->kind(i))) * microbatches_;
    }
    /// The operation of the same kind and microbatch, `further` stages later.
    [[nodiscard]] id on_stage(id i, id further) const { return i + further * kinds * microbatches_; }

private:
    struct stage_facts {
        id first_option = 0;
        id options = 0;
        bool offloads = false;
        bool recomputes = false;
        bool full_may_pay = false;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    /// Gives channels to links that several ranks share. The link of a single rank needs no channel, because the
    /// engines of the rank have the same limits.
    void number_channels(const problem& p) {
        std::vector<id> numbers(2 * p.transfer.link.size(), none);
        for (const rank r : p.graph.all_ranks()) {
            const auto& links = p.transfer.link;
            const bool alone = std::count(links.begin(), links.end(), links[r]) == 1;
            one_engine_.push_back(shares_engine(p.transfer) || (alone && shares_channel(p.transfer)));
            for (const bool inward : {false, true}) {
                id& number = numbers[host_channel_of(p.transfer, r, inward)];
                if (!alone && number == none) number = channels_++;
                channel_.push_back(number);
            }
        }
    }
    void add_stage(const problem& p, stage s) {
        stage_facts own{static_cast<id>(options_.size()), static_cast<id>(p.storage_options(s))};
        bool saves_memory = false;
        for (std::size_t number = 0; number < p.storage_options(s); ++number) {
            const auto stored = p.storage_of(s, number);
            options_.push_back(
                {stored.offloads(), stored.recomputes(), stored.left_on_device().value(), stored.extra_work().value()});
            own.offloads = own.offloads || stored.offloads();
            own.recomputes = own.recomputes || stored.recomputes();
            saves_memory = saves_memory || p.costs[s].weight_stash > stored.restored(p.costs[s]);
            trades_time_ = trades_time_ || stored.extra_work() != p.storage_of(s, 0).extra_work();
            for (const auto kind : all_operation_kinds)
                facts_.push_back(
                    facts_of(p, {s, kind, microbatch{}, static_cast<storage_index>(number)}, stash_way{stored}));
        }
        own.full_may_pay = split_ && saves_memory && p.full_backward;
        offloads_ = offloads_ || own.offloads;
        chooses_storage_ = chooses_storage_ || own.options > 1;
        stage_.push_back(own);
    }
    kind_facts facts_of(const problem& p, const operation& op, stash_way way) const {
        kind_facts f;
        const stage s = op.stage;
        const auto kind = op.kind;
        f.kind = kind;
        const rank r = p.rank_of(s);
        f.rank = static_cast<id>(r.value());
        if (const auto own = own_input_of(op, way)) f.own_input = number(*own) - number(op);
        if (const auto next = consumer_of(p.graph.stages(), op)) f.consumer = number(*next) - number(op);
        if (const auto other = input_from_other_stage(p.graph.stages(), op)) {
            f.input = number(*other) - number(op);
            f.hop = p.hop(other->stage, s).value();
        }
        if (is_transfer(kind)) { // other code relies on channel and engine being the same for all options
            const bool inward = kind == operation_kind::reload;
            f.channel = channel_[2 * r.position() + (inward ? 1 : 0)];
            f.engine = inward && one_engine_[r.position()] == 0 ? 1 : 0;
        }
        if (!is_possible(p, op)) return f;
        f.duration = duration_of(p, op).value();
        const auto effect = memory_effect_of(p, op);
        f.acquired = effect.acquired_at_start.value();
        f.released = effect.released_at_end.value();
        f.host_acquired = effect.host_acquired_at_start.value();
        f.host_released = effect.host_released_at_end.value();
        if (kind != operation_kind::forward && !is_gradient(kind)) return f;
        const bool is_forward = kind == operation_kind::forward;
        const id step = is_forward ? -1 : 1;
        for (id other = static_cast<id>(s.value()) + step; other >= 0 && other < stages_; other += step)
            if (p.rank_of(stage{other}) == r) {
                f.same_rank_before = (other - static_cast<id>(s.value())) * kinds * microbatches_;
                break;
            }
        return f;
    }

    id stages_;
    id microbatches_;
    id ranks_;
    bool span_;
    bool split_;
    bool offloads_ = false;
    id channels_ = 0;
    double mean_ = 0.0;
    std::vector<double> limit_;
    std::vector<double> host_limit_;
    std::vector<id> channel_;
    std::vector<char> one_engine_;
    bool chooses_storage_ = false;
    bool trades_time_ = false;
    std::vector<stage_facts> stage_;
    std::vector<option_facts> options_;
    std::vector<kind_facts> facts_;
    std::vector<id> kind_of_;
};

} // namespace optpipe::detail
