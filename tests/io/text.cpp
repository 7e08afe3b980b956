#include "optpipe/io/text.hpp"

#include "io/sample.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

std::string grid_of(const problem& p, const schedule_report& report, const grid_options& options = {}) {
    std::ostringstream out;
    write_grid(out, p, report, options);
    return out.str();
}

problem one_rank(std::size_t microbatches) {
    return {any_graph{1, microbatches, placement::map<>{per_stage<rank>(1)}}, per_stage<stage_costs>(1)};
}

std::string grid(const grid_options& options = {}) {
    return grid_of(sample::two_ranks(), sample::report_of(sample::two_ranks()), options);
}

} // namespace

TEST_CASE("the grid") {
    CHECK(grid() == "sample, by hand: one column is 0.5 ms\n"
                    "time [ms]  |0        |5        |10       |15\n"
                    "rank 0     0F0-0F1-........0I0-W-......0B1---\n"
                    "  host         O-      R-\n"
                    "rank 1     ......1F0-1I0-1F1-W-1B1---........\n"
                    "  host\n");
}

TEST_CASE("a grid that is too wide goes on below") {
    CHECK(grid({.width = 34}) == "sample, by hand: one column is 0.5 ms; shown in 2 parts\n"
                                 "time [ms]  |0        |5        |10\n"
                                 "rank 0     0F0-0F1-........0I0-W-.\n"
                                 "  host         O-      R-\n"
                                 "rank 1     ......1F0-1I0-1F1-W-B1-\n"
                                 "  host\n"
                                 "\n"
                                 "time [ms]         |15\n"
                                 "rank 0     .....0B1---\n"
                                 "  host\n"
                                 "rank 1     ---........\n"
                                 "  host\n");
    // A spelling is never split.
    CHECK(sample::contains(grid({.width = 33}), "rank 1     ......1F0-1I0-1F1-W-B-\n"));
}

TEST_CASE("a grid that is far too long loses its labels") {
    CHECK(grid({.width = 45, .most_bands = 0, .end_bands = 0}) ==
          "sample, by hand: one column is 0.5 ms; too long for labels, each letter is a kind of operation\n"
          "time [ms]  |0        |5        |10       |15\n"
          "rank 0     FFFFFFFF........IIIIWW......BBBBBB\n"
          "  host         OO      RR\n"
          "rank 1     ......FFFFIIIIFFFFWWBBBBBB........\n"
          "  host\n");
}

TEST_CASE("a column with operations of several kinds has a sign of its own, and a legend") {
    const auto p = one_rank(4);
    schedule_report report{"by hand", {p.graph, {}}, {}, {}};
    double time = 0.0;
    for (const auto* op : {"0F0", "0F1", "0I0", "0W0", "0F2", "0F3", "0I1", "0W1"}) {
        report.schedule.operations.push_back({*parse_operation(op), duration{time}, duration{time + 1.0}});
        time += 1.0;
    }
    // One letter for 0I0 and 0W0 together would be wrong; two forwards are forwards.
    const auto narrow = grid_of(p, report, {.width = 12, .most_bands = 0, .end_bands = 0});
    CHECK_MESSAGE(sample::contains(narrow, "rank 0  FFFFFIIIWWFFFFFIIIWW\n"), narrow);
    for (auto& timed : report.schedule.operations)
        timed = {timed.op, 0.001 * timed.start, 0.001 * timed.end};
    report.schedule.operations.push_back({*parse_operation("0W2"), duration{10}, duration{20}});
    const auto mixed = grid_of(p, report, {.width = 12, .most_bands = 0, .end_bands = 0});
    CHECK_MESSAGE(sample::contains(mixed, "rank 0  +.........WWWWWWWWWW\n"), mixed);
    CHECK(mixed.ends_with("+ is a column with operations of several kinds\n"));
    CHECK(!sample::contains(narrow, "+"));
}

TEST_CASE("what shares a column leaves the labels of its neighbours whole") {
    const auto p = one_rank(4);
    schedule_report report{"by hand", {p.graph, {}}, {}, {}};
    const auto add = [&](const char* op, double from, double to) {
        report.schedule.operations.push_back({*parse_operation(op), duration{from}, duration{to}});
    };
    add("0F0", 0, 4);
    add("0F1", 4, 4.01);
    add("0I0", 4.01, 8);
    add("0F2", 8, 8.01);
    add("0F3", 8.01, 12);
    add("0W0", 12, 16);
    add("0I1", 16, 20);
    add("0W1", 20, 24);
    const auto text = grid_of(p, report);
    CHECK_MESSAGE(sample::contains(text, "rank 0  0F0-+I0-FF3-0W0-0I1-0W1-\n"), text);
    CHECK(text.ends_with("+ is a column with operations of several kinds\n"));
}

