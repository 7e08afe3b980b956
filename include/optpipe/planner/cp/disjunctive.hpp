#pragma once

#include "optpipe/core/jagged_array.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::cp {

/// Propagates the constraints of machines, whose tasks must not overlap. The same code applies each rule forwards and
/// backwards in time.
///
/// - *Load*: a task starts no earlier than the completion of the tasks known to precede it.
/// - *Overload*: the tasks that must lie within an interval must fit into the interval.
/// - *Edge finding*: a task that can't run among others runs before or after all of them (Carlier and Pinson 1989).
///
/// On all intervals, the overload rule gives the preemptive one-machine bound (Carlier 1982).
class disjunctive {
public:
    explicit disjunctive(const model& m)
        : model_{&m}, open_(m.machines.size()), all_open_(m.machines.size(), 0), orders_(m.machines.size()),
          dirty_(m.machines.size(), true) {
        std::vector<std::vector<std::uint32_t>> of_task(m.tasks.size());
        std::vector<std::vector<pair_place>> places(m.variables());
        for (std::uint32_t k = 0; k < m.machines.size(); ++k) {
            waiting_.push_back(k);
            for (const auto t : m.machines[k].tasks)
                of_task[t].push_back(k);
            count_open(k, places);
        }
        of_task_ = jagged_array{of_task};
        places_ = jagged_array{places};
    }

    void on_literal(literal l) {
        for (const auto& at : places_[l.variable()]) {
            change_open(at, -1);
            set_order(at, l == model_->machines[at.machine].order(at.first, at.second), true);
            mark(at.machine);
        }
    }
    void on_unassigned(literal l) {
        for (const auto& at : places_[l.variable()]) {
            change_open(at, 1);
            set_order(at, l == model_->machines[at.machine].order(at.first, at.second), false);
        }
    }

    void on_task(task_index t) {
        for (const auto k : of_task_[t])
            mark(k);
    }
    [[nodiscard]] bool has_work() const { return !waiting_.empty(); }
    void drop_work() {
        for (const auto k : waiting_)
            dirty_[k] = false;
        waiting_.clear();
    }
    /// Propagates one changed machine, once.
    bool propagate_next(trail& trail) {
        const auto k = waiting_.back();
        waiting_.pop_back();
        dirty_[k] = false;
        // If every order is decided, the differences alone propagate all consequences.
        if (all_open_[k] == 0) return true;
        on_ = &model_->machines[k];
        open_here_ = &open_[k];
        for (const bool backwards : {false, true}) {
            backwards_ = backwards;
            orders_here_ = &orders_[k][backwards ? 1 : 0];
            const auto known = trail.size();
            read(trail);
            if (!for_each_cluster([&] { return load(trail); })) return false;
            if (trail.size() > known) read(trail);
            if (!for_each_cluster([&] { return edges(trail); })) return false;
        }
        return true;
    }

private:
    struct job {
        std::size_t place;
        ticks head;
        ticks length;
        ticks deadline;
    };

    /// For each task of a machine, the tasks known to run before it. Tasks are identified by their index on the
    /// machine.
    class known_orders {
    public:
        class row {
        public:
            row(const std::uint64_t* words, std::size_t count) : words_{words}, count_{count} {}
            [[nodiscard]] bool operator()(std::size_t i) const { return (words_[i / bits] >> (i % bits) & 1U) != 0; }
            [[nodiscard]] bool none() const {
                return std::all_of(words_, words_ + count_, [](std::uint64_t w) { return w == 0; });
            }

        private:
            const std::uint64_t* words_;
            std::size_t count_;
        };

        known_orders() = default;
        explicit known_orders(std::size_t tasks) : words_{(tasks + bits - 1) / bits}, rows_(tasks * words_, 0) {}
        void set(std::size_t task, std::size_t before, bool known) {
            const auto bit = std::uint64_t{1} << (before % bits);
            auto& word = rows_[task * words_ + before / bits];
            word = known ? word | bit : word & ~bit;
        }
        [[nodiscard]] row before(std::size_t task) const { return {rows_.data() + task * words_, words_}; }

    private:
        static constexpr std::size_t bits = 64;
        std::size_t words_ = 0;
        std::vector<std::uint64_t> rows_{};
    };

    struct pair_place {
        std::uint32_t machine;
        std::uint32_t first;
        std::uint32_t second;
    };

