// The times of the actions of post-validation, and its decisions.
#include "optpipe/execution/post_validation.hpp"

#include "optpipe/execution/handover.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::stage;
namespace ex = optpipe::execution;
namespace threads = optpipe::threads;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("what is decided depends on all stages, and not on who came first") {
    ex::gradient_state one{3}, other{3};
    const double squares[] = {0.1, 1e17, 0.3};
    for (const std::size_t s : {0U, 1U, 2U})
        one.add(stage{s}, squares[s]);
    for (const std::size_t s : {2U, 0U, 1U})
        other.add(stage{s}, squares[s]);
    const double norm = std::sqrt(0.1 + 1e17 + 0.3);
    CHECK(one.decision(2.0).scale == 2.0 / norm);
    CHECK(one.decision(2.0) == other.decision(2.0));
    CHECK(one.decision(infinity).scale == 1.0);
    CHECK(one.decision(norm).scale == 1.0);
    for (const double bad : {infinity, std::nan("")}) {
        other.add(stage{0}, bad);
        CHECK(other.decision(infinity).is_skip());
    }
}

TEST_CASE("it travels as text") {
    ex::gradient_state state{2};
    state.add(stage{1}, 9.0);
    state.note({0.5});
    ex::gradient_state read{2, state.text()};
    CHECK(read.decision(1.5).scale == 0.5);
    read.note({0.5});
    CHECK(read.is_unanimous());
    CHECK(ex::gradient_state{2, read.text()}.is_unanimous());
    read.note({0.0});
    read.note({0.0});
    CHECK(!ex::gradient_state{2, read.text()}.is_unanimous());
    CHECK_THROWS_WITH(ex::gradient_state(3, state.text()), "a state of gradients that isn't one of 3 stages");
}

optpipe::problem line_of(std::size_t ranks, std::size_t microbatches) {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = each.weight_stash = optpipe::memory_size{1.0};
    return optpipe::problem{to_any_graph(optpipe::graph<optpipe::dynamic, optpipe::dynamic>{ranks, microbatches}),
                            optpipe::per_stage<optpipe::stage_costs>(ranks, each)};
}

TEST_CASE("ranks end in their order in zero-bubble schedules, the other way round in 1F1B") {
    const auto p = line_of(3, 6);
    const auto ends = [&](const auto& build) { return ex::order_of_ends(*build_schedule(p, build)); };
    CHECK(ends(optpipe::zero_bubble_h2) == std::vector{rank{0}, rank{1}, rank{2}});
    CHECK(ends(optpipe::one_forward_one_backward) == std::vector{rank{2}, rank{1}, rank{0}});
}

TEST_CASE("the state passes through each rank once") {
    const ex::state_route middle{{rank{2}, rank{0}, rank{1}}, rank{0}, 3};
    CHECK(middle.previous() == rank{2});
    CHECK(middle.next() == rank{1});
    CHECK(middle.last() == rank{1});
    const ex::state_route alone{{}, rank{0}, 1};
    CHECK((!alone.previous() && !alone.next() && alone.last() == rank{0}));
    const std::vector<std::vector<rank>> wrong{{rank{0}}, {rank{0}, rank{0}}, {rank{0}, rank{2}}};
    for (const auto& order : wrong)
        CHECK_THROWS_WITH(ex::state_route(order, rank{0}, 2),
                          "post-validation: an order that doesn't have each of 2 ranks once");
}

