// Example 2: a schedule of your own.
//
// A schedule builder is any type with a name and a call that turns a problem into an order. You decide only the order:
// a simulation derives times, memory and transfers from it, and a validator that knows every rule judges the result.

#include <optpipe/schedule.hpp>
#include <optpipe/testing.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

namespace {

using optpipe::microbatch;
using optpipe::stage;

/// GPipe in waves: `at_once` microbatches run all of their forwards and backwards before the next ones start.
struct waves {
    static constexpr std::string_view name = "waves";
    std::size_t at_once = 2;

    // A template, so that it takes problems with static and with dynamic extents.
    template <optpipe::pipeline_graph Graph>
    constexpr optpipe::outcome<optpipe::basic_order<Graph>> operator()(const optpipe::basic_problem<Graph>& p) const {
        optpipe::basic_order<Graph> order{p.graph, {}};
        for (std::size_t first = 0; first < p.graph.microbatches(); first += at_once) {
            const auto end = std::min(first + at_once, p.graph.microbatches());
            for (const stage s : p.graph.all_stages())
                for (auto m = first; m < end; ++m)
                    order.operations.push_back(forward(s, microbatch{m}));
            for (auto i = p.graph.stages(); i-- > 0;)
                for (auto m = first; m < end; ++m)
                    order.operations.push_back(backward(stage{i}, microbatch{m}));
        }
        return order;
    }
};

// If `waves` had no name, the first line of the error would say so.
static_assert(optpipe::check_schedule_builder<waves>());

/// Prints the result of a builder for the problem. Returns false if it breaks a rule.
template <class Builder> bool show(const optpipe::problem& p, const std::string& name, const Builder& build) {
    const auto schedule = optpipe::build_schedule(p, build);
    std::cout << "  " << name << ": ";
    if (!schedule) {
        std::cout << optpipe::describe(schedule.why()) << '\n';
        return true; // no schedule within the memory: that is an answer
    }
    const auto m = optpipe::measure(p, *schedule);
    std::cout << "makespan " << m.makespan.value() << ", " << 100.0 * m.bubble_rate << " % idle, rank 0 holds "
              << m.peak_memory[optpipe::rank{0}].value() << " stashes\n";
    const auto violations = optpipe::validate(p, *schedule);
    for (const auto& v : violations)
        std::cout << "  " << v.text() << '\n';
    return violations.empty();
}

} // namespace

// With static extents, the compiler can test the builder.
constexpr auto known = optpipe::make_problem(optpipe::graph<4, 8>{}, optpipe::unit_memory{});
constexpr auto timed = *optpipe::simulate(known, *waves{2}(known));
static_assert(optpipe::is_valid(known, timed));

int main() {
    // Tests the builder on random problems of every kind; a fault is shown on the smallest problem that has it.
    const auto tested = optpipe::testing::check_builder(waves{2}, {.problems = 200});
    std::cout << tested.text() << '\n';

    // Four devices, eight microbatches, every operation takes 1: the unit problem of the papers.
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> shape{4, 8};
    bool sound = true;
    for (const double limit : {4.0, 2.0}) {
        const auto p =
            optpipe::to_problem(optpipe::make_problem(shape, optpipe::unit_memory{}, optpipe::memory_size{limit}));
        std::cout << "room for " << limit << " stashes per device\n";
        sound &= show(p, "1F1B", optpipe::one_forward_one_backward);
        sound &= show(p, "waves of 2", waves{2});
        sound &= show(p, "waves of 4", waves{4});
        sound &= show(p, "adaptive", optpipe::adaptive);
    }
    return sound && tested.passed() ? 0 : 1;
}
