#pragma once

#include "layout.hpp"
#include "stage.hpp"
#include "stash_layout.hpp"
#include <optpipe/execution/stage_model.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/pipeline/storage.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// A way to store a stash: the part that is recomputed, when, and the share of the rest that is offloaded.
struct stash_storage {
    std::string_view name;
    recomputation again = recomputation::none;
    /// Whether to recompute in the backward, instead of by a RECOMPUTE ahead of it.
    bool inside = false;
    double offloaded = 0.0;
};

/// Stores the stash of a stage as an option says: the forward keeps the part that isn't recomputed, a recomputation
/// restores the rest. The stage works on the pieces in place. Only pieces that are split in memory are copied to
/// workspace and back; data for the weight gradient is moved out of memory that is freed before. On a device it only
/// enqueues its work.
template <class Stage> class stash_packer {
public:
    using reals = typename Stage::reals;
    using const_reals = typename Stage::const_reals;
    using real = typename reals::value_type;
    using stash_part = optpipe::execution::stash_part;

    /// Borrows the stage.
    explicit stash_packer(Stage& stage)
        : stage_{&stage}, kept_{stage.zeros(stage.kept())}, freed_{stage.zeros(stage.freed())}, input_{stage.zeros(
                                                                                                    stage.boundary())} {
        for (const auto again :
             {recomputation::none, recomputation::attention, recomputation::feed_forward, recomputation::full})
            layouts_.emplace(again, stash_layout{stage, again});
    }

    void forward(const stash_storage& how, const text_batch& text, const_reals input, reals output,
                 const optpipe::execution::forward_task& t) {
        const auto& layout = layouts_.at(how.again);
        const auto now = locate(layout, layout.after_forward(size_of({t.kept})), {{t.kept}, {t.freed}});
        stage_->forward(text, input, now.kept, now.freed, output);
        write_back(layout, now, false);
        scatter(input, now.input);
    }
    void recompute(const stash_storage& how, const text_batch& text, const optpipe::execution::recompute_task& t) {
        const auto& layout = layouts_.at(how.again);
        const stash_sizes sizes{size_of({t.kept}), size_of({t.kept, t.restored_kept}), true};
        const auto now =
            locate(layout, layout.after_recompute(sizes), {{t.kept, t.restored_kept}, {t.freed, t.restored_freed}});
        read_divided(layout, now, false);
        restore(how, text, now);
        write_back(layout, now, true);
    }
    void backward_input(const stash_storage& how, const text_batch& text, real share, const_reals gradient,
                        reals input_gradient, const optpipe::execution::backward_task& t) {
        const auto& layout = layouts_.at(how.again);
        const auto now = located_backward(how, t);
        differentiate(how, text, share, gradient, input_gradient, now);
        const auto later = layout.after_input_gradient(sizes_of(how, t), now.places);
        const task_memory memory{{t.kept, t.restored_kept, t.added}, {}};
        for (std::size_t i = 0; i < layout.pieces().size(); ++i) {
            const auto& each = layout.pieces()[i];
            const bool is_there = layout.stays(i, now.places) && now.pieces[i].size() == 1;
            if (each.is_kept && !is_there) scatter(now.kept.at(each.where), memory.at(later.pieces[i]));
        }
    }
    void backward_weight(const stash_storage& how, const text_batch& text, const optpipe::execution::weight_task& t) {
        const auto& layout = layouts_.at(how.again);
        const auto sizes = sizes_of(how, t);
        const auto now = locate(layout, layout.after_input_gradient(sizes, layout.after_recompute(sizes)),
                                {{t.kept, t.restored_kept, t.added}, {}});
        for (const bool restored : {false, true})
            read_divided(layout, now, restored);
        stage_->backward_weight(text, now.kept);
    }
    void backward(const stash_storage& how, const text_batch& text, real share, const_reals gradient,
                  reals input_gradient, const optpipe::execution::backward_task& t) {
        const auto now = located_backward(how, t);
        differentiate(how, text, share, gradient, input_gradient, now);
        stage_->backward_weight(text, now.kept);
    }

private:
    struct task_memory {
        std::vector<reals> lasting, rest;

        task_memory(std::initializer_list<stash_part> kept, std::initializer_list<stash_part> freed)
            : lasting{pieces_of(kept)}, rest{pieces_of(freed)} {}
        [[nodiscard]] std::vector<reals> at(const std::vector<stretch>& which) const {
            std::vector<reals> found;
            for (const auto& each : which)
                add(each.lasts ? lasting : rest, each, found);
            return found;
        }

    private:
        static void add(const std::vector<reals>& from, const stretch& which, std::vector<reals>& found) {
            std::size_t skipped = which.begin;
            std::size_t left = which.size;
            for (const auto each : from) {
                if (left == 0) return;
                const auto begin = std::min(skipped, each.size());
                skipped -= begin;
                const auto now = each.subspan(begin, std::min(left, each.size() - begin));
                if (!now.empty()) found.push_back(now);
                left -= now.size();
            }
            if (left > 0) throw std::logic_error{"a task has less memory than its stash takes"};
        }
    };
    /// A stash as the stage uses it: pieces that are split in memory are in workspace.
    struct located_stash {
        stash_places places;
        std::vector<std::vector<reals>> pieces{};
        std::vector<reals> input{};
        scattered<real> kept{}, freed{};
    };

    [[nodiscard]] located_stash locate(const stash_layout& layout, stash_places places, const task_memory& memory) {
        located_stash found{std::move(places)};
        for (std::size_t i = 0; i < layout.pieces().size(); ++i) {
            const auto& each = layout.pieces()[i];
            const auto& at = found.pieces.emplace_back(memory.at(found.places.pieces[i]));
            (each.is_kept ? found.kept : found.freed).add(each.where, at.size() == 1 ? at.front() : workspace_of(each));
        }
        found.input = memory.at(found.places.input);
        return found;
    }
    [[nodiscard]] located_stash located_backward(const stash_storage& how, const optpipe::execution::backward_task& t) {
        const auto& layout = layouts_.at(how.again);
        return locate(layout, layout.after_recompute(sizes_of(how, t)),
                      {{t.kept, t.restored_kept, t.added}, {t.freed, t.restored_freed}});
    }
    template <class Task> [[nodiscard]] static stash_sizes sizes_of(const stash_storage& how, const Task& t) {
        const stash_part kept = t.kept; // nvcc 13.0 loses the type in a list of a task's parts
        const stash_part restored = t.restored_kept;
        const stash_part added = t.added;
        return {size_of({kept}), size_of({kept, restored, added}), how.again != recomputation::none && !how.inside};
    }
    [[nodiscard]] reals workspace_of(const stash_piece& which) {
        return which.where.of(Stage::of(which.is_kept ? kept_ : freed_));
    }
    [[nodiscard]] static std::vector<reals> pieces_of(std::initializer_list<stash_part> parts) {
        std::vector<reals> all;
        for (const auto& part : parts)
            for (const auto& each : part)
                all.push_back({reinterpret_cast<real*>(each.data()), each.size() / sizeof(real)});
        return all;
    }
    [[nodiscard]] static std::size_t size_of(std::initializer_list<stash_part> parts) {
        std::size_t size = 0;
        for (const auto& each : pieces_of(parts))
            size += each.size();
        return size;
    }

    void scatter(const_reals from, const std::vector<reals>& to) {
        std::size_t done = 0;
        for (const auto each : to) {
            stage_->copy(from.subspan(done, each.size()), each);
            done += each.size();
        }
    }
    void gather(const std::vector<reals>& from, reals to) {
        std::size_t done = 0;
        for (const auto each : from) {
            stage_->copy(each, to.subspan(done, each.size()));
            done += each.size();
        }
    }
    /// Calls `action(pieces, workspace)` for each piece that is split in memory.
    template <class Action>
    void for_each_divided(const stash_layout& layout, const located_stash& now, bool restored, const Action& action) {
        for (std::size_t i = 0; i < layout.pieces().size(); ++i)
            if (const auto& each = layout.pieces()[i]; each.is_restored == restored && now.pieces[i].size() > 1)
                action(now.pieces[i], workspace_of(each));
    }
    void read_divided(const stash_layout& layout, const located_stash& now, bool restored) {
        for_each_divided(layout, now, restored, [this](const auto& at, reals copy) { gather(at, copy); });
    }
    void write_back(const stash_layout& layout, const located_stash& now, bool restored) {
        for_each_divided(layout, now, restored, [this](const auto& at, reals copy) { scatter(copy, at); });
    }

    void restore(const stash_storage& how, const text_batch& text, const located_stash& now) {
        auto input = Stage::of(input_);
        if (now.input.size() == 1)
            input = now.input.front();
        else
            gather(now.input, input);
        stage_->recompute(how.again, text, input, now.kept, now.freed);
    }
    void differentiate(const stash_storage& how, const text_batch& text, real share, const_reals gradient,
                       reals input_gradient, const located_stash& now) {
        const auto& layout = layouts_.at(how.again);
        read_divided(layout, now, false);
        if (how.inside)
            restore(how, text, now);
        else
            read_divided(layout, now, true);
        stage_->backward_input(text, share, gradient, now.kept, now.freed, input_gradient);
    }

    Stage* stage_;
    std::map<recomputation, stash_layout> layouts_{};
    typename Stage::storage kept_, freed_, input_;
};