/// The calls of a model, in order: "0F1" is stage 0's forward of microbatch 1.
class event_log {
public:
    void add(rank r, const std::string& event) {
        const std::scoped_lock lock{mutex_};
        all_.emplace_back(r, event);
        changed_.notify_all();
    }
    [[nodiscard]] std::vector<std::string> of(rank r) const {
        std::vector<std::string> own;
        for (const auto& [who, event] : all_)
            if (who == r) own.push_back(event);
        return own;
    }
    /// Whether the rank's event has occurred `times` times within the time.
    [[nodiscard]] bool await(rank r, const std::string& event, std::ptrdiff_t times, std::chrono::milliseconds within) {
        std::unique_lock lock{mutex_};
        const std::pair entry{r, event};
        return changed_.wait_for(lock, within, [&] { return std::count(all_.begin(), all_.end(), entry) >= times; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::pair<rank, std::string>> all_;
};

/// The squares of a step's gradients on a rank; called at the update.
using squares_call = std::function<double(rank, std::size_t step)>;

class logging_model {
public:
    logging_model(event_log& log, rank self, squares_call squares)
        : log_{&log}, self_{self}, squares_{std::move(squares)} {}

    template <class Lane> void forward(Lane&, const ex::forward_task& t) {
        note(to_string(optpipe::forward(t.stage, t.microbatch)));
    }
    template <class Lane> void backward_input(Lane&, const ex::backward_task& t) {
        note(to_string(optpipe::backward_input(t.stage, t.microbatch)));
    }
    template <class Lane> void backward_weight(Lane&, const ex::weight_task& t) {
        note(to_string(optpipe::backward_weight(t.stage, t.microbatch)));
    }
    template <class Lane> void reduce(Lane&, stage) { note("reduce"); }
    template <class Lane> double gradient_squares(Lane&, stage) { return squares_(self_, step_++); }
    template <class Lane> void update(Lane&, stage, const ex::update_decision& by) {
        note(by.is_skip() ? "skip" : "update");
    }
    template <class Lane> void revise(Lane&, stage, const ex::update_decision& by) {
        note(by.is_skip() ? "revise to skip" : "revise");
    }
    template <class Lane> void settle(Lane&, stage) { note("settle"); }
    template <class Lane> void abandon(Lane&, stage) { note("abandon"); }

private:
    void note(const std::string& event) { log_->add(self_, event); }

    event_log* log_;
    rank self_;
    squares_call squares_;
    std::size_t step_ = 0;
};

optpipe::per_rank<optpipe::rank_program> programs_for(std::size_t ranks, bool update = true) {
    const auto p = line_of(ranks, 2 * ranks);
    return *lower(p, *build_schedule(p, optpipe::zero_bubble_h2),
                  {.bytes_per_unit = 8.0, .message_bytes = 8, .update = update, .reduce = true});
}

/// Runs two steps and the end of training on ranks that are threads.
void train(event_log& log, std::size_t ranks, const squares_call& squares,
           const ex::post_validation_options& how = {}) {
    const auto programs = programs_for(ranks);
    threads::options quick;
    quick.patience = 20s;
    threads::cluster cluster{ranks, quick};
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        using model_type = ex::post_validated<logging_model, threads::control_channel>;
        logging_model inner{log, here.self(), squares};
        model_type model{programs[here.self()], inner, cluster.control(here.self()), how};
        optpipe::runner<threads::executor, model_type> run{programs[here.self()], here, model};
        for (int k = 0; k < 2; ++k)
            do
                run.step();
            while (model.was_void());
        model.finish(here);
    });
}
double no_gradients(rank, std::size_t) { return 0.0; }

bool is_backward(const std::string& event) { return event.find_first_of("IW") != std::string::npos; }

TEST_CASE("no rank begins a backward before it has validated its last update") {
    for (const std::size_t ranks : {1U, 2U, 4U}) {
        event_log log;
        train(log, ranks, no_gradients);
        for (const rank r : optpipe::index_range<rank>{ranks}) {
            bool is_open = false;
            std::size_t settled = 0;
            for (const auto& event : log.of(r)) {
                if (event == "update") is_open = true;
                if (event == "settle") is_open = false, ++settled;
                if (is_backward(event)) CHECK(!is_open);
            }
            CHECK(settled == 2);
            CHECK(!is_open);
        }
    }
}

/// The last rank's first update waits for rank 0's first forward of the second step. Returns whether that came.
bool begins_before_last_update(bool barrier, std::chrono::milliseconds within) {
    event_log log;
    bool begun = false;
    const auto squares = [&](rank r, std::size_t step) {
        if (r == rank{1} && step == 0) begun = log.await(rank{0}, "0F0", 2, within);
        return 0.0;
    };
    train(log, 2, squares, {.barrier = barrier});
    return begun;
}
TEST_CASE("the forwards of a warm-up don't wait for the last rank's update") {
    CHECK(begins_before_last_update(false, 20s));
    CHECK(!begins_before_last_update(true, 200ms));
}

TEST_CASE("of a void step nothing is left but the forwards from before it was known") {
    event_log log;
    // Rank 1 overflows in the first step, which rank 0 can't know at its update.
    train(log, 2, [](rank r, std::size_t step) { return r == rank{1} && step == 0 ? infinity : 1.0; });
    const auto first = log.of(rank{0});
    const auto revised = std::find(first.begin(), first.end(), "revise to skip");
    REQUIRE(revised != first.end());
    CHECK(revised[1] == "settle");
    CHECK(revised[2] == "abandon");
    CHECK(revised[3] == "0F0");
    const auto updated = std::find(first.begin(), first.end(), "update");
    CHECK(std::all_of(updated + 1, revised, [](const auto& e) { return e.find('F') != std::string::npos; }));
    CHECK(std::count(first.begin(), first.end(), "update") == 2);
    CHECK(std::count(first.begin(), first.end(), "reduce") == 2);
    const auto last = log.of(rank{1});
    CHECK(std::count(last.begin(), last.end(), "skip") == 1);
    CHECK(std::count(last.begin(), last.end(), "revise to skip") == 0);
    CHECK(std::count(last.begin(), last.end(), "abandon") == 1); // its step is void nevertheless
    CHECK(std::count_if(last.begin(), last.end(), is_backward) == 2 * 2 * 4);
}

TEST_CASE("a handover to another plan goes on beside it, on the same channel") {
    const std::size_t ranks = 2;
    const auto programs = programs_for(ranks);
    threads::cluster cluster{ranks};
    event_log log;
    // Rank 1 overflows in every second step, until the plan is accepted.
    const auto squares = [](rank r, std::size_t step) { return r == rank{1} && step % 2 == 0 ? infinity : 1.0; };
    std::vector<std::size_t> steps(ranks), voids(ranks);
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        using model_type = ex::post_validated<logging_model, threads::control_channel>;
        const auto at = here.self().position();
        auto& channel = cluster.control(here.self());
        logging_model inner{log, here.self(), squares};
        model_type model{programs[here.self()], inner, channel};
        optpipe::handover<threads::executor, model_type, threads::control_channel> run{
            programs[here.self()], here, model, channel, [&](const std::string&) { return programs; }};
        if (here.self() == rank{0}) run.publish("the same again");
        for (; run.version() == 0 || steps[at] < 5; ++steps[at])
            for (run.step(); model.was_void(); ++voids[at])
                run.step();
        model.finish(here);
    });
    CHECK(steps[0] == steps[1]);
    CHECK(voids[0] == steps[0] / 2);
    CHECK(voids[1] == voids[0]);
}

TEST_CASE("a rank that fails while others wait for its gradients ends the run on all") {
    event_log log;
    const auto fails = [](rank r, std::size_t step) -> double {
        if (r == rank{1} && step == 1) throw std::runtime_error{"on purpose"};
        return 0.0;
    };
    CHECK_THROWS_WITH(train(log, 3, fails), "rank 1, update of stage 1: on purpose");
}

TEST_CASE("a program without updates is refused") {
    event_log log;
    threads::failure failed;
    threads::control_board board{1, 1s, failed};
    logging_model inner{log, rank{0}, no_gradients};
    using model_type = ex::post_validated<logging_model, threads::control_channel>;
    CHECK_THROWS_WITH((model_type{programs_for(1, false)[rank{0}], inner, board[rank{0}]}),
                      "post-validation: a program without updates");
}

} // namespace
