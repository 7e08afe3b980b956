// Schedules with pairs in files, pictures and traces.
#include "optpipe/core/error.hpp"
#include "optpipe/io/chrome_trace.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/io/json_schedule.hpp"
#include "optpipe/io/megatron.hpp"
#include "optpipe/io/pytorch_csv.hpp"
#include "optpipe/io/svg.hpp"
#include "optpipe/io/text.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#if defined(OPTPIPE_HAS_JSON)

namespace {

using namespace optpipe;

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++found;
    return found;
}

struct sample {
    problem of = pair_problem(2, 4, 5, true);
    schedule_report report = make_report(of, "dualpipe-v", *build_schedule(of, dual_pipe_v));
    std::size_t pairs = report.measures.pairs;
};

} // namespace

TEST_CASE("a schedule with pairs is of version 3, has each pair once, and reads back") {
    const sample s;
    REQUIRE(s.pairs > 3);
    const auto text = schedule_to_json(s.of, s.report);
    CHECK(text.find("optpipe.schedule/3") != std::string::npos);
    CHECK(count(text, "OVERLAP_F_B\"") == s.pairs);
    CHECK(count(text, "\"op\"") == s.report.schedule.operations.size() - s.pairs);
    const auto document = parse_schedule(text, "file.json");
    CHECK(document_violations(s.of, document).empty());
    CHECK(schedule_to_json(s.of, make_report(s.of, "dualpipe-v", to_schedule(s.of, document))) == text);
    auto earlier = text;
    earlier.replace(earlier.find("schedule/3"), 10, "schedule/2");
    CHECK_THROWS_WITH_AS((void)parse_schedule(earlier, "file.json"),
                         doctest::Contains("operations: have pairs, which belong to optpipe.schedule/3"), input_error);
}

TEST_CASE("a pair names the storage option of its forward") {
    auto p = pair_problem(2, 4, 5, true);
    for (const stage s : p.graph.all_stages()) {
        const std::vector<storage_option> options{{"low", memory_size{0.5}, {}, duration{0.25}, {}, {}}};
        p.set_storage(s, options);
    }
    const auto built = build_schedule(p, dual_pipe_v);
    REQUIRE_MESSAGE(built, describe(built.why()));
    const auto report = make_report(p, "dualpipe-v", *built);
    const auto document = parse_schedule(schedule_to_json(p, report), "file.json");
    CHECK(document.storage.size() == p.graph.cells());
    CHECK(document_violations(p, document).empty());
}

TEST_CASE("a pair is one cell of the grid") {
    const sample s;
    std::ostringstream text;
    write_grid(text, s.of, s.report, {.width = 200});
    CHECK(text.str().find("P is a forward and a backward at once") != std::string::npos);
    CHECK(text.str().find('+') == std::string::npos); // nothing is on a column with something else
    CHECK(count(text.str(), ";B") + count(text.str(), ";0B") + count(text.str(), ";1B") + count(text.str(), ";2B") +
              count(text.str(), ";3B") ==
          s.pairs);
    CHECK(verdict(s.of, s.report).find(std::to_string(s.pairs) + " pairs") != std::string::npos);
}

TEST_CASE("a picture shows both parts of a pair, each in a half of the lane") {
    const sample s;
    const auto with = schedule_to_svg(s.of, s.report);
    CHECK(with.find("(two halves: a pair)") != std::string::npos);
    CHECK(with.find(std::to_string(s.pairs) + " pairs") != std::string::npos);
    auto without = s.of;
    without.overlaps = {};
    const auto plain = schedule_to_svg(without, make_report(without, "x", *build_schedule(without, dual_pipe_v)));
    CHECK(plain.find("pair") == std::string::npos);
    CHECK(count(with, "<rect class=\"o ") == count(plain, "<rect class=\"o "));
}

TEST_CASE("a pair is one slice of a trace") {
    const sample s;
    const auto trace = schedule_to_chrome_trace(s.of, s.report);
    CHECK(count(trace, "\"cat\": \"OVERLAP_F_B\"") == s.pairs);
    CHECK(count(trace, "\"ph\": \"X\"") == s.report.schedule.operations.size() - s.pairs);
}

TEST_CASE("PyTorch's files have pairs both ways") {
    const sample s;
    const auto file = to_pytorch(s.of, s.report.schedule);
    REQUIRE_MESSAGE(file, describe(file.why()));
    const auto csv = to_csv(*file);
    CHECK(count(csv, "OVERLAP_F_B") == s.pairs);
    const auto again = order_of(s.of, parse_pytorch_csv(csv, "file.csv"), "file.csv");
    REQUIRE_MESSAGE(again, describe(again.why()));
    const auto timed = simulate(s.of, *again);
    REQUIRE_MESSAGE(timed, describe(timed.why()));
    CHECK(last_end(*timed) == last_end(s.report.schedule));
    auto without = s.of;
    without.overlaps = {};
    const auto parts = order_of(without, parse_pytorch_csv(csv, "file.csv"), "file.csv");
    REQUIRE(parts);
    CHECK(std::none_of(parts->operations.begin(), parts->operations.end(),
                       [](const operation& op) { return op.is_paired; }));
    CHECK(simulate(without, *parts));
}

TEST_CASE("what other systems can't run of pairs is said") {
    const sample s;
    const auto comms = to_pytorch(s.of, s.report.schedule, {.format = pytorch_format::compute_comms});
    REQUIRE_FALSE(comms);
    CHECK(describe(comms.why()).find("the schedule has pairs") == 0);
    CHECK_FALSE(to_megatron(s.of, s.report.schedule));
    auto inputs = pair_problem(1, 2, 5, true);
    inputs.overlaps.add({stage{0}, stage{1}, overlap_kind::backward_input, duration{1.5}, {}});
    order given{inputs.graph, {}};
    for (const auto* text : {"0F0", "1F0", "0F1", "1I0", "0B0", "1W0", "1F1", "1B1", "0B1"})
        given.operations.push_back(*parse_operation(text));
    given.operations[2].is_paired = given.operations[3].is_paired = true;
    const auto timed = simulate(inputs, given);
    REQUIRE_MESSAGE(timed, describe(timed.why()));
    const auto refused = to_pytorch(inputs, *timed);
    REQUIRE_FALSE(refused);
    CHECK(describe(refused.why()) == "1I0 is in a pair; PyTorch's runtime runs pairs with a full backward only");
}

#endif
