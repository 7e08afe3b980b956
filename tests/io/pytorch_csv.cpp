#include "optpipe/io/pytorch_csv.hpp"

#include "io/pytorch_rendezvous.hpp"
#include "io/sample.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/pytorch_messages.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

constexpr std::array golden{"gpipe",
                            "gpipe.comms",
                            "1f1b",
                            "1f1b.comms",
                            "looped-bfs",
                            "looped-bfs.comms",
                            "interleaved-1f1b",
                            "interleaved-1f1b.comms",
                            "interleaved-zero-bubble",
                            "interleaved-zero-bubble.comms",
                            "zbv",
                            "zbv.comms",
                            "dualpipev",
                            "dualpipev.comms"};

std::string golden_text(const std::string& name) {
    return read_file(OPTPIPE_SOURCE_DIR "/tests/data/pytorch/" + name + ".csv");
}
pytorch_schedule golden_file(const std::string& name) { return parse_pytorch_csv(golden_text(name), name); }

problem four_ranks(const char* placement_name, std::size_t stages) {
    per_stage<rank> where(stages);
    for (const stage s : where.indices()) {
        const auto lap = s.position() / 4;
        const auto step = s.position() % 4;
        const bool back = placement_name == std::string{"v"} && lap == 1;
        where[s] = rank{back ? 3 - step : step};
    }
    const stage_costs unit{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, {}};
    return {any_graph{4, 8, placement::map<>{where}}, per_stage<stage_costs>(stages, unit)};
}

problem problem_for(const std::string& name) {
    if (name.starts_with("gpipe") || name.starts_with("1f1b")) return four_ranks("loop", 4);
    return four_ranks(name.starts_with("zbv") || name.starts_with("dual") ? "v" : "loop", 8);
}

std::vector<violation> violations_of(const std::string& text) {
    try {
        (void)parse_pytorch_csv(text, "file.csv");
    } catch (const input_error& refused) {
        return refused.violations();
    }
    return {};
}

schedule simulated(const problem& p, const pytorch_schedule& file) {
    const auto found = order_of(p, file, "file.csv");
    REQUIRE_MESSAGE(found.has_value(), describe(found.why()));
    const auto timed = simulate(p, *found);
    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
    return *timed;
}

} // namespace

TEST_CASE("what PyTorch wrote is written back byte for byte") {
    for (const std::string name : golden) {
        INFO(name);
        CHECK(to_csv(golden_file(name)) == golden_text(name));
    }
}

TEST_CASE("every kind of action reads back as itself") {
    for (const std::string text :
         {"0F0", "12I3", "2W10", "1B4", "(0F5;3B1)OVERLAP_F_B", "3SEND_F1", "3RECV_F1", "2SEND_B0", "2RECV_B0",
          "0WAIT_SEND_F7", "1WAIT_SEND_B7", "0UNSHARD", "1RESHARD", "1UNSHARD7", "0REDUCE_GRAD", "0WAIT_REDUCE_GRAD"}) {
        INFO(text);
        const auto action = parse_pytorch_action(text);
        REQUIRE(action.has_value());
        CHECK(to_string(*action) == text);
        CHECK(parse_pytorch_action(" " + text + " ") == action);
    }
}

TEST_CASE("no action: what PyTorch reads by its prefix, and what no one reads") {
    for (const std::string text :
         {"0F0@12.5", "0FOO", "0F", "F0", "0OFFLOAD0", "0RELOAD1", "-1F0", "0F-1", "0f0", "0F0 1F0", "0F4294967296",
          "(0F0;1B0)", "(0F0;)OVERLAP_F_B", "()OVERLAP_F_B", "(0F0;1B0)OVERLAP_F_B0", "(0F0;1SEND_F0)OVERLAP_F_B",
          "0OVERLAP_F_B0", "\"0F0\"", "0SEND_F"}) {
        INFO(text);
        CHECK_FALSE(parse_pytorch_action(text).has_value());
    }
}

TEST_CASE("a cell that is no action is refused with its place") {
    const auto found = violations_of("0F0,0B0\r\n1F0,,1OFFLOAD0,1B0\r\n");
    REQUIRE(found.size() == 1);
    CHECK(found[0].text() == "row 2, cell 3: 1OFFLOAD0 is no action of PyTorch's, as 2F0 is");
    CHECK(violations_of("").size() == 1);
}

