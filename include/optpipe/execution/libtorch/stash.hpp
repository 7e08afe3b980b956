#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/libtorch/autocast.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/random.hpp"
#include "optpipe/execution/libtorch/saved_tensors.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

using tensors = std::vector<at::Tensor>;
using stage_function = std::function<tensors(const tensors&)>;

/// Identifies a tensor that a stage saves. A key has a group, and the position of the tensor in the group. The same key
/// identifies the same tensor in all microbatches.
struct saved_key {
    enum class group : std::uint8_t { forward, gradient, recomputed };
    group of = group::forward;
    /// For a tensor of a recomputed part, the index of this part.
    std::size_t part = 0;
    std::size_t position = 0;
    friend constexpr auto operator<=>(const saved_key&, const saved_key&) = default;
};
using saved_keys = std::set<saved_key>;

/// The object that autograd holds in place of a saved tensor.
struct saved_item {
    std::shared_ptr<block> memory{};
    saved_key key{};
    /// A weight is held directly in this member. A tensor that isn't a weight is a view of `memory`.
    at::Tensor weight{};
    at::ScalarType type = at::kFloat;
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes{}, strides{};

    [[nodiscard]] at::Tensor tensor() const {
        if (!memory || !memory->is_on_device())
            throw error{"a saved tensor isn't on the device: do all microbatches of the stage have one graph?"};
        const auto& storage = memory->storage();
        return at::empty({0}, at::TensorOptions{type}.device(storage.device())).set_(storage, offset, sizes, strides);
    }
};
using item_pointer = std::shared_ptr<saved_item>;

/// The task that uses a stash.
enum class stash_phase : std::uint8_t { forward, recompute, input_gradient, kept, weight_gradient, full_backward };

class recomputed_part;

/// The tensors that autograd saves for one microbatch on a stage. Autograd owns the saved memory, and frees it during
/// the backward. The stash only has weak pointers to saved memory. Only one task at a time may use a stash. The stash
/// must outlive the graph.
class stash final : public tensor_saver {
public:
    /// Addresses of a stage's own tensors, which aren't part of the stash.
    using weight_addresses = std::set<const void*>;

    /// `recomputed` has the names of the parts to recompute. `needed_by_weight` has the keys of the tensors that W
    /// needs, or is null if unknown. `draws_random` tells whether the forward may draw random numbers. All arguments
    /// except `draws_random` must outlive the stash.
    stash(stash_memory& memory, const weight_addresses& weights, const std::vector<std::string>& recomputed,
          const saved_keys* needed_by_weight, bool draws_random)
        : memory_{memory}, weights_{weights}, recomputed_{recomputed}, needed_by_weight_{needed_by_weight},
          draws_random_{draws_random} {}