    void mark(std::uint32_t k) {
        if (dirty_[k]) return;
        dirty_[k] = true;
        waiting_.push_back(k);
    }
    void count_open(std::uint32_t k, std::vector<std::vector<pair_place>>& places) {
        const auto& on = model_->machines[k];
        const auto n = static_cast<std::uint32_t>(on.tasks.size());
        open_[k].assign(n, 0);
        for (auto& each : orders_[k])
            each = known_orders{n};
        for (std::uint32_t i = 0; i < n; ++i)
            for (std::uint32_t j = i + 1; j < n; ++j) {
                if (on.order(i, j).variable() == 0) {
                    set_order({k, i, j}, on.order(i, j) == always, true);
                    continue;
                }
                places[on.order(i, j).variable()].push_back({k, i, j});
                change_open({k, i, j}, 1);
            }
    }
    void change_open(const pair_place& at, int by) {
        open_[at.machine][at.first] += by;
        open_[at.machine][at.second] += by;
        all_open_[at.machine] += by;
    }

    void set_order(const pair_place& at, bool in_order, bool known) {
        const auto first = in_order ? at.first : at.second;
        const auto second = in_order ? at.second : at.first;
        orders_[at.machine][0].set(second, first, known);
        orders_[at.machine][1].set(first, second, known);
    }

    // In reversed time, a task's start is the negative of its end in forward time.
    ticks head_of(const trail& trail, task_index t) const {
        return backwards_ ? -(trail.latest(t) + model_->tasks[t].length) : trail.earliest(t);
    }
    ticks deadline_of(const trail& trail, task_index t) const {
        return backwards_ ? -trail.earliest(t) : trail.latest(t) + model_->tasks[t].length;
    }
    fact begins_from(task_index t, ticks time) const {
        if (backwards_) return fact::of(latest_of(t), time + model_->tasks[t].length);
        return fact::of(earliest_of(t), time);
    }
    fact ends_by(task_index t, ticks time) const {
        if (backwards_) return fact::of(earliest_of(t), -time);
        return fact::of(latest_of(t), model_->tasks[t].length - time);
    }
    literal order(const job& a, const job& b) const {
        return backwards_ ? on_->order(b.place, a.place) : on_->order(a.place, b.place);
    }
    task_index task_at(const job& j) const { return on_->tasks[j.place]; }

    void read(const trail& trail) {
        all_.clear();
        for (std::size_t i = 0; i < on_->tasks.size(); ++i) {
            const auto t = on_->tasks[i];
            if (trail.is_present(t))
                all_.push_back({i, head_of(trail, t), model_->tasks[t].length, deadline_of(trail, t)});
        }
        std::sort(all_.begin(), all_.end(),
                  [](const job& a, const job& b) { return a.head != b.head ? a.head < b.head : a.place < b.place; });
    }
    /// Calls `look` for each group of jobs with overlapping windows, directly or via other jobs.
    template <class Look> bool for_each_cluster(Look look) {
        for (std::size_t begin = 0; begin < all_.size();) {
            auto end = begin;
            auto last = all_[begin].deadline;
            bool open = false;
            for (; end < all_.size() && (end == begin || all_[end].head < last); ++end) {
                last = std::max(last, all_[end].deadline);
                open = open || (*open_here_)[all_[end].place] > 0;
            }
            jobs_.assign(all_.begin() + static_cast<std::ptrdiff_t>(begin),
                         all_.begin() + static_cast<std::ptrdiff_t>(end));
            if (open && !look()) return false;
            begin = end;
        }
        return true;
    }

    bool load(trail& trail) {
        for (const auto& last : jobs_) {
            ticks done = 0;
            std::size_t block = jobs_.size();
            const auto precedes = orders_here_->before(last.place);
            if (precedes.none()) continue;
            for (std::size_t i = 0; i < jobs_.size(); ++i) {
                const auto& j = jobs_[i];
                if (!precedes(j.place)) continue;
                if (block == jobs_.size() || j.head >= done) {
                    block = i;
                    done = j.head;
                }
                done += j.length;
            }
            if (block < jobs_.size() && done > last.head && !wait_for(trail, last, block, done)) return false;
        }
        return true;
    }
    bool wait_for(trail& trail, const job& last, std::size_t block, ticks done) {
        facts_.clear();
        const auto begin = jobs_[block].head;
        const auto precedes = orders_here_->before(last.place);
        for (std::size_t i = block; i < jobs_.size(); ++i) {
            const auto& j = jobs_[i];
            if (!precedes(j.place)) continue;
            facts_.push_back(fact::of(order(j, last)));
            add_window(trail, j);
            facts_.push_back(begins_from(task_at(j), begin));
        }
        const auto raised = begins_from(task_at(last), done);
        return trail.raise(raised.code, raised.value, facts_);
    }