TEST_CASE("quoted cells, and a byte order mark") {
    const auto plain = parse_pytorch_csv("0F0,,0B0\n(1F0;1B1)OVERLAP_F_B\n", "file.csv");
    CHECK(parse_pytorch_csv("\xef\xbb\xbf\"0F0\",\"\", \"0B0\" \r\n\"(1F0;1B1)OVERLAP_F_B\"\r\n", "file.csv") == plain);
    CHECK(violations_of("\"0F0,0F1\"\n").size() == 1);
    CHECK(violations_of("\"0F0\n").size() == 1);
    CHECK(violations_of("\xff\xfe\x30").front().text() == "is encoded in UTF-16; save it as UTF-8");
}

TEST_CASE("the letters of the papers: B with a W beside it is the gradient of the input") {
    const auto of_today = golden_text("zbv");
    auto of_papers = of_today;
    std::replace(of_papers.begin(), of_papers.end(), 'I', 'B');
    REQUIRE(of_papers != of_today);
    CHECK(to_csv(parse_pytorch_csv(of_papers, "file.csv")) == of_today);
    const auto mixed = violations_of("0F0,0F1,0B0,0W0,0B1\n");
    REQUIRE(mixed.size() == 1);
    CHECK(mixed[0].text() == "row 1, cell 5: 0B1: some B of the file have a W beside them, so B would be the gradient "
                             "of the input, but this B has no W");
    CHECK(violations_of("0F0,0F1,0B0,0W0,0I1,0W1\n").front().text().ends_with("but there are I as well"));
    CHECK(violations_of("0F0,0F1,0B0,0I1,0W1\n").empty());
    CHECK(violations_of("0F0,0BW0\n").front().text() == "row 1, cell 2: 0BW0 is no action of PyTorch's, as 2F0 is; "
                                                        "PyTorch spells BW as B, and the B beside it as I");
}

TEST_CASE("idle slots, other line ends, no last line end") {
    const auto file = parse_pytorch_csv("0F0, 0F1,,0B0\n\n1F0,", "file.csv");
    REQUIRE(file.rows.size() == 3);
    CHECK(file.rows[0].size() == 4);
    CHECK_FALSE(file.rows[0][2].has_value());
    CHECK(file.rows[1].empty());
    CHECK(file.rows[2].size() == 2);
    CHECK(to_csv(file) == "0F0,0F1,,0B0\r\n\r\n1F0,\r\n");
}

TEST_CASE("PyTorch's schedules are schedules of ours") {
    for (const std::string name : golden) {
        INFO(name);
        const auto p = problem_for(name);
        CHECK(validate(p, simulated(p, golden_file(name))).empty());
    }
}

TEST_CASE("what is computed comes back as the same rows") {
    for (const std::string name : golden) {
        INFO(name);
        const auto p = problem_for(name);
        auto file = golden_file(name);
        const auto rows = to_pytorch(p, simulated(p, file));
        REQUIRE(rows.has_value());
        // Only computations remain, and overlaps are two actions.
        for (auto& row : file.rows) {
            pytorch_schedule::row computed;
            detail::for_each_action(row, [&](const pytorch_action& action) {
                if (is_compute(action.kind)) computed.emplace_back(action);
            });
            row = computed;
        }
        CHECK(*rows == file);
    }
}

TEST_CASE("with all messages, a file runs where every send waits for its receive") {
    for (const std::string name : golden)
        for (const double hop : {0.0, 0.5, 3.0}) {
            INFO(name << ", a message takes " << hop);
            auto p = problem_for(name);
            p.p2p = hop_times<>{duration{hop}};
            const auto rows = to_pytorch(p, simulated(p, golden_file(name)), {pytorch_format::compute_comms});
            REQUIRE_MESSAGE(rows.has_value(), describe(rows.why()));
            CHECK(rendezvous::run_of{*rows}.stuck() == std::vector<std::string>{});
            CHECK(rendezvous::unmatched_waits(*rows) == std::vector<std::string>{});
            for (std::size_t r = 0; r < 4; ++r) {
                const auto count = [&](pytorch_action_kind kind) {
                    return std::count_if(rows->rows[r].begin(), rows->rows[r].end(),
                                         [&](const auto& cell) { return cell->kind == kind; });
                };
                const auto stages = static_cast<std::ptrdiff_t>(p.graph.stages() / 4);
                CHECK(count(pytorch_action_kind::reduce_gradients) == stages);
                CHECK(count(pytorch_action_kind::wait_reduce_gradients) == stages);
            }
        }
}

