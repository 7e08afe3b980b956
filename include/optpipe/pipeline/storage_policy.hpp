#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace optpipe {

/// A storage option of a stage, as seen by a policy.
struct storage_candidate {
    optpipe::stage stage{};
    stage_costs costs{};
    storage_option option{};
    /// Shortest time from the start of the stage's forward to the end of its input gradient.
    duration lifespan{};
    /// `position` is the stage's position on its rank, by lifespan, longest first. `stages_on_rank` is the number of
    /// stages on the rank.
    std::size_t position = 0;
    std::size_t stages_on_rank = 1;

    /// Whether the stage's lifespan is among the longest on its rank. `share` (0 to 1) is the share of the rank's
    /// stages that count.
    [[nodiscard]] constexpr bool is_among_longest(double share) const {
        return static_cast<double>(position) < share * static_cast<double>(stages_on_rank);
    }
};

template <class P> concept has_allows = requires(const P& policy, const storage_candidate& candidate) {
    { policy.allows(candidate) } -> std::same_as<bool>;
};

/// Decides which storage options a stage may use. A stage with no allowed option keeps its stashes.
///
/// Semantics: the answer depends on the candidate alone.
template <class P> concept storage_policy = std::copyable<P> && has_allows<P>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class P> consteval bool check_storage_policy() {
    static_assert(std::copyable<P>, "storage policy: must be copyable");
    static_assert(has_allows<P>, "storage policy: needs `bool allows(const storage_candidate&) const`");
    return storage_policy<P>;
}

namespace storage {

/// Allows options by kind, as in `keep | offload | selective`. An option that recomputes and also offloads needs
/// permission for recomputing and for offloading.
struct kinds {
    bool keeps = false;
    bool offloads = false;
    /// Whether recomputation of at most half of the forward is allowed.
    bool recomputes_some = false;
    /// Whether recomputation of more than half of the forward is allowed.
    bool recomputes_all = false;

    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const {
        if (c.option.offloads() && !offloads) return false;
        const auto again = c.option.extra_work();
        if (again <= duration{}) return c.option.offloads() || keeps;
        return again > 0.5 * c.costs.forward ? recomputes_all : recomputes_some;
    }
    friend constexpr kinds operator|(kinds a, kinds b) {
        return {a.keeps || b.keeps, a.offloads || b.offloads, a.recomputes_some || b.recomputes_some,
                a.recomputes_all || b.recomputes_all};
    }
    friend constexpr bool operator==(const kinds&, const kinds&) = default;
};
inline constexpr kinds keep{.keeps = true};
/// Allows options that offload the whole stash or a part of it.
inline constexpr kinds offload{.offloads = true};
/// Allows options that recompute at most half of the forward (Korthikanti et al., 2022), such as norms and the
/// attention core.
inline constexpr kinds selective{.recomputes_some = true};
inline constexpr kinds full{.recomputes_all = true};

/// Allows only the option named `name`, on every stage that has it.
struct uniform {
    bounded_text<32> name{};
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const { return c.option.name == name; }
};

/// Gives the option `name` to the stages with the longest lifespans on each rank (PipeOffload). `share` (0 to 1) is the
/// share of the rank's stages that get the option. The remaining stages of the rank keep their stashes.
struct longest_lifespan_first {
    double share = 0.5;
    bounded_text<32> name{"offload"};
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const {
        return c.is_among_longest(share) ? c.option.name == name : keep.allows(c);
    }
};

/// Allows all options; the planner chooses for each microbatch.
struct solver_decides {
    [[nodiscard]] constexpr bool allows(const storage_candidate&) const { return true; }
};

static_assert(storage_policy<kinds> && storage_policy<uniform> && storage_policy<longest_lifespan_first> &&
              storage_policy<solver_decides>);

} // namespace storage

namespace detail {

template <class M> consteval auto storage_member() {
    if constexpr (requires { &M::storage; })
        return &M::storage;
    else
        return nullptr;
}

} // namespace detail

/// A memory model that also describes how a stash may be stored.
///
/// Semantics: `storage(s, S)` returns the storage options of stage s of S stages. The options of a stage have distinct
/// names. One option keeps the full activation in `costs(s, S)`.
template <class M> concept has_storage = requires(const M& model, stage s, std::size_t stages) {
    { model.storage(s, stages) } -> std::same_as<storage_list<false>>;
};

/// Refuses a memory model whose `storage` member has the wrong type; otherwise the member would be ignored.
template <class M> consteval bool check_storage_of() {
    static_assert(has_storage<M> || !std::is_member_function_pointer_v<decltype(detail::storage_member<M>())>,
                  "memory model: its storage must be `storage_list<false> storage(stage, std::size_t stages) const`");
    return true;
}

} // namespace optpipe
