#pragma once

#include "layout.hpp"
#include "stage.hpp"
#include <optpipe/execution/stage_model.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/pipeline/storage.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// How a stash is stored: what of it is recomputed, when, and how much of what is left is offloaded.
struct stash_storage {
    std::string_view name;
    recomputation again = recomputation::none;
    /// In the backward, instead of a RECOMPUTE ahead of it.
    bool inside = false;
    double offloaded = 0.0;
};

/// Keeps the stash of a stage as an option says: the forward leaves what isn't recomputed, packed one behind the other.
/// Stashes may lie in pieces. The stage works in one that is whole and lies in one piece; else in a stash of workspace.
/// What it does on a device it only puts into the queue.
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
    }

    /// Elements that the forward leaves.
    [[nodiscard]] static std::size_t held(const Stage& stage, recomputation again) {
        std::size_t size = takes_input(stage, again) ? stage.boundary() : 0;
        for (const auto& each : retained(stage, again))
            size += each.where.size;
        return size;
    }

    void forward(const stash_storage& how, const text_batch& text, const_reals input, reals output,
                 const optpipe::execution::forward_task& t) {
        if (const auto at = in_place(how, t.kept, t.freed))
            return stage_->forward(text, input, at->kept, at->freed, output);
        stage_->forward(text, input, kept(), freed(), output);
        const auto to = pieces_of({t.kept, t.freed});
        cursor at;
        if (takes_input(*stage_, how.again)) scatter(input, to, at);
        for (const auto& each : retained(*stage_, how.again))
            scatter(each.where.of(each.is_kept ? kept() : freed()), to, at);
    }
    void recompute(const stash_storage& how, const text_batch& text, const optpipe::execution::recompute_task& t) {
        restore(how, text, pieces_of({t.kept, t.freed}));
        cursor first, second;
        scatter(kept(), pieces_of({t.kept, t.restored_kept}), first);
        scatter(freed(), pieces_of({t.freed, t.restored_freed}), second);
    }
    void backward_input(const stash_storage& how, const text_batch& text, real share, const_reals gradient,
                        reals input_gradient, const optpipe::execution::backward_task& t) {
        if (const auto at = in_place(how, t.kept, t.freed))
            return stage_->backward_input(text, share, gradient, at->kept, at->freed, input_gradient);
        find_whole(how, text, t);
        stage_->backward_input(text, share, gradient, kept(), freed(), input_gradient);
        cursor at;
        scatter(kept(), pieces_of({t.kept, t.restored_kept, t.added}), at);
    }
    void backward_weight(const text_batch& text, const optpipe::execution::weight_task& t) {
        if (const auto all = one_piece(t.kept, stage_->kept())) return stage_->backward_weight(text, *all);
        cursor at;
        gather(pieces_of({t.kept, t.restored_kept, t.added}), at, kept());
        stage_->backward_weight(text, kept());
    }
    void backward(const stash_storage& how, const text_batch& text, real share, const_reals gradient,
                  reals input_gradient, const optpipe::execution::backward_task& t) {
        if (const auto at = in_place(how, t.kept, t.freed)) {
            stage_->backward_input(text, share, gradient, at->kept, at->freed, input_gradient);
            return stage_->backward_weight(text, at->kept);
        }
        find_whole(how, text, t);
        stage_->backward_input(text, share, gradient, kept(), freed(), input_gradient);
        stage_->backward_weight(text, kept());
    }