    bool edges(trail& trail) {
        deadlines_.clear();
        for (const auto& j : jobs_)
            deadlines_.push_back(j.deadline);
        std::sort(deadlines_.begin(), deadlines_.end());
        deadlines_.erase(std::unique(deadlines_.begin(), deadlines_.end()), deadlines_.end());
        for (const auto d : deadlines_)
            if (!edges_before(trail, d)) return false;
        return true;
    }
    /// Edge finding with the jobs that must end by `deadline`.
    bool edges_before(trail& trail, ticks deadline) {
        const auto n = jobs_.size();
        work_from_.assign(n + 1, 0);
        for (std::size_t i = n; i-- > 0;) {
            const auto& j = jobs_[i];
            work_from_[i] = work_from_[i + 1] + (j.deadline <= deadline ? j.length : 0);
            if (j.deadline <= deadline && j.head + work_from_[i] > deadline) return overload(trail, i, deadline);
        }
        // The fullest interval that begins no later than the current job.
        std::size_t fullest = n;
        for (std::size_t i = 0; i < n; ++i) {
            const auto& j = jobs_[i];
            // All remaining jobs start at the deadline or later.
            if (j.head >= deadline) return true;
            if (j.deadline <= deadline) {
                if (fullest == n || j.head + work_from_[i] > jobs_[fullest].head + work_from_[fullest]) fullest = i;
                continue;
            }
            if ((*open_here_)[j.place] == 0) continue;
            if (fullest < n && jobs_[fullest].head + work_from_[fullest] + j.length > deadline &&
                !comes_last(trail, j, fullest, jobs_[fullest].head, deadline))
                return false;
            if (work_from_[i] > 0 && j.head + work_from_[i] + j.length > deadline &&
                !comes_last(trail, j, i, j.head, deadline))
                return false;
        }
        return true;
    }
    bool overload(trail& trail, std::size_t from, ticks deadline) {
        facts_.clear();
        add_interval(trail, from, jobs_[from].head, deadline);
        return trail.fail(facts_);
    }
    /// Orders `last` after all jobs that have positions >= `from` and must end by `deadline`. Contract: `last` can't
    /// run before or among the jobs that must end by `deadline`.
    bool comes_last(trail& trail, const job& last, std::size_t from, ticks begin, ticks deadline) {
        bool known = true;
        for (std::size_t i = from; i < jobs_.size() && known; ++i)
            if (jobs_[i].deadline <= deadline) known = trail.is_true(order(jobs_[i], last));
        if (known) return true;
        facts_.clear();
        add_interval(trail, from, begin, deadline);
        add_window(trail, last);
        facts_.push_back(begins_from(task_at(last), begin));
        const auto because = facts_;
        for (std::size_t i = from; i < jobs_.size(); ++i)
            if (jobs_[i].deadline <= deadline && !trail.assign(order(jobs_[i], last), because)) return false;
        return true;
    }
    void add_interval(const trail& trail, std::size_t from, ticks begin, ticks deadline) {
        for (std::size_t i = from; i < jobs_.size(); ++i) {
            const auto& j = jobs_[i];
            if (j.deadline > deadline) continue;
            add_window(trail, j);
            facts_.push_back(begins_from(task_at(j), begin));
            facts_.push_back(ends_by(task_at(j), deadline));
        }
    }
    void add_window(const trail& trail, const job& j) {
        if (trail.presence(task_at(j)) != always) facts_.push_back(fact::of(trail.presence(task_at(j))));
    }

    const model* model_;
    jagged_array<std::uint32_t> of_task_;
    jagged_array<pair_place> places_;
    /// `open_` has the number of undecided orders of each job, indexed by machine and job. `all_open_` has the number
    /// of undecided orders of each machine.
    std::vector<std::vector<int>> open_;
    std::vector<int> all_open_;
    /// The known orders of each machine, forwards and backwards in time.
    std::vector<std::array<known_orders, 2>> orders_;
    std::vector<bool> dirty_;
    std::vector<std::uint32_t> waiting_;
    const std::vector<int>* open_here_ = nullptr;
    const known_orders* orders_here_ = nullptr;
    const machine* on_ = nullptr;
    bool backwards_ = false;
    std::vector<job> all_;
    std::vector<job> jobs_;
    std::vector<ticks> deadlines_;
    std::vector<ticks> work_from_;
    std::vector<fact> facts_;
};

} // namespace optpipe::cp