/// Gives every stage of a problem the storage options. A full recomputation takes as long as a forward; that of
/// attention takes three tenths of it, that of activations one tenth. `transfer` is the time to move a whole stash to
/// the host, or back.
template <class Real, class Math>
void set_storage(optpipe::problem& p, const std::vector<model_stage<Real, Math>>& stages,
                 const std::vector<stash_storage>& options, optpipe::duration transfer) {
    const auto bytes = [](std::size_t elements) {
        return optpipe::memory_size{static_cast<double>(sizeof(Real) * elements)};
    };
    const auto share_of_forward = [](recomputation again) {
        switch (again) {
        case recomputation::none: return 0.0;
        case recomputation::attention: return 0.3;
        case recomputation::feed_forward: return 0.1;
        case recomputation::full: return 1.0;
        }
        return 0.0;
    };
    for (const auto s : p.graph.all_stages()) {
        const auto& stage = stages[s.position()];
        const auto& costs = p.costs[s];
        p.storage[s].clear();
        for (const auto& how : options) {
            const auto held = stash_layout{stage, how.again}.held();
            optpipe::storage_option option{how.name, bytes(held), {}, {}, {}, {}};
            (how.inside ? option.backward_extra : option.recompute) = share_of_forward(how.again) * costs.forward;
            if (how.offloaded > 0.0) {
                const auto moved = static_cast<std::size_t>(how.offloaded * static_cast<double>(held));
                const auto time =
                    static_cast<double>(moved) / static_cast<double>(stage.kept() + stage.freed()) * transfer;
                option.transfer_size = bytes(moved);
                option.transfer = optpipe::transfer_times{time, time};
            }
            p.storage[s].push_back(option);
        }
    }
}

} // namespace language_model