TEST_CASE("parameters are gathered and given back where PyTorch does it") {
    const auto without_messages = [](pytorch_schedule file) {
        for (auto& row : file.rows) {
            pytorch_schedule::row kept;
            detail::for_each_action(row, [&](const pytorch_action& action) {
                if (is_compute(action.kind) || action.kind == pytorch_action_kind::unshard ||
                    action.kind == pytorch_action_kind::reshard)
                    kept.emplace_back(action);
            });
            row = kept;
        }
        return file;
    };
    for (const std::string name : golden) {
        if (!name.ends_with(".comms")) continue;
        INFO(name);
        const auto p = problem_for(name);
        const auto file = golden_file(name);
        const auto rows = to_pytorch(p, simulated(p, file), {pytorch_format::compute_comms, false, 3});
        REQUIRE(rows.has_value());
        CHECK(to_csv(without_messages(*rows)) == to_csv(without_messages(file)));
        CHECK(rendezvous::run_of{*rows}.stuck() == std::vector<std::string>{});
    }
}

TEST_CASE("no stage computes without its parameters, and no more are gathered than may be") {
    for (const std::string name : golden)
        for (const std::size_t most : {1U, 2U}) {
            INFO(name << ", " << most);
            const auto p = problem_for(name);
            const auto rows =
                to_pytorch(p, simulated(p, golden_file(name)), {pytorch_format::compute_comms, false, most});
            REQUIRE(rows.has_value());
            for (const auto& row : rows->rows) {
                std::set<stage> gathered;
                detail::for_each_action(row, [&](const pytorch_action& action) {
                    if (action.kind == pytorch_action_kind::unshard) CHECK(gathered.insert(action.stage).second);
                    if (action.kind == pytorch_action_kind::reshard) CHECK(gathered.erase(action.stage) == 1);
                    if (is_compute(action.kind) || action.kind == pytorch_action_kind::reduce_gradients)
                        CHECK(gathered.contains(action.stage));
                    CHECK(gathered.size() <= most);
                });
                CHECK(gathered.empty());
            }
        }
}

TEST_CASE("the oracle sees a receive that comes too early, and a send that isn't waited for") {
    // Rank 1 waits for 0F1 before it sends data that rank 0 needs before it sends 0F1.
    const auto early = parse_pytorch_csv("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                                         "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
                                         "early");
    CHECK_FALSE(rendezvous::run_of{early}.stuck().empty());
    CHECK(rendezvous::unmatched_waits(early).size() == 4);
}

TEST_CASE("microbatches that differ, and slices of sequences, come back in the same order") {
    auto p = four_ranks("loop", 4);
    std::vector<cost_factors> factors(8);
    factors[3] = {2.0, 3.0, 1.5, 1.2, 0.5};
    p.microbatches.set_factors(factors);
    for (const bool sliced : {false, true}) {
        if (sliced) p.microbatches.set_sequences(std::vector{0, 0, 1, 1, 2, 3, 3, 3});
        order forwards_first{p.graph, {}};
        for (const microbatch m : p.graph.all_microbatches())
            for (const stage s : p.graph.all_stages())
                forwards_first.operations.push_back(forward(s, m));
        for (std::size_t m = 8; m-- > 0;)
            for (std::size_t s = 4; s-- > 0;)
                forwards_first.operations.push_back(backward(stage{s}, microbatch{m}));
        const auto s = simulate(p, forwards_first);
        REQUIRE(s);
        const auto file = to_pytorch(p, *s);
        REQUIRE_MESSAGE(file, describe(file.why()));
        const auto back = simulated(p, parse_pytorch_csv(to_csv(*file), "file.csv"));
        CHECK(is_valid(p, back));
        CHECK(last_end(back) == last_end(*s));
        const auto again = to_pytorch(p, back);
        REQUIRE(again);
        CHECK(to_csv(*again) == to_csv(*file));
    }
}

