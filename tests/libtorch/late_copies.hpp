#pragma once

#include "libtorch/torch_and_doctest.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/libtorch/executor.hpp"
#include "optpipe/execution/libtorch/held_memory.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/issue_order.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

/// One rank whose lanes are like streams: work is done when it is issued, but copies end as late as the program's waits
/// allow.
namespace late_copies {

using optpipe::operation;

/// Copies that have been issued. Each is done when a task starts that the program orders after it.
class copy_queue {
public:
    explicit copy_queue(const optpipe::rank_program& p) {
        std::map<optpipe::lane_kind, std::size_t> last;
        for (const auto& task : optpipe::issue_order(p)) {
            const std::size_t own = ended_before_.size();
            std::set<std::size_t> ended;
            const auto add = [&](std::size_t other) {
                ended.insert(other);
                ended.insert(ended_before_[other].begin(), ended_before_[other].end());
            };
            for (const auto other : task.after)
                add(other);
            if (const auto before = last.find(task.lane); before != last.end()) add(before->second);
            last[task.lane] = own;
            position_[task.what.op] = own;
            ended_before_.push_back(std::move(ended));
        }
    }
    /// Does the copies that end before this task starts.
    void begin(const operation& task) {
        const auto& ended = ended_before_.at(position_.at(task));
        while (!issued_.empty() && ended.contains(issued_.front().by)) {
            run(issued_.front());
            issued_.erase(issued_.begin());
        }
        for (const auto& each : issued_)
            if (ended.contains(each.by)) throw optpipe::error{"copies end in another order than they are issued"};
    }
    /// Until the copy is done, nobody should use what `to` has.
    void put(const operation& task, const at::Tensor& to, const at::Tensor& from) {
        std::memset(to.mutable_data_ptr(), 0xFF, to.nbytes()); // numbers that are NaN
        issued_.push_back({position_.at(task), to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                           to.storage().getWeakStorageImpl(), from.storage().getWeakStorageImpl()});
    }
    void finish() {
        for (auto& each : issued_)
            run(each);
        issued_.clear();
    }

private:
    using weak_memory = c10::weak_intrusive_ptr<c10::StorageImpl>;
    struct copy {
        std::size_t by;
        void* to;
        const void* from;
        std::size_t bytes;
        weak_memory to_memory, from_memory;
    };
    static void run(copy& each) {
        const auto to = each.to_memory.lock();
        const auto from = each.from_memory.lock();
        if (!to || !from) throw optpipe::error{"memory was freed before its copy ended"};
        std::memcpy(each.to, each.from, each.bytes);
    }

    std::map<operation, std::size_t> position_;
    std::vector<std::set<std::size_t>> ended_before_;
    std::vector<copy> issued_;
};

/// The memory under test, with late copies.
class memory final : public optpipe::libtorch::held_memory {
public:
    explicit memory(const optpipe::rank_program& p) : held_memory{p}, copies_{p} {}

    void copy(const at::Tensor& to, const at::Tensor& from) override {
        if (now_)
            copies_.put(*now_, to, from);
        else
            to.copy_(from); // in a rehearsal, as in a single stream
    }
    void begin(const operation& op) override {
        now_ = op;
        copies_.begin(op);
        held_memory::begin(op);
    }
    void end(const operation& op) override {
        held_memory::end(op);
        now_.reset();
    }
    void end_step() override {
        copies_.finish();
        held_memory::end_step();
    }

private:
    copy_queue copies_;
    std::optional<operation> now_{};
};

struct lane {
    struct marker {};
    template <optpipe::execution::small_work Work> void launch(const optpipe::task_label&, const Work& work) {
        work(*this);
    }
    void record(marker&) {}
    void wait(const marker&) {}
    [[nodiscard]] std::span<const optpipe::execution::task_times> times() const { return {}; }
    void forget_times() {}
};

struct slab {
    [[nodiscard]] std::span<std::byte> memory() const { return {}; }
};
struct arenas {
    static slab device(std::size_t) { return {}; }
    static slab host(std::size_t) { return {}; }
};
struct transport {
    void exchange(lane&, optpipe::execution::message_ends) const {}
};

class executor {
public:
    using lane_type = late_copies::lane;

    [[nodiscard]] optpipe::rank self() const { return {}; }
    [[nodiscard]] std::size_t ranks() const { return 1; }
    [[nodiscard]] lane_type open_lane(optpipe::lane_kind, std::size_t) { return {}; }
    [[nodiscard]] lane_type::marker make_marker() { return {}; }
    [[nodiscard]] late_copies::transport& transport() { return transport_; }
    [[nodiscard]] arenas& memory() { return arenas_; }
    void finish() {}
    void cancel(std::string_view, std::string_view) {}

private:
    late_copies::transport transport_;
    arenas arenas_;
};

} // namespace late_copies

template <> struct optpipe::libtorch::lane_traits<late_copies::lane> {
    struct scope {
        explicit scope(late_copies::lane&) {}
    };
    static constexpr bool is_host = true;
    static std::unique_ptr<stash_memory> make_memory(const rank_program& p) {
        return std::make_unique<late_copies::memory>(p);
    }
};
