// Example 12: a backend of your own.
//
// Programs run on any engine that provides lanes, markers, copies, memory and a transport (`executor`). This is a
// typical engine: its jobs name the jobs that they come after, and a few threads run any job that is ready. About 150
// lines turn the engine into executors. The conformance suite tests the executors against the concepts, and then they
// run a plan.

#include <optpipe/execution.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/testing/conformance.hpp>
#include <optpipe/testing/executor_model.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace optpipe;

/// The existing engine, which knows nothing about pipelines.
namespace engine {

struct job {
    std::string name;
    std::size_t owner = 0;
    std::function<void()> run;
    std::vector<std::shared_ptr<job>> after;
    /// Number of its predecessors that aren't known yet.
    std::size_t missing = 0;
    bool begun = false;
    bool over = false;

    [[nodiscard]] bool can_begin() const {
        return !begun && missing == 0 && std::all_of(after.begin(), after.end(), [](const auto& j) { return j->over; });
    }
};
using job_ptr = std::shared_ptr<job>;

struct failure {
    std::size_t owner;
    std::string name;
    std::string reason;
};

/// All members require the mutex to be held.
class pool {
public:
    explicit pool(std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i)
            threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
    job_ptr submit(job given) {
        jobs_.push_back(std::make_shared<job>(std::move(given)));
        changed.notify_all();
        return jobs_.back();
    }
    /// Only the first failure counts. After a failure, no job starts.
    void fail(const failure& f) {
        if (!failed) failed = f;
        changed.notify_all();
    }
    /// A job of `owner` that hasn't ended; after a failure, any job that has started and hasn't ended.
    [[nodiscard]] const job* open_job(std::size_t owner) const {
        for (const auto& j : jobs_)
            if (!j->over && (failed ? j->begun : j->owner == owner)) return j.get();
        return nullptr;
    }

    std::mutex mutex;
    std::condition_variable_any changed;
    std::optional<failure> failed;

private:
    void work(const std::stop_token& stop) {
        std::unique_lock lock{mutex};
        job_ptr mine;
        while (changed.wait(lock, stop, [&] { return (mine = take()) != nullptr; })) {
            lock.unlock();
            std::optional<failure> wrong;
            try {
                mine->run();
            } catch (const std::exception& e) {
                wrong = failure{mine->owner, mine->name, e.what()};
            }
            lock.lock();
            mine->over = true;
            mine->after.clear();
            if (wrong) fail(*wrong);
            changed.notify_all();
        }
    }
    job_ptr take() {
        jobs_.remove_if([](const job_ptr& j) { return j->over; });
        const auto next = std::find_if(jobs_.begin(), jobs_.end(), [](const job_ptr& j) { return j->can_begin(); });
        if (failed || next == jobs_.end()) return nullptr;
        (*next)->begun = true;
        return *next;
    }

    std::list<job_ptr> jobs_;
    std::vector<std::jthread> threads_; // destroyed first
};

} // namespace engine

/// The adapter that makes executors of the engine.
namespace backend {

using engine::job_ptr;

/// A chain of jobs: each comes after the previous one, and after everything that the lane was told to wait for since
/// then.
class lane {
public:
    struct marker {
        job_ptr last;
    };

    lane(engine::pool& by, std::size_t owner) : pool_{&by}, owner_{owner} {}

    template <execution::small_work Work> void launch(const task_label& label, const Work& work) {
        put(to_string(label), [by = pool_, owner = owner_, work] {
            lane here{*by, owner};
            work(here);
        });
    }
    void record(marker& m) { m.last = last_; }
    void wait(const marker& m) {
        if (m.last) waits_.push_back(m.last);
    }
    job_ptr put(std::string name, std::function<void()> run) {
        const std::scoped_lock lock{pool_->mutex};
        return put_locked(std::move(name), std::move(run));
    }

private:
    friend class transport;
    job_ptr put_locked(std::string name, std::function<void()> run) {
        auto after = std::exchange(waits_, {});
        if (last_) after.push_back(last_);
        return last_ = pool_->submit({std::move(name), owner_, std::move(run), std::move(after)});
    }

    engine::pool* pool_;
    std::size_t owner_;
    job_ptr last_;
    std::vector<job_ptr> waits_;
};

struct slab {
    std::unique_ptr<std::max_align_t[]> blocks;
    std::size_t bytes;
    [[nodiscard]] std::span<std::byte> memory() const { return {reinterpret_cast<std::byte*>(blocks.get()), bytes}; }
};
struct memory {
    static slab device(std::size_t bytes) {
        return {std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1), bytes};
    }
    static slab host(std::size_t bytes) { return device(bytes); }
};

struct copy_engine {
    void copy(lane& on, execution::copy_direction, const task_label& label, execution::copy_pieces pieces) {
        on.put(to_string(label), [pieces] {
            for (const auto& [to, from] : pieces)
                std::copy(from.begin(), from.end(), to.begin());
        });
    }
};

/// A message is a job that comes after the sender's end and the receiver's end of the message. Between two ranks, ends
/// match by their order.
struct message {
    std::span<const std::byte> from;
    std::span<std::byte> to;
    job_ptr carried;
};
struct channel {
    std::size_t sent = 0;
    std::size_t received = 0;
    std::map<std::size_t, std::shared_ptr<message>> half_met;
};
using post_office = std::map<std::tuple<std::size_t, std::size_t, message_direction>, channel>;