TEST_CASE("of a long schedule start and end are shown in full, and the middle on one line") {
    const auto p = one_rank(100);
    schedule_report report{"by hand", {p.graph, {}}, {}, {}};
    for (const microbatch m : p.graph.all_microbatches()) {
        const duration start{4.0 * static_cast<double>(m.position())};
        report.schedule.operations.push_back({forward(stage{0}, m), start, start + duration{2}});
        report.schedule.operations.push_back({backward(stage{0}, m), start + duration{2}, start + duration{4}});
    }
    const auto text = grid_of(p, report, {.width = 51, .most_bands = 8, .end_bands = 1});
    CHECK(text ==
          "by hand: one column is 0.4; of 24 parts the first and the last 1 are shown in full, the others folded "
          "into one\n"
          "time    |0           |5          |10          |15\n"
          "rank 0  0F0--0B0--0F1--0B1--0F2--0B2--0F3--0B3--F4-\n"
          "\n"
          "folded: 17.2 to 382.8, one column is 8.5, each letter is a kind of operation\n"
          "time              |100        |200       |300\n"
          "rank 0  +++++++++++++++++++++++++++++++++++++++++++\n"
          "\n"
          "time          |385        |390         |395\n"
          "rank 0  ---0F96-0B96-0F97-0B97-0F98-0B98-0F99-0B99-\n"
          "+ is a column with operations of several kinds\n");
    // No line exceeds the width.
    for (std::size_t width = 31; width < 200; width += 7) {
        std::istringstream lines{grid_of(p, report, {.width = width})};
        std::string line;
        for (std::getline(lines, line); std::getline(lines, line);)
            if (line.starts_with("rank") || line.starts_with("time")) CHECK(line.size() <= width);
    }
}

TEST_CASE("a window shows some ranks and some time") {
    CHECK(grid({.window = {.first_rank = 1, .last_rank = 1, .from = duration{4}, .to = duration{9}}}) ==
          "sample, by hand: one column is 0.5 ms\n"
          "time [ms]    |5\n"
          "rank 1     F-1I0-1F1-\n");
    const auto late = grid({.window = {.last_rank = 0, .from = duration{9.5}}});
    CHECK_MESSAGE(sample::contains(late, "\nrank 0     I-0W0-............0B1---------\n"), late);
    CHECK(!sample::contains(late, "rank 1"));
}

TEST_CASE("two engines have a line each, transfers can be left out") {
    auto p = sample::two_ranks();
    p.transfer.engines = 2;
    const auto report = sample::report_of(p);
    const auto text = grid_of(p, report);
    CHECK(sample::contains(text, "\n  offload      O-\n  reload               R-\n"));
    const auto without = grid_of(p, report, {.transfers = false});
    CHECK(!sample::contains(without, "load"));
    CHECK(sample::contains(without, "rank 1 "));
}

TEST_CASE("an empty schedule, and one that the problem doesn't know, have a grid") {
    const auto p = sample::two_ranks();
    schedule_report report{"none", {p.graph, {}}, measure(p, {p.graph, {}}), {}};
    CHECK(sample::contains(grid_of(p, report), "rank 1     .\n"));
    report.schedule.operations.push_back(sample::at(forward(stage{9}, microbatch{0}), 0, 4));
    CHECK(!sample::contains(grid_of(p, report), "9F0"));
}

TEST_CASE("names can't write to the terminal") {
    auto p = sample::two_ranks();
    p.name = "\x1b[2J";
    p.time_unit = "\x1b";
    for (const char c : grid_of(p, sample::report_of(p)) + verdict(p, sample::report_of(p)))
        CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
}