TEST_CASE("what PyTorch has no stages for is said, both ways") {
    const auto said = [](const problem& p, const schedule& s) {
        const auto refused = to_pytorch(p, s);
        REQUIRE_FALSE(refused);
        const auto read = order_of(p, parse_pytorch_csv("0F0\n", "file.csv"), "file.csv");
        REQUIRE_FALSE(read);
        CHECK(refused.why().sentence == read.why().sentence);
        return std::string{std::string_view{refused.why().sentence}};
    };
    const auto graph = sample::branching();
    CHECK(said(graph, sample::branching_report(graph).schedule) ==
          "PyTorch has stages in a chain; these have other edges");
    auto grouped = sample::two_ranks();
    grouped.groups.add(std::vector{stage{0}, stage{1}}, duration{}, 2);
    CHECK(said(grouped, sample::by_hand(grouped)) ==
          "PyTorch has no groups of stages whose gradients wait for all of their forwards");
    auto frozen = sample::two_ranks();
    frozen.costs[stage{0}].gradients = gradient_kind::none;
    CHECK(said(frozen, sample::by_hand(frozen)) ==
          "PyTorch has a backward with gradients of weights on every stage; some here have none");
}

TEST_CASE("offloading is refused, or left out") {
    const auto p = sample::two_ranks();
    const auto s = sample::by_hand(p);
    const auto refused = to_pytorch(p, s);
    REQUIRE_FALSE(refused.has_value());
    CHECK(describe(refused.why()) == "the schedule offloads or recomputes, which PyTorch's schedules can't express");
    const auto rows = to_pytorch(p, s, {pytorch_format::compute_only, true});
    REQUIRE(rows.has_value());
    CHECK(to_csv(*rows) == "0F0,0F1,0I0,0W0,0B1\r\n1F0,1I0,1F1,1W0,1B1\r\n");
    const auto all = to_pytorch(p, s, {pytorch_format::compute_comms, true});
    REQUIRE(all.has_value());
    CHECK(rendezvous::run_of{*all}.stuck() == std::vector<std::string>{});
}