private:
    struct retained_piece {
        bool is_kept;
        piece where;
    };
    /// Which piece comes next, and how much of it has been passed.
    struct cursor {
        std::size_t piece = 0;
        std::size_t offset = 0;
    };

    [[nodiscard]] static bool takes_input(const Stage& stage, recomputation again) {
        return again == recomputation::full && !stage.is_first();
    }
    [[nodiscard]] static std::vector<retained_piece> retained(const Stage& stage, recomputation again) {
        const auto restored = stage.restored_by(again);
        std::vector<retained_piece> all;
        for (const auto& where : rest_of(stage.kept(), restored.kept))
            all.push_back({true, where});
        for (const auto& where : rest_of(stage.freed(), restored.freed))
            all.push_back({false, where});
        return all;
    }

    [[nodiscard]] reals kept() { return Stage::of(kept_); }
    [[nodiscard]] reals freed() { return Stage::of(freed_); }
    [[nodiscard]] reals input() { return Stage::of(input_); }

    struct whole_stash {
        reals kept, freed;
    };
    /// A whole stash, packed, lies as the stage has it.
    [[nodiscard]] std::optional<whole_stash> in_place(const stash_storage& how, stash_part kept,
                                                      stash_part freed) const {
        if (how.again != recomputation::none) return std::nullopt;
        const auto first = one_piece(kept, stage_->kept());
        const auto second = one_piece(freed, stage_->freed());
        return first && second ? std::optional{whole_stash{*first, *second}} : std::nullopt;
    }
    /// So many elements, if the part is no more and no less, in one piece.
    [[nodiscard]] static std::optional<reals> one_piece(stash_part part, std::size_t size) {
        const auto pieces = pieces_of({part});
        return pieces.size() == 1 && pieces.front().size() == size ? std::optional{pieces.front()} : std::nullopt;
    }
    [[nodiscard]] static std::vector<reals> pieces_of(std::initializer_list<stash_part> parts) {
        std::vector<reals> all;
        for (const auto& part : parts)
            for (const auto& each : part)
                all.push_back({reinterpret_cast<real*>(each.data()), each.size() / sizeof(real)});
        return all;
    }
    /// Calls `copy(offset, piece)` for the next `size` elements of the pieces.
    template <class Copy> static void walk(const std::vector<reals>& pieces, cursor& at, std::size_t size, Copy copy) {
        for (std::size_t done = 0; done < size;) {
            const auto left = pieces.at(at.piece).subspan(at.offset);
            const auto now = left.first(std::min(left.size(), size - done));
            if (!now.empty()) copy(done, now);
            done += now.size();
            at.offset += now.size();
            if (now.size() == left.size()) at = {at.piece + 1, 0};
        }
    }
    void scatter(const_reals from, const std::vector<reals>& to, cursor& at) {
        walk(to, at, from.size(),
             [&](std::size_t done, reals piece) { stage_->copy(from.subspan(done, piece.size()), piece); });
    }
    void gather(const std::vector<reals>& from, cursor& at, reals to) {
        walk(from, at, to.size(),
             [&](std::size_t done, reals piece) { stage_->copy(piece, to.subspan(done, piece.size())); });
    }

    /// The whole stash in the workspace, from what the forward left.
    void restore(const stash_storage& how, const text_batch& text, const std::vector<reals>& held) {
        cursor at;
        if (takes_input(*stage_, how.again)) gather(held, at, input());
        for (const auto& each : retained(*stage_, how.again))
            gather(held, at, each.where.of(each.is_kept ? kept() : freed()));
        stage_->recompute(how.again, text, input(), kept(), freed());
    }
    /// The same for a backward.
    void find_whole(const stash_storage& how, const text_batch& text, const optpipe::execution::backward_task& t) {
        if (how.again == recomputation::none || how.inside) return restore(how, text, pieces_of({t.kept, t.freed}));
        cursor first, second;
        gather(pieces_of({t.kept, t.restored_kept}), first, kept());
        gather(pieces_of({t.freed, t.restored_freed}), second, freed());
    }

    Stage* stage_;
    typename Stage::storage kept_, freed_, input_;
};

/// Gives every stage of a problem the storage options. A full recomputation takes as long as a forward, of attention
/// three tenths of it, of activations one tenth. `transfer`: how long a whole stash takes to the host, and back.
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
        auto& costs = p.costs[s];
        costs.transfer.reset();
        for (const auto& how : options) {
            const auto held = stash_packer<model_stage<Real, Math>>::held(stage, how.again);
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