TEST_CASE("the verdict") {
    auto p = sample::two_ranks();
    auto report = sample::report_of(p);
    CHECK(verdict(p, report) ==
          "sample: 17 ms, 25.0 % above the lower bound 13.6 ms; bubble 41.2 %; peak 4 of 5 GB; 1 offload");
    const std::string reason = "rank 0 needs 6 GB of memory, its limit is 5 GB";
    const std::vector<baseline> others{{"1F1B", "", reason},
                                       {"GPipe", "+11.0 %"},
                                       {"ZB-H1", "", "one stage per rank"},
                                       {"GIS", "", reason},
                                       {"PO", "+3.0 %"}};
    CHECK(verdict(p, report, others) == verdict(p, report) +
                                            "\nothers: GPipe +11.0 %, PO +3.0 %\n"
                                            "no schedule by 1F1B, GIS: " +
                                            reason +
                                            "\n"
                                            "no schedule by ZB-H1: one stage per rank");
    report.bound.reset();
    CHECK(sample::contains(verdict(p, report), "17 ms, no lower bound; bubble"));
    report.bound = duration{17};
    CHECK(sample::contains(verdict(p, report), "17 ms, equal to the lower bound, so optimal; bubble"));
    report.bound = duration{16.9999};
    CHECK(sample::contains(verdict(p, report), "under 0.1 % above the lower bound 16.9999 ms"));
    report.bound = duration{0};
    CHECK(sample::contains(verdict(p, report), "17 ms, lower bound 0 ms; "));
    p.memory_limit[rank{0}] = memory_size::unlimited();
    p.memory_unit = "";
    CHECK(sample::contains(verdict(p, report), "; peak 4; "));
    p.memory_limit[rank{1}] = memory_size{30};
    CHECK(sample::contains(verdict(p, report), "; peak 3 of 30; "));
    report.measures.peak_memory[rank{1}] = memory_size{40960};
    p.memory_limit[rank{1}] = memory_size{85899345920.0};
    CHECK(sample::contains(verdict(p, report), "; peak 40960 of 85900000000; "));
    report.measures.offloads = 0;
    CHECK(!sample::contains(verdict(p, report), "offload"));
}

TEST_CASE("the comparison") {
    const auto p = sample::two_ranks();
    auto better = sample::report_of(p);
    better.method = "better";
    better.measures.objective = duration{16};
    better.measures.offloads = 120;
    refusal why;
    why.reason = refusal_reason::over_memory;
    why.needed = memory_size{6};
    why.limit = memory_size{5};
    const std::vector rows{make_comparison_row(sample::report_of(p), 0.001), make_comparison_row(p, "1f1b", why),
                           make_comparison_row(better, 12.345), make_comparison_row(better)};
    std::ostringstream out;
    write_comparison(out, p, rows);
    CHECK(out.str() == "method   objective [ms]  above best  bubble rate  peak memory [GB]  offloads  planning [s]\n"
                       "by hand              17      +6.2 %       41.2 %                 4         1          0.00\n"
                       "1f1b     rank 0 needs 6 GB of memory, its limit is 5 GB\n"
                       "better               16        best       41.2 %                 4       120         12.35\n"
                       "better               16        best       41.2 %                 4       120             -\n");
    CHECK(make_baseline(rows[0], duration{16}).excess == "+6.2 %");
    CHECK(make_baseline(rows[1], duration{16}).reason == "rank 0 needs 6 GB of memory, its limit is 5 GB");
    CHECK(make_baseline(rows[1], duration{16}).excess.empty());
    CHECK(make_baseline(rows[2], duration{17}).excess == "-5.9 %");
    why.reason = refusal_reason::over_host_memory;
    why.sentence = "no schedule exists";
    CHECK(reason_text(p, why) == "no schedule exists: rank 0 needs 6 GB of host memory, its limit is 5 GB");
}

TEST_CASE("a grid of a measurement and its plan has each line twice") {
    const auto p = sample::two_ranks();
    const auto plan = sample::report_of(p);
    auto measured = plan;
    measured.method = "measured";
    for (auto& timed : measured.schedule.operations)
        if (timed.start >= duration{10}) timed = {timed.op, timed.start + duration{1}, timed.end + duration{1}};
    std::ostringstream out;
    write_overlay_grid(out, p, plan, measured);
    CHECK(out.str() == "sample, measured: one column is 0.5 ms\n"
                       "time [ms]    |0        |5        |10       |15\n"
                       "rank 0 plan  0F0-0F1-........0I0-W-......0B1---..\n"
                       "rank 0 run   0F0-0F1-........0I0-..W-......0B1---\n"
                       "  host plan      O-      R-\n"
                       "  host run       O-      R-\n"
                       "rank 1 plan  ......1F0-1I0-1F1-W-1B1---..........\n"
                       "rank 1 run   ......1F0-1I0-1F1-W-..1B1---........\n"
                       "  host plan\n"
                       "  host run\n");
}