    [[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

    [[nodiscard]] item_pointer pack(const at::Tensor& tensor, std::optional<saved_key> key = std::nullopt);
    [[nodiscard]] at::Tensor unpack(saved_item& item);

    void begin(stash_phase next) { phase_ = next; }
    [[nodiscard]] stash_phase phase() const { return phase_; }
    [[nodiscard]] bool draws_random() const { return draws_random_; }
    /// Whether W needs the item.
    [[nodiscard]] bool is_kept(const saved_item& item) const {
        return !needed_by_weight_ || needed_by_weight_->contains(item.key);
    }
    /// Called at the end of I. Frees everything that W doesn't need, and stores the given gradients for W.
    [[nodiscard]] std::vector<item_pointer> leave_for_weight(const tensors& gradients);
    /// Keys of the tensors that W has used.
    [[nodiscard]] const saved_keys& used_by_weight() const { return used_by_weight_; }

    /// Moves a share (0 to 1) of the stash to the host, rounded up to blocks. Blocks that W needs move first, then
    /// larger blocks before smaller ones.
    void move_to_host(double share);
    void move_to_device();

    /// Whether the forward recomputes the part with this name.
    [[nodiscard]] bool recomputes(std::string_view name) const {
        return std::find(recomputed_.begin(), recomputed_.end(), name) != recomputed_.end();
    }
    [[nodiscard]] tensors run_part(const stage_function& forward, const tensors& inputs);
    void recompute();
    /// Discards the parts, and thus the inputs that they hold.
    void close() { parts_.clear(); }

    /// The number of counted bytes on the device.
    [[nodiscard]] std::size_t bytes() const;

private:
    [[nodiscard]] std::vector<std::shared_ptr<block>> blocks_on_device() const;
    template <class Visit> void for_each_item(const Visit& visit) {
        for (const auto& weak : items_)
            if (const auto item = weak.lock()) visit(*item);
    }

    stash_memory& memory_;
    const weight_addresses& weights_;
    const std::vector<std::string>& recomputed_;
    const saved_keys* needed_by_weight_;
    bool draws_random_;
    stash_phase phase_ = stash_phase::forward;
    std::map<const void*, std::weak_ptr<block>> blocks_;
    std::vector<std::weak_ptr<saved_item>> items_;
    std::vector<std::shared_ptr<block>> offloaded_;
    std::vector<std::shared_ptr<recomputed_part>> parts_;
    saved_keys used_by_weight_;
    std::size_t count_ = 0;
};

/// The saved tensors of a recomputed part of a stage. The tensors are recomputed from the part's inputs, with the same
/// random state and autocast.
class recomputed_part final : public tensor_saver, public std::enable_shared_from_this<recomputed_part> {
public:
    recomputed_part(stash& owner, std::size_t number, stage_function forward, const tensors& inputs)
        : owner_{owner}, number_{number}, forward_{std::move(forward)} {
        if (!inputs.empty()) device_ = inputs.front().device();
        for (const auto& each : inputs) {
            inputs_.push_back(owner.pack(each));
            needs_gradient_.push_back(each.requires_grad());
        }
        if (owner.draws_random()) random_ = random_state(device_);
        autocast_ = autocast_state::of(device_.type());
    }

    [[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
    /// Returns tensor `number`. Recomputes the part if its tensors aren't there.
    [[nodiscard]] at::Tensor unpack(std::size_t number) {
        if (!items_) recompute();
        const auto item = items_->at(number);
        const auto tensor = owner_.unpack(*item);
        if (owner_.phase() == stash_phase::full_backward || owner_.phase() == stash_phase::weight_gradient)
            (*items_)[number].reset();
        return tensor;
    }
    [[nodiscard]] tensors run(const tensors& inputs) {
        const saving_scope scope{this};
        return forward_(inputs);
    }
    void recompute();

private:
    /// Collects the tensors that a recomputation restores.
    struct restored final : tensor_saver {
        explicit restored(recomputed_part& of) : part{of} {}
        [[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
        recomputed_part& part;
        std::vector<item_pointer> items{};
    };
    struct number_hooks;
    struct restored_hooks;

    stash& owner_;
    std::size_t number_;
    stage_function forward_;
    std::vector<item_pointer> inputs_;
    std::vector<bool> needs_gradient_;
    at::Device device_ = at::kCPU;
    at::Tensor random_;
    autocast_state autocast_;
    /// The number of tensors that the forward saved. The tensors of a recomputation are in `items_`.
    std::size_t count_ = 0;
    std::optional<std::vector<item_pointer>> items_;
};

/// Runs a part of a stage's forward that storage options may recompute. `forward` returns a tensor. If the storage
/// option recomputes the part `name`, its saved tensors are dropped after the forward. If the option doesn't recompute
/// this part, `part` only calls `forward`.
template <class Forward>
[[nodiscard]] at::Tensor part(std::string_view name, Forward forward, const at::Tensor& input) {
    auto* const saver = dynamic_cast<stash*>(detail::active_saver);
    if (!saver || !saver->recomputes(name)) return forward(input);
    return saver->run_part([forward](const tensors& of) { return tensors{forward(of.front())}; }, {input}).front();
}

namespace detail {

struct stash_hooks final : torch::autograd::SavedVariableHooks {
    explicit stash_hooks(stash& of) : owner{of} {}
    void call_pack_hook(const at::Tensor& tensor) override { item = owner.pack(tensor); }
    at::Tensor call_unpack_hook() override { return owner.unpack(*item); }
    stash& owner;
    item_pointer item{};
};

} // namespace detail

inline std::unique_ptr<torch::autograd::SavedVariableHooks> stash::hooks() {
    return std::make_unique<detail::stash_hooks>(*this);
}

inline item_pointer stash::pack(const at::Tensor& tensor, std::optional<saved_key> key) {
    auto item = std::make_shared<saved_item>();
    const auto& storage = tensor.storage();
    if (storage.nbytes() == 0 || weights_.contains(storage.data())) {
        item->weight = tensor.detach();
        return item;
    }
    auto& known = blocks_[storage.data()];
    item->memory = known.lock();
    if (!item->memory) {
        const bool is_workspace = phase_ == stash_phase::input_gradient || phase_ == stash_phase::weight_gradient ||
                                  phase_ == stash_phase::full_backward;
        known = item->memory = std::make_shared<block>(storage, memory_, !is_workspace);
    }
    item->key = key ? *key : saved_key{saved_key::group::forward, 0, count_++};
    item->type = tensor.scalar_type();
    item->offset = tensor.storage_offset();
    item->sizes = tensor.sizes().vec();
    item->strides = tensor.strides().vec();
    items_.push_back(item);
    return item;
}

inline at::Tensor stash::unpack(saved_item& item) {
    if (item.weight.defined()) return item.weight;
    auto tensor = item.tensor();
    if (phase_ == stash_phase::weight_gradient) used_by_weight_.insert(item.key);
    if (phase_ == stash_phase::input_gradient && !is_kept(item)) item.memory.reset();
    return tensor;
}

inline std::vector<item_pointer> stash::leave_for_weight(const tensors& gradients) {
    for_each_item([&](saved_item& item) {
        if (!is_kept(item)) item.memory.reset();
    });
    for_each_item([](saved_item& item) {
        if (item.memory) item.memory->count();
    });
    phase_ = stash_phase::kept;
    std::vector<item_pointer> held;
    for (const auto& each : gradients)
        held.push_back(pack(each, saved_key{saved_key::group::gradient, 0, held.size()}));
    return held;
}

inline std::vector<std::shared_ptr<block>> stash::blocks_on_device() const {
    std::vector<std::shared_ptr<block>> found;
    for (const auto& [address, weak] : blocks_)
        if (auto each = weak.lock(); each && each->is_on_device()) found.push_back(std::move(each));
    return found;
}

inline std::size_t stash::bytes() const {
    std::size_t sum = 0;
    for (const auto& each : blocks_on_device())
        if (each->is_counted()) sum += each->bytes();
    return sum;
}

inline void stash::move_to_host(double share) {
    std::set<const block*> for_weight;
    for_each_item([&](const saved_item& item) {
        if (item.memory && is_kept(item)) for_weight.insert(item.memory.get());
    });
    // Blocks are in the order of the saved tensors, because addresses differ between runs.
    std::vector<std::shared_ptr<block>> all;
    std::set<const block*> listed;
    for_each_item([&](const saved_item& item) {
        if (item.memory && listed.insert(item.memory.get()).second) all.push_back(item.memory);
    });
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
        const bool first = for_weight.contains(a.get());
        return first != for_weight.contains(b.get()) ? first : a->bytes() > b->bytes();
    });
    double left = share * static_cast<double>(bytes());
    constexpr double half_a_byte = 0.5;
    for (const auto& each : all) {
        if (left <= half_a_byte) break;
        left -= static_cast<double>(each->bytes());
        blocks_.erase(each->address());
        each->move_to_host();
        offloaded_.push_back(each);
    }
}

inline void stash::move_to_device() {
    for (const auto& each : offloaded_) {
        each->move_to_device();
        blocks_[each->address()] = each;
    }
    offloaded_.clear();
}

inline tensors stash::run_part(const stage_function& forward, const tensors& inputs) {
    parts_.push_back(std::make_shared<recomputed_part>(*this, parts_.size(), forward, inputs));
    return parts_.back()->run(inputs);
}

inline void stash::recompute() {
    phase_ = stash_phase::recompute;
    for (const auto& each : parts_)
        each->recompute();
}

/// Holds the number of a tensor in place of the tensor.
struct recomputed_part::number_hooks final : torch::autograd::SavedVariableHooks {
    explicit number_hooks(std::shared_ptr<recomputed_part> of) : part{std::move(of)} {}
    void call_pack_hook(const at::Tensor&) override { number = part->count_++; }
    at::Tensor call_unpack_hook() override { return part->unpack(number); }
    std::shared_ptr<recomputed_part> part;
    std::size_t number = 0;
};

struct recomputed_part::restored_hooks final : torch::autograd::SavedVariableHooks {
    explicit restored_hooks(restored& to) : into{&to}, owner{to.part.owner_} {}
    void call_pack_hook(const at::Tensor& tensor) override {
        item = owner.pack(tensor, saved_key{saved_key::group::recomputed, into->part.number_, into->items.size()});
        into->items.push_back(item);
    }
    at::Tensor call_unpack_hook() override { return owner.unpack(*item); }
    restored* into; // used while the recomputation runs
    stash& owner;
    item_pointer item{};
};

inline std::unique_ptr<torch::autograd::SavedVariableHooks> recomputed_part::hooks() {
    return std::make_unique<number_hooks>(shared_from_this());
}
inline std::unique_ptr<torch::autograd::SavedVariableHooks> recomputed_part::restored::hooks() {
    return std::make_unique<restored_hooks>(*this);
}

inline void recomputed_part::recompute() {
    const at::AutoGradMode with_gradients{true};
    std::optional<random_scope> random;
    if (random_.defined()) random.emplace(device_, random_);
    const autocast_scope casts{autocast_};
    tensors inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
        inputs.push_back(owner_.unpack(*inputs_[i]).detach().requires_grad_(needs_gradient_[i]));
    restored again{*this};
    {
        const saving_scope scope{&again};
        static_cast<void>(forward_(inputs));
    }
    if (again.items.size() != count_)
        throw error{"a forward saved " + std::to_string(count_) + " tensors, and " +
                    std::to_string(again.items.size()) + " when it was recomputed"};
    items_ = std::move(again.items);
}

} // namespace optpipe::libtorch
