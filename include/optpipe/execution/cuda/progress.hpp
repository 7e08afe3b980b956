#pragma once

#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/program/ir.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>

namespace optpipe::cuda::detail {

/// Waits until all work in a stream has ended, or until the deadline. Returns whether all work has ended. `check()` is
/// called repeatedly, and may throw.
template <class Check>
[[nodiscard]] bool await(stream_ref where, std::chrono::steady_clock::time_point deadline, const Check& check) {
    while (!where.done()) {
        check();
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    return true;
}

/// The most recent tasks of a stream, with the events around each task. The events show the stream's progress. Events
/// must outlive their entries. Only the most recent `most` entries are stored.
class progress {
public:
    explicit progress(std::size_t most) : most_{most} {}

    void put(const task_label& task) { add({entry_kind::task, task, nullptr}); }
    /// Adds a wait. All later entries wait for the event.
    void wait(const event& e) { add({entry_kind::wait, {}, &e}); }
    /// Adds a record. The event is recorded after the previous entry.
    void record(const event& e) { add({entry_kind::record, {}, &e}); }
    void clear() { entries_.clear(); }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }

    [[nodiscard]] std::optional<task_label> last() const {
        for (auto at = entries_.rbegin(); at != entries_.rend(); ++at)
            if (at->kind == entry_kind::task) return at->label;
        return std::nullopt;
    }

    struct open_task {
        task_label label{};
        /// Whether the task waits for an event of another stream.
        bool waits = false;
    };
    /// The first task that may still be running; empty if all have ended.
    [[nodiscard]] std::optional<open_task> first_open() const {
        bool waits = false;
        for (std::size_t i = first_after_done(); i < entries_.size(); ++i) {
            const auto& e = entries_[i];
            if (e.kind == entry_kind::wait) waits = waits || !e.of->done();
            if (e.kind == entry_kind::task) return open_task{e.label, waits};
        }
        return std::nullopt;
    }

private:
    enum class entry_kind : std::uint8_t { task, wait, record };
    struct entry {
        entry_kind kind{};
        task_label label{};
        const event* of = nullptr;
    };

    void add(const entry& e) {
        if (entries_.size() >= most_ && !entries_.empty()) entries_.pop_front();
        entries_.push_back(e);
    }
    [[nodiscard]] std::size_t first_after_done() const {
        for (std::size_t i = entries_.size(); i-- > 0;)
            if (entries_[i].kind == entry_kind::record && entries_[i].of->done()) return i + 1;
        return 0;
    }

    std::size_t most_;
    std::deque<entry> entries_;
};

} // namespace optpipe::cuda::detail