class transport {
public:
    explicit transport(post_office& at) : at_{&at} {}
    void exchange(lane& on, execution::message_ends messages) {
        const auto name = messages.empty() ? std::string{"nothing"} : to_string(messages.front().label);
        const std::scoped_lock lock{on.pool_->mutex};
        const auto arrived = on.put_locked(name, [] {});
        for (const auto& mine : messages)
            on.waits_.push_back(meet(on, mine, arrived));
        on.put_locked(name, [] {});
    }

private:
    job_ptr meet(lane& on, const execution::message_end& mine, const job_ptr& arrived) const {
        const auto peer = mine.label.peer.position();
        const auto way = direction_of(mine.label.op);
        auto& between = (*at_)[mine.sends ? std::tuple{on.owner_, peer, way} : std::tuple{peer, on.owner_, way}];
        const auto number = mine.sends ? between.sent++ : between.received++;
        const auto [slot, is_first] = between.half_met.try_emplace(number);
        if (is_first) {
            slot->second = std::make_shared<message>();
            slot->second->carried = on.pool_->submit({to_string(mine.label), on.owner_, {}, {}, 2});
        }
        const auto m = slot->second;
        if (mine.sends)
            m->from = {mine.from, mine.bytes};
        else
            m->to = {mine.to, mine.bytes};
        m->carried->after.push_back(arrived);
        if (--m->carried->missing == 0) {
            m->carried->run = [from = m->from, to = m->to] { carry(from, to); };
            between.half_met.erase(slot);
        }
        return m->carried;
    }
    static void carry(std::span<const std::byte> from, std::span<std::byte> to) {
        if (from.size() != to.size()) throw error{"another number of bytes than was to come"};
        std::copy(from.begin(), from.end(), to.begin());
    }

    post_office* at_;
};

class executor {
public:
    using lane_type = lane;
    static constexpr std::chrono::seconds patience{20};

    executor(engine::pool& by, post_office& at, rank self, std::size_t ranks)
        : pool_{&by}, transport_{at}, self_{self}, ranks_{ranks} {}

    [[nodiscard]] rank self() const { return self_; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }
    [[nodiscard]] lane open_lane(lane_kind, std::size_t) { return {*pool_, self_.position()}; }
    [[nodiscard]] lane::marker make_marker() { return {}; }
    [[nodiscard]] copy_engine copies() { return {}; }
    [[nodiscard]] backend::transport& transport() { return transport_; }
    [[nodiscard]] backend::memory memory() { return {}; }

    void finish() {
        std::unique_lock lock{pool_->mutex};
        const auto idle = [&] { return !pool_->open_job(self_.position()); };
        if (!pool_->changed.wait_for(lock, patience, idle)) {
            pool_->fail({self_.position(), pool_->open_job(self_.position())->name, "not over after 20 s"});
            pool_->changed.wait(lock, idle);
        }
        if (const auto& f = pool_->failed) throw execution_error{rank{f->owner}, f->name, f->reason};
    }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        const std::scoped_lock lock{pool_->mutex};
        pool_->fail({self_.position(), std::string{what_it_did}, std::string{reason}});
    }

private:
    engine::pool* pool_;
    backend::transport transport_;
    rank self_;
    std::size_t ranks_;
};
static_assert(execution::check_executor<executor>());

} // namespace backend

namespace {

/// Calls `body(executor)` for every rank, at the same time.
template <class Body> void on_ranks(std::size_t ranks, const Body& body) {
    engine::pool pool{3 * ranks}; // the conformance suite holds two lanes of a rank at once
    backend::post_office office;
    std::vector<std::jthread> threads;
    for (const rank r : index_range<rank>{ranks})
        threads.emplace_back([&, r] {
            backend::executor mine{pool, office, r, ranks};
            body(mine);
        });
    threads.clear();
}

/// The violations found by the conformance suite; none if the executors meet the concepts.
std::vector<std::string> faults(std::size_t ranks) {
    std::mutex mutex;
    std::vector<std::string> all;
    for (const bool by_cancel : {false, true}) // either way ends the executor
        on_ranks(ranks, [&](backend::executor& mine) {
            for (const auto& v : testing::check_executor(mine, {.bytes = 1 << 16, .by_cancel = by_cancel})) {
                const std::scoped_lock lock{mutex};
                all.push_back(v.text());
            }
        });
    return all;
}

/// Four stages on four ranks, with room for two stashes while 1F1B needs four.
problem tight_problem() {
    const duration unit{1.0};
    const stage_costs each{unit, unit, unit, memory_size{1}, memory_size{0.5}, transfer_times{0.5 * unit, 0.5 * unit}};
    return to_problem(make_problem(graph<4, 12>{}, uniform_memory{each}, memory_size{2}));
}

} // namespace

int main() {
    const auto wrong = faults(3);
    for (const auto& sentence : wrong)
        std::cout << sentence << '\n';
    std::cout << "the conformance suite finds " << wrong.size() << " faults\n";

    const auto p = tight_problem();
    const auto plan = build_schedule(p, adaptive);
    const auto programs = lower(p, *plan, {.bytes_per_unit = 1024, .message_bytes = 64});
    std::vector<testing::tracing_model> models(4, testing::tracing_model{4});
    std::vector<std::string> errors(4);
    on_ranks(4, [&](backend::executor& mine) {
        const auto r = mine.self().position();
        try {
            run((*programs)[mine.self()], mine, models[r]); // a model that checks every byte of its buffers
        } catch (const error& e) {
            errors[r] = e.what();
        }
    });
    std::size_t weights = 0;
    for (std::size_t r = 0; r < 4; ++r) {
        weights += models[r].weights();
        if (!errors[r].empty()) std::cout << errors[r] << '\n';
    }
    std::cout << "a step with " << measure(p, *plan).offloads << " offloaded stashes: " << weights << " of 48 done\n";
    return wrong.empty() && weights == 48 ? 0 : 1;
}