TEST_CASE("a rank without a stage, and a schedule that lacks something, are refused") {
    auto p = sample::two_ranks();
    auto s = sample::by_hand(p);
    s.operations.pop_back();
    CHECK_FALSE(to_pytorch(p, s, {pytorch_format::compute_only, true}).has_value());
    const problem idle{any_graph{2, 1, placement::map<>{per_stage<rank>(1)}},
                       per_stage<stage_costs>(1, p.costs[stage{0}])};
    const auto refused = to_pytorch(idle, schedule{idle.graph, {}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(describe(refused.why()) == "rank 1 has no stage; in PyTorch each has one");
}

TEST_CASE("a file that doesn't fit the problem is refused with its place") {
    const auto p = four_ranks("loop", 4);
    const auto reason = [&](const std::string& text) -> std::string {
        try {
            (void)order_of(p, parse_pytorch_csv(text, "file.csv"), "file.csv");
        } catch (const input_error& refused) {
            return refused.what();
        }
        return "";
    };
    CHECK(reason("0F0\n") == "file.csv: has 1 rows, the problem has 4 ranks");
    CHECK(reason("0F0\n2F0\n\n\n") == "file.csv: row 2: 2F0: the problem has this stage on rank 2");
    CHECK(reason("0F8\n\n\n\n") == "file.csv: row 1: 0F8: the problem has no such stage or microbatch");
    const auto cyclic = order_of(p, parse_pytorch_csv("0F0,0B0\n1B0,1F0\n\n\n", "file.csv"), "file.csv");
    REQUIRE_FALSE(cyclic.has_value());
    CHECK(cyclic.why().reason == refusal_reason::not_executable);
}

TEST_CASE("messages of compute_comms that lack something are refused with their place") {
    const auto p = sample::two_ranks();
    const std::string top =
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD\n";
    const std::string bottom = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n";
    const auto reasons = [&](const std::string& what, const std::string& instead) {
        auto text = top + bottom;
        const auto at = text.find(what);
        REQUIRE(at != std::string::npos);
        text.replace(at, what.size(), instead);
        return message_violations(p.graph, parse_pytorch_csv(text, "file.csv"));
    };
    CHECK(reasons("0F0", "0F0").empty());
    const struct {
        std::string what;
        std::string instead;
        std::string reason;
    } cases[] = {
        {"1RECV_F0,", "", "row 1: 0SEND_F0 has no 1RECV_F0"},
        {"1RECV_F0,1F0", "1F0,1RECV_F0", "row 2: 1F0 has no 1RECV_F0 before it"},
        {"0RECV_B1,0B1", "0B1,0RECV_B1", "row 1: 0B1 has no 0RECV_B1 before it"},
        {"1SEND_B0,", "", "row 1: 0RECV_B0 has no 1SEND_B0"},
        {"0F0,0SEND_F0", "0SEND_F0,0F0", "row 1: 0SEND_F0 comes before what it sends"},
        {"0SEND_F0", "0SEND_F0,0SEND_F0", "row 1: 0SEND_F0 is there twice"},
        {"0SEND_F0", "0SEND_F0,1SEND_F0", "row 1: 1SEND_F0 is of a stage on rank 1"},
        {"0SEND_F0", "0SEND_F0,0SEND_F7",
         "row 1: 0SEND_F7 is of a stage or a microbatch that the problem doesn't have"},
        {"0SEND_F0", "0SEND_F0,0SEND_B0", "row 1: 0SEND_B0 has no other end: there is no such stage"},
        {",0WAIT_SEND_F1", "", "row 1: 0SEND_F1 has no 0WAIT_SEND_F1 behind it"},
        {"0F0", "0F0,0WAIT_SEND_F0", "row 1: 0WAIT_SEND_F0 has no 0SEND_F0 before it"},
        {"0F0,", "0F0,,", "row 1, cell 2: is empty, which compute_comms doesn't allow"},
    };
    for (const auto& c : cases) {
        const auto found = reasons(c.what, c.instead);
        CHECK_MESSAGE(std::any_of(found.begin(), found.end(), [&](const auto& v) { return v.text() == c.reason; }),
                      c.reason << "\n"
                               << (found.empty() ? "nothing" : found.front().text()));
    }
}

TEST_CASE("compute_comms that can't run is refused; what only buffered sends carry is told apart") {
    const auto p = sample::two_ranks();
    const std::string bottom = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
    const auto late = parse_pytorch_csv("0F0,0RECV_B0,0B0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1\n" + bottom, "late");
    CHECK(message_violations(p.graph, late).empty());
    CHECK(stuck_actions(p.graph, late, pytorch_sends::buffered).front() == "row 1 stops at 0B0");
    const auto refused = order_of(p, late, "late");
    REQUIRE_FALSE(refused.has_value());
    CHECK(describe(refused.why()) == "the rows wait for each other: row 1 stops at 0B0");

    // The receive of the gradient precedes data that the other rank needs to compute it.
    const auto early = parse_pytorch_csv("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
                                         "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
                                         "early");
    CHECK(order_of(p, early, "early").has_value());
    CHECK(stuck_actions(p.graph, early, pytorch_sends::buffered).empty());
    CHECK_FALSE(stuck_actions(p.graph, early, pytorch_sends::rendezvous).empty());
    CHECK_FALSE(rendezvous::run_of{early}.stuck().empty());
    for (const std::string name : golden)
        if (name.ends_with(".comms")) {
            INFO(name);
            const auto of_pytorch = problem_for(name);
            CHECK(message_violations(of_pytorch.graph, golden_file(name)).empty());
            CHECK(stuck_actions(of_pytorch.graph, golden_file(name), pytorch_sends::rendezvous).empty());
        }
}

TEST_CASE("on a problem with storage options everything is kept, where that is possible") {
    const auto p = sample::recomputing();
    const auto s = simulated(p, parse_pytorch_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "file.csv"));
    CHECK(validate(p, s).empty());
    for (const auto& timed : s.operations)
        CHECK(storage_of(p, timed.op).extra_work() == duration{});
}