TEST_CASE("differences are a table") {
    const auto p = sample::two_ranks();
    const auto plan = sample::by_hand(p);
    auto measured = plan;
    for (auto& timed : measured.operations)
        if (timed.op.kind == operation_kind::forward) timed.end += duration{timed.op.stage == stage{0} ? 0.25 : -0.25};
    for (auto& timed : measured.operations)
        if (is_transfer(timed.op.kind)) timed = {timed.op, timed.start - duration{1}, timed.end};
    time_difference messages;
    messages.add(duration{1}, duration{1.5});
    std::ostringstream out;
    write_differences(out, p, compare_kinds(plan, measured), messages);
    CHECK(out.str() == "kind     count  planned [ms]  measured [ms]  mean excess  max excess  max delay\n"
                       "F            4             2              2            0       +0.25          0\n"
                       "I            2             2              2            0           0          0\n"
                       "W            2             1              1            0           0          0\n"
                       "B            2             3              3            0           0          0\n"
                       "OFFLOAD      1             1              2           +1          +1         -1\n"
                       "RELOAD       1             1              2           +1          +1         -1\n"
                       "message      1             1            1.5         +0.5        +0.5          -\n");
    out.str("");
    write_differences(out, p, {});
    CHECK(!sample::contains(out.str(), "message"));
}

TEST_CASE("a table puts names left, numbers right, and leaves sentences alone") {
    std::ostringstream out;
    write_table(out, {{"name", "count", "µs"}, {"a", "1000000", "5"}, {"longer", "as long as it likes to be"}});
    CHECK(out.str() == "name      count  µs\na       1000000   5\nlonger  as long as it likes to be\n");
    out.str("");
    write_table(out, {});
    CHECK(out.str().empty());
}

TEST_CASE("round steps") {
    for (const auto& [least, step] :
         {std::pair{1.0, 1.0}, {1.1, 2.0}, {2.5, 5.0}, {5.1, 10.0}, {0.03, 0.05}, {700.0, 1000.0}})
        CHECK(detail::round_step(least) == doctest::Approx(step));
}

TEST_CASE("recomputation in the grid, the verdict and the tables") {
    const auto p = sample::recomputing();
    const auto report = sample::recomputing_report(p);
    REQUIRE(validate(p, report.schedule).empty());
    CHECK(grid_of(p, report) == "sample, by hand: one column is 0.5 ms\n"
                                "time [ms]  |0        |5        |10       |15\n"
                                "rank 0     0F0-0F1-0C0-......0B0---....0B1---\n"
                                "rank 1     ......1F0-1B0---1F1-1B1---........\n");
    CHECK(sample::contains(verdict(p, report), "; 1 recomputed, at most 16.7 % of a rank's work"));
    CHECK_FALSE(sample::contains(verdict(sample::two_ranks(), sample::report_of(sample::two_ranks())), "recomputed"));

    std::ostringstream uses;
    write_storage_uses(uses, p, report.schedule);
    CHECK(uses.str() == "storage  microbatches of stages   share  stage 0  stage 1\n"
                        "keep                          3  75.0 %        1        2\n"
                        "ahead                         1  25.0 %        1        0\n");
    std::ostringstream none;
    write_storage_uses(none, sample::two_ranks(), sample::by_hand(sample::two_ranks()));
    CHECK(none.str().empty());

    std::ostringstream table;
    write_comparison(table, p, {make_comparison_row(report, 0.5)});
    CHECK(sample::contains(table.str(), "recompute rate"));
    CHECK(sample::contains(table.str(), "16.7 %"));
}

TEST_CASE("the storage in use is listed where stages do more than keep and offload") {
    auto p = sample::two_ranks();
    CHECK(storage_uses(p, sample::by_hand(p)).empty());
    p.storage[stage{1}].push_back({"full", memory_size{1}, duration{1}, {}, {}, {}});
    const auto uses = storage_uses(p, sample::by_hand(p));
    REQUIRE(uses.size() == 2);
    CHECK(uses[0].name == "keep");
    CHECK(uses[0].count == 3);
    CHECK(uses[1].name == "offload");
    CHECK(uses[1].by_stage[stage{0}] == 1);
}
