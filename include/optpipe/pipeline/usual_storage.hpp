#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <optional>
#include <string_view>

namespace optpipe {

/// Time in milliseconds to move `size` over a link with this rate in GB/s. 0 if the rate is infinite.
[[nodiscard]] constexpr duration time_over(memory_size size, double gigabytes_per_second) {
    return duration{size.value() / gigabytes_per_second * 1e3};
}
/// Times to move `size` to the host and back at this rate in each direction. Empty if the rate is 0.
[[nodiscard]] constexpr std::optional<transfer_times> transfers_over(memory_size size, double gigabytes_per_second) {
    if (gigabytes_per_second <= 0.0) return std::nullopt;
    const auto one_way = time_over(size, gigabytes_per_second);
    return transfer_times{one_way, one_way};
}

/// Makes the storage options of a stage. One of the options is `keep`. Each recomputable part of the stash adds two
/// options, inside the backward and ahead of the backward (`-ahead`). With a host link, each option also has two
/// variants that offload. A variant whose name ends in `+offload` transfers all of the held memory. A variant whose
/// name ends in `+offload-half` transfers half of the held memory. The variants of `keep` are called `offload` and
/// `offload-half`.
class usual_storage {
public:
    /// `host_link_rate` is the rate of the rank's host link in GB/s, or 0 without a link.
    OPTPIPE_CONSTEXPR usual_storage(const stage_costs& kept, double host_link_rate)
        : activation_{kept.activation}, host_link_rate_{host_link_rate} {
        add(keep_stash(kept));
    }

    /// Adds the options that drop the memory `saved` from the stash. Recomputing this memory takes the time `again`.
    OPTPIPE_CONSTEXPR void add(std::string_view name, memory_size saved, duration again) {
        const auto held = activation_ - saved;
        add({name, held, {}, again, {}, {}});
        add({{name, "-ahead"}, held, again, {}, {}, {}});
    }
    [[nodiscard]] constexpr const storage_list<false>& options() const { return options_; }

private:
    OPTPIPE_CONSTEXPR void add(const storage_option& option) {
        options_.push_back(option);
        if (host_link_rate_ <= 0.0) return;
        const bool is_kept = option.name == "keep";
        for (const bool whole : {true, false}) {
            auto moved = option;
            moved.name = is_kept ? bounded_text<32>{"offload"} : bounded_text<32>{option.name.view(), "+offload"};
            if (!whole) moved.name.append("-half");
            moved.transfer_size = (whole ? 1.0 : 0.5) * option.held;
            moved.transfer = transfers_over(moved.transfer_size, host_link_rate_);
            options_.push_back(moved);
        }
    }

    memory_size activation_;
    double host_link_rate_;
    storage_list<false> options_{};
};

} // namespace optpipe
