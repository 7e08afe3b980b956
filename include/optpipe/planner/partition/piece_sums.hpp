#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Sums over the first pieces of a chain, for each number of pieces.
///
/// Options that hold less memory take more of the rank's work. Let memory have any price. Work + price of held memory ≤
/// time + price of all memory (weak duality of the linear program that mixes options). At the best price, two options
/// of a layer cost the same, or the price is unlimited. All other prices only weaken the bound.
class piece_sums {
    /// Limit on the number of prices. Layers seldom have more than four options. Four options change places at six
    /// prices.
    static constexpr std::size_t most_prices = 8;

public:
    /// Sums over pieces, for one microbatch at speed 1.
    struct sums {
        duration work{};
        duration forward{};
        duration gradient{};
        memory_size fixed{};
        memory_size weight_stash{};
        /// `kept` is the least memory of a stash from its forward to its gradient. `kept_by_default` is the least
        /// memory without additional work.
        memory_size kept{};
        memory_size kept_by_default{};
        /// The least memory that a stash takes before it is moved, the least times to move it, and the number of layers
        /// with a storage option that moves it.
        memory_size held{};
        duration offload{};
        duration reload{};
        std::size_t offloading = 0;
        /// For each price, the least additional work plus price of kept memory.
        std::array<duration, most_prices> priced{};

        friend sums operator-(sums a, const sums& b) {
            a.work -= b.work;
            a.forward -= b.forward;
            a.gradient -= b.gradient;
            a.fixed -= b.fixed;
            a.weight_stash -= b.weight_stash;
            a.kept -= b.kept;
            a.kept_by_default -= b.kept_by_default;
            a.held -= b.held;
            a.offload -= b.offload;
            a.reload -= b.reload;
            a.offloading -= b.offloading;
            for (std::size_t k = 0; k < a.priced.size(); ++k)
                a.priced[k] -= b.priced[k];
            return a;
        }
    };

    /// `work[i]` is a lower bound on the time of a rank of speed 1 for piece i, per microbatch. Without prices if two
    /// operations may run at the same time (`in_pairs`).
    piece_sums(const partition_problem& p, const layer_cuts& cuts, const std::vector<duration>& work,
               bool split_backward, bool in_pairs)
        : prices_{in_pairs ? std::vector<double>{} : prices_of(p)}, moving_{moving_options(p)}, before_(1) {
        for (std::size_t piece = 0; piece < cuts.pieces(); ++piece) {
            auto sum = before_.back();
            sum.work += work[piece];
            for (const auto layer : cuts.layers_of(piece))
                add(sum, p.layers[layer], split_backward);
            before_.push_back(sum);
        }
    }

    [[nodiscard]] std::size_t pieces() const { return before_.size() - 1; }
    /// The sums over the first `pieces` pieces.
    [[nodiscard]] const sums& operator[](std::size_t pieces) const { return before_[pieces]; }
    [[nodiscard]] const sums& back() const { return before_.back(); }
    [[nodiscard]] const std::vector<sums>& all() const { return before_; }
    /// Prices of a unit of memory, as times, in ascending order.
    [[nodiscard]] const std::vector<double>& prices() const { return prices_; }
    /// A lower bound on the least additional work plus price of kept memory. The least sum is a concave function of the
    /// price, and lies above its chords. The slope of the function is at least the least kept memory.
    [[nodiscard]] duration priced(const sums& of, double price) const {
        const auto above =
            static_cast<std::size_t>(std::upper_bound(prices_.begin(), prices_.end(), price) - prices_.begin());
        const auto from = above == 0 ? 0.0 : prices_[above - 1];
        const auto at_from = above == 0 ? duration{} : of.priced[above - 1];
        if (above == prices_.size()) return at_from + duration{(price - from) * of.kept.value()};
        return at_from + (price - from) / (prices_[above] - from) * (of.priced[above] - at_from);
    }

private:
    void add(sums& sum, const layer_costs& layer, bool split_backward) const {
        const auto& c = layer.costs;
        sum.forward += c.forward;
        sum.gradient += split_backward ? c.backward_input : c.backward();
        sum.fixed += layer.static_memory;
        sum.weight_stash += c.weight_stash;
        if (c.gradients != gradient_kind::none) add_kept(sum, listed_storage(layer));
    }
    void add_kept(sums& sum, const storage_list<false>& options) const {
        const auto least = [&](const auto& value_of) {
            auto best = value_of(options.front());
            for (const auto& option : options)
                best = std::min(best, value_of(option));
            return best;
        };
        sum.kept += least([](const storage_option& o) { return o.left_on_device(); });
        sum.kept_by_default += least([](const storage_option& o) {
                                   return std::pair{o.extra_work(), o.left_on_device()};
                               }).second;
        add_moved(sum, options);
        for (std::size_t k = 0; k < prices_.size(); ++k)
            sum.priced[k] += least([&](const storage_option& o) {
                return o.extra_work() + duration{prices_[k] * o.left_on_device().value()};
            });
    }
    /// Adds the layer's least transfer. A stage's option has the same name in all of the stage's layers, and a layer
    /// may move nothing in an option in which another layer moves its stash.
    void add_moved(sums& sum, const storage_list<false>& options) const {
        auto held = memory_size::unlimited();
        transfer_times least{duration::unlimited(), duration::unlimited()};
        bool is_moved = false;
        for (const auto& option : options) {
            held = std::min(held, option.held);
            is_moved = is_moved || option.transfer;
            if (std::find(moving_.begin(), moving_.end(), option.name) == moving_.end()) continue;
            const auto transfer = option.transfer.value_or(transfer_times{});
            least.offload = std::min(least.offload, transfer.offload);
            least.reload = std::min(least.reload, transfer.reload);
        }
        sum.held += held;
        if (!is_moved) return;
        sum.offload += least.offload;
        sum.reload += least.reload;
        ++sum.offloading;
    }
    using option_names = std::vector<decltype(storage_option::name)>;
    /// The names of the options in which some layer moves its stash.
    static option_names moving_options(const partition_problem& p) {
        option_names names;
        for (const auto& layer : p.layers) {
            if (layer.costs.gradients == gradient_kind::none) continue;
            for (const auto& option : listed_storage(layer))
                if (option.transfer && std::find(names.begin(), names.end(), option.name) == names.end())
                    names.push_back(option.name);
        }
        return names;
    }
    /// The prices at which two options of a layer cost the same, in ascending order. A price is the time for a unit of
    /// memory. If there are too many prices, only every n-th price is kept.
    static std::vector<double> prices_of(const partition_problem& p) {
        std::vector<double> all;
        for (const auto& layer : p.layers) {
            const auto options = listed_storage(layer);
            for (const auto& a : options)
                for (const auto& b : options)
                    if (a.extra_work() < b.extra_work() && a.left_on_device() > b.left_on_device())
                        all.push_back((b.extra_work() - a.extra_work()).value() /
                                      (a.left_on_device() - b.left_on_device()).value());
        }
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        std::vector<double> some;
        const auto step = (all.size() + most_prices - 1) / most_prices;
        for (std::size_t i = 0; i < all.size(); i += step)
            some.push_back(all[i]);
        return some;
    }

    std::vector<double> prices_;
    option_names moving_;
    std::vector<sums> before_;
};

} // namespace optpipe::detail
