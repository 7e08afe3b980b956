#include "optpipe/schedule/operation.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

using optpipe::memory_size;
using optpipe::microbatch;
using optpipe::operation;
using optpipe::operation_kind;
using optpipe::parse_operation;
using optpipe::stage;
using namespace optpipe::literals;

static_assert(optpipe::forward(stage{2}, microbatch{3}) == operation{stage{2}, operation_kind::forward, microbatch{3}});
static_assert(optpipe::backward(stage{0}, microbatch{0}) != optpipe::backward_input(stage{0}, microbatch{0}));
static_assert(optpipe::is_transfer(operation_kind::offload) && optpipe::is_transfer(operation_kind::reload));
static_assert(!optpipe::is_transfer(operation_kind::forward) && !optpipe::is_transfer(operation_kind::backward_weight));
static_assert(optpipe::is_gradient(operation_kind::backward) && optpipe::is_gradient(operation_kind::backward_input));
static_assert(!optpipe::is_gradient(operation_kind::backward_weight) && !optpipe::is_gradient(operation_kind::reload));

constexpr optpipe::stage_costs costs{1_ms, 2_ms, 4_ms, 10_gb, 3_gb, optpipe::transfer_times{8_ms, 16_ms}};
constexpr auto problem_with(const optpipe::stage_costs& c) {
    optpipe::per_stage<optpipe::stage_costs, 1> each(1, c);
    return optpipe::basic_problem{optpipe::graph<1, 1>{}, each};
}
constexpr auto problem = problem_with(costs);
/// The operation of a stash that is offloaded.
constexpr operation of(operation_kind kind) { return {stage{0}, kind, microbatch{0}, 1}; }
constexpr auto lasts(operation_kind kind) { return duration_of(problem, of(kind)); }
static_assert(lasts(operation_kind::forward) == 1_ms && lasts(operation_kind::backward_input) == 2_ms);
static_assert(lasts(operation_kind::backward_weight) == 4_ms && lasts(operation_kind::backward) == 6_ms);
static_assert(lasts(operation_kind::offload) == 8_ms && lasts(operation_kind::reload) == 16_ms);

} // namespace

TEST_CASE("what an operation is called reads back") {
    CHECK(to_string(optpipe::forward(stage{2}, microbatch{0})) == "2F0");
    CHECK(to_string(optpipe::backward_input(stage{2}, microbatch{0})) == "2I0");
    CHECK(to_string(optpipe::backward_weight(stage{2}, microbatch{0})) == "2W0");
    CHECK(to_string(optpipe::backward(stage{1}, microbatch{4})) == "1B4");
    CHECK(to_string(optpipe::offload_of(stage{3}, microbatch{7})) == "3OFFLOAD7");
    CHECK(to_string(optpipe::reload_of(stage{3}, microbatch{7})) == "3RELOAD7");
    for (const auto kind : optpipe::all_operation_kinds)
        for (const unsigned s : {0U, 1U, 9U, 10U, 123U, 4294967295U})
            for (const unsigned m : {0U, 7U, 10U, 255U, 4294967295U}) {
                const operation op{stage{s}, kind, microbatch{m}};
                const auto text = to_string(op);
                CAPTURE(text);
                CHECK(parse_operation(text) == op);
            }
}

TEST_CASE("what isn't an operation is refused") {
    for (const std::string text : {"",
                                   "F",
                                   "0",
                                   "00",
                                   "0F",
                                   "F0",
                                   "0X0",
                                   "0f0",
                                   "0FF0",
                                   "0 F0",
                                   "0F 0",
                                   " 0F0",
                                   "0F0 ",
                                   "-1F0",
                                   "0F-1",
                                   "+0F0",
                                   "0F+1",
                                   "0F0x",
                                   "0F0F0",
                                   "0F1.0",
                                   "1e1F0",
                                   "4294967296F0",
                                   "0F4294967296",
                                   "99999999999999999999F0",
                                   "0OFF0",
                                   "0OFFLOADRELOAD0",
                                   "0offload0",
                                   "0OFFLOA0",
                                   "0RELOADS0",
                                   "0x1F0",
                                   "0F0\n",
                                   "\t0F0"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_operation(text).has_value());
    }
    CHECK_FALSE(parse_operation(std::string("0F0\0", 4)).has_value());
    CHECK_FALSE(parse_operation(std::string("0\0F0", 4)).has_value());
}

TEST_CASE("what operations do to memory") {
    const auto memory_effect_of = [](const optpipe::stage_costs& c, operation_kind kind) {
        return optpipe::memory_effect_of(problem_with(c), of(kind));
    };
    const auto net = [&](const optpipe::stage_costs& c, operation_kind kind) {
        const auto e = memory_effect_of(c, kind);
        for (const auto amount :
             {e.acquired_at_start, e.released_at_end, e.host_acquired_at_start, e.host_released_at_end})
            CHECK(amount >= memory_size{});
        return e.acquired_at_start - e.released_at_end;
    };
    CHECK(net(costs, operation_kind::forward) == 10_gb);
    CHECK(memory_effect_of(costs, operation_kind::backward_input).released_at_end == 7_gb);
    CHECK(memory_effect_of(costs, operation_kind::backward_weight).released_at_end == 3_gb);
    CHECK(memory_effect_of(costs, operation_kind::backward).released_at_end == 10_gb);
    CHECK(memory_effect_of(costs, operation_kind::offload).released_at_end == 10_gb);
    CHECK(memory_effect_of(costs, operation_kind::offload).host_acquired_at_start == 10_gb);
    CHECK(memory_effect_of(costs, operation_kind::reload).acquired_at_start == 10_gb);
    CHECK(memory_effect_of(costs, operation_kind::reload).host_released_at_end == 10_gb);

    auto heavy = costs;
    heavy.weight_stash = 12_gb;
    CHECK(memory_effect_of(heavy, operation_kind::backward_input).acquired_at_start == 2_gb);
    CHECK(memory_effect_of(heavy, operation_kind::backward_input).released_at_end == 0_gb);
    CHECK(memory_effect_of(heavy, operation_kind::backward).released_at_end == 10_gb);

    for (const auto& c : {costs, heavy}) {
        const auto f = net(c, operation_kind::forward);
        CHECK(f + net(c, operation_kind::backward) == 0_gb);
        CHECK(f + net(c, operation_kind::backward_input) + net(c, operation_kind::backward_weight) == 0_gb);
        CHECK(net(c, operation_kind::offload) + net(c, operation_kind::reload) == 0_gb);
    }
}
