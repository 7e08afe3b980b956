// Stashes in lanes like streams, where copies end late: nothing is used before its copy has ended, and nothing is freed
// before.
#include "optpipe/execution/libtorch/held_memory.hpp"

#include "libtorch/late_copies.hpp"
#include "libtorch/small_pipelines.hpp"
#include "optpipe/execution/libtorch/pipeline_rank.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/lower.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

using namespace small_pipelines;

/// Visits plans of one rank with several stages, on one link to the host, and on one in each direction.
template <class Visit> void for_each_plan_of_one_rank(const Visit& visit) {
    at::set_num_threads(1);
    for (std::uint64_t seed = 7200; seed < 7206; ++seed) {
        CAPTURE(seed);
        const auto shape = to_any_graph(graph<1, 6, placement::loop<3>>{});
        const auto of =
            seed % 2 == 0 ? make_case(shape, gpipe, seed, true) : make_case(shape, quick_adaptive, seed, false);
        CHECK(measure(of.tight, of.plan).offloads > 0);
        visit(of);
    }
}

void run_with_late_copies(const case_of_all_options& of, const rank_program& program) {
    late_copies::executor on;
    threads::failure failed;
    threads::control_board control{1, 20s, failed};
    libtorch::pipeline_rank<late_copies::executor> own{
        of.tight, program, of.model, on, control[rank{0}], {}, std::make_shared<libtorch::value_table>()};
    const auto sums = accumulation_order_of(of.plan);
    for (std::size_t step = 0; step < 2; ++step) {
        small_model::forget_gradients(of.model);
        const auto expected = small_model::gradients_in_one_piece(of.model, sums, step);
        CHECK(own.step().loss.has_value());
        for (const stage s : of.tight.graph.all_stages())
            check_gradients(of.model, s, expected);
    }
    check_report(own.report(), of.offloads_parts);
}

TEST_CASE("plans with copies that end as late as they may have the planned gradients and memory") {
    for_each_plan_of_one_rank([](const case_of_all_options& of) {
        run_with_late_copies(of, (*lower(of.tight, of.plan, libtorch::lowering_defaults()))[rank{0}]);
    });
}

/// The program without the waits of its backwards for transfers.
rank_program without_waits_for_reloads(rank_program p) {
    std::vector<marker_id> reloaded;
    for (const auto& each : p.instructions)
        if (each.kind == instruction_kind::copy && each.op.kind == operation_kind::reload)
            reloaded.push_back(each.records);
    for (auto& each : p.instructions) {
        if (each.kind != instruction_kind::compute) continue;
        const auto first = p.waits.begin() + each.first_wait;
        const auto is_reload = [&](marker_id m) { return std::count(reloaded.begin(), reloaded.end(), m) > 0; };
        each.waits = static_cast<std::uint32_t>(std::remove_if(first, first + each.waits, is_reload) - first);
    }
    return p;
}

TEST_CASE("copies are so late that a wait that is missing is seen") {
    for_each_plan_of_one_rank([](const case_of_all_options& of) {
        const auto program = (*lower(of.tight, of.plan, libtorch::lowering_defaults()))[rank{0}];
        late_copies::executor on;
        threads::failure failed;
        threads::control_board control{1, 20s, failed};
        libtorch::pipeline_rank<late_copies::executor> own{
            of.tight, without_waits_for_reloads(program),       of.model, on, control[rank{0}],
            {},       std::make_shared<libtorch::value_table>()};
        small_model::forget_gradients(of.model);
        const auto expected = small_model::gradients_in_one_piece(of.model, accumulation_order_of(of.plan), 0);
        static_cast<void>(own.step());
        bool is_equal = true;
        for (const stage s : of.tight.graph.all_stages())
            for (std::size_t i = 0; i < expected[s.position()].size(); ++i)
                is_equal = is_equal &&
                           at::equal(of.model.stages[s.position()].parameters[i].grad(), expected[s.position()][i]);
        CHECK(!is_equal);
    });
}

TEST_CASE("memory is freed by the first task of the lane that allocated it, after the task that used it last") {
    std::map<operation_kind, std::size_t> freed;
    for_each_plan_of_one_rank([&](const case_of_all_options& of) {
        const auto p = (*lower(of.tight, of.plan, libtorch::lowering_defaults()))[rank{0}];
        std::map<operation, std::size_t> place;
        for (std::size_t i = 0; i < p.instructions.size(); ++i)
            place[p.instructions[i].op] = i;
        std::vector<std::pair<std::size_t, std::size_t>> pairs, earlier;
        for (const auto& [next, users] : libtorch::memory_freed_before(p))
            for (const auto& user : users) {
                ++freed[user.kind];
                CHECK(is_transfer(next.kind) == (user.kind != operation_kind::offload));
                pairs.emplace_back(place.at(user), place.at(next));
                for (std::size_t i = place.at(user) + 1; i < place.at(next); ++i)
                    if (p.instructions[i].lane == p.instructions[place.at(next)].lane)
                        earlier.emplace_back(place.at(user), i);
            }
        const program_graph graph{std::span{&p, 1}, {}};
        const auto ordered = graph.ordered(0, pairs);
        CHECK(std::find(ordered.begin(), ordered.end(), false) == ordered.end());
        const auto too_early = graph.ordered(0, earlier);
        CHECK(std::find(too_early.begin(), too_early.end(), true) == too_early.end());
    });
    for (const auto kind : {operation_kind::offload, operation_kind::reload, operation_kind::backward_weight})
        CHECK(freed[kind] > 0);
}

TEST_CASE("host memory is for later offloads of the same rank, once the plan has waited for the reload") {
    const at::Device cpu{at::kCPU};
    for_each_plan_of_one_rank([&](const case_of_all_options& of) {
        const auto p = (*lower(of.tight, of.plan, libtorch::lowering_defaults()))[rank{0}];
        libtorch::held_memory memory{p};
        for (const auto& [next, users] : libtorch::memory_freed_before(p)) {
            const auto reload = std::find_if(users.begin(), users.end(),
                                             [](const operation& user) { return user.kind == operation_kind::reload; });
            if (reload == users.end()) continue;
            auto own = memory.on_host(64, cpu);
            const auto* const address = own.const_data_ptr();
            const auto weak = own.storage().getWeakStorageImpl();
            memory.begin(*reload);
            memory.retire_host(std::move(own));
            memory.end(*reload);
            CHECK(memory.on_host(64, cpu).const_data_ptr() != address);
            memory.begin(next);
            CHECK(memory.on_host(32, cpu).const_data_ptr() != address);
            CHECK(memory.on_host(64, cpu).const_data_ptr() == address);
            memory.end_step();
            CHECK(weak.use_count() == 0);
        }
    });
}

TEST_CASE("memory that is still used when its operation ends is kept to the end of the step") {
    libtorch::held_memory memory{rank_program{}};
    auto outlives = at::ones({4});
    const auto weak = outlives.storage().getWeakStorageImpl();
    const operation last = backward(stage{0}, microbatch{0});
    memory.begin(last);
    memory.retire(outlives.storage());
    memory.end(last);
    outlives.reset();
    CHECK(weak.use_count() > 0);
    memory.end_step();
    CHECK(weak.use_count() == 0);
}

} // namespace
