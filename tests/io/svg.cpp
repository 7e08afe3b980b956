#include "optpipe/io/svg.hpp"

#include "io/sample.hpp"
#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_layout.hpp"

#include <doctest/doctest.h>

#include <cctype>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

/// A fault in the nesting of the tags or in a character; empty if there is none.
std::string malformation(const std::string& xml) {
    std::vector<std::string> open;
    for (std::size_t i = 0; i < xml.size(); ++i) {
        if (xml[i] == '&') {
            const auto end = xml.find(';', i);
            if (end == std::string::npos || end - i > 6) return "bare & at " + std::to_string(i);
        }
        if (xml[i] == '>') return "bare > at " + std::to_string(i);
        if (xml[i] != '<') continue;
        const auto end = xml.find('>', i);
        if (end == std::string::npos) return "tag without an end";
        const auto tag = xml.substr(i + 1, end - i - 1);
        if (sample::contains(tag, "<") || sample::count(tag, "\"") % 2 != 0) return "broken tag " + tag;
        const auto name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag.front() == '/') {
            if (open.empty() || "/" + open.back() != name) return "unexpected <" + tag + ">";
            open.pop_back();
        } else if (tag.back() != '/') {
            open.push_back(name);
        }
        i = end;
    }
    return open.empty() ? "" : "no end of " + open.back();
}

std::string figure(const problem& p, const svg_options& options = {}) {
    return schedule_to_svg(p, sample::report_of(p), options);
}

/// Elements of text whose estimated extent isn't within the page.
std::string texts_outside(const std::string& svg) {
    const auto number_after = [](const std::string& text, const std::string& name, std::size_t from) {
        return std::stod(text.substr(text.find(name, from) + name.size()));
    };
    const double width = number_after(svg, "viewBox=\"0 0 ", 0);
    std::string outside;
    for (auto at = svg.find("<text class=\""); at != std::string::npos; at = svg.find("<text class=\"", at + 1)) {
        const auto name_end = svg.find('"', at + 13);
        const auto style = svg.substr(at + 13, name_end - at - 13);
        const auto tooltip = svg.find("</title>", at);
        const auto end = svg.find("</text>", at);
        const auto begin = tooltip < end ? tooltip + 8 : svg.find('>', at) + 1;
        double size = style == "title" ? 16 : style == "facts" || style == "unit" ? 12 : 11;
        if (style == "side" || style == "peak" || style == "over") size = 9.5;
        double length = 0.0; // roughly as in DejaVu Sans
        for (const char c : svg.substr(begin, end - begin))
            if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U)
                length += size * (std::string{" .,:;()[]ijl"}.find(c) == std::string::npos ? 0.6 : 0.32);
        const bool is_ending = style == "rank" || style == "side" || style == "boundname";
        const bool is_middle = style == "tick" || style == "unit" || style == "dark" || style == "light";
        const double x = number_after(svg, " x=\"", at);
        const double left = x - length * (is_ending ? 1.0 : is_middle ? 0.5 : 0.0);
        if (left < 0.0 || left + length > width)
            outside +=
                svg.substr(begin, end - begin) + " at " + std::to_string(left) + " of " + std::to_string(width) + "; ";
    }
    return outside;
}

/// `microbatches` microbatches, one after the other, on `ranks` ranks.
schedule_report sequential(problem& p, std::size_t ranks, std::size_t microbatches) {
    const stage_costs c{duration{2}, duration{2}, duration{1}, memory_size{2}, memory_size{1}, {}};
    per_stage<rank> where(ranks);
    for (const stage s : where.indices())
        where[s] = rank{s.value()};
    p = problem{any_graph{ranks, microbatches, placement::map<>{where}}, per_stage<stage_costs>(ranks, c)};
    schedule s{p.graph, {}};
    for (const stage at : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches()) {
            const double start = 5.0 * m.value();
            s.operations.push_back(sample::at(forward(at, m), start, start + 2));
            s.operations.push_back(sample::at(backward(at, m), start + 2, start + 5));
        }
    return {"sequential", s, measure(p, s), {}};
}

} // namespace

TEST_CASE("the checker of tags knows good from bad") {
    CHECK(malformation("<a><b x=\"1\"/>t &amp; u</a>").empty());
    for (const char* bad : {"<a>", "<a></b>", "</a>", "<a>&</a>", "<a", "<a b=\"></a>", "<a>></a>"})
        CHECK(!malformation(bad).empty());
}

TEST_CASE("the figure shows what a reader looks for") {
    const auto svg = figure(sample::two_ranks());
    CHECK(malformation(svg).empty());
    CHECK(svg.substr(0, 39) == "<svg xmlns=\"http://www.w3.org/2000/svg\"");
    CHECK(sample::contains(svg, ">sample · by hand</text>"));
    CHECK(sample::contains(svg, "makespan 17 ms  ·  bound 13.6 ms  ·  gap 20 %  ·  bubble rate 41.2 %  ·  1 offload<"));
    CHECK(sample::contains(svg, ">lower bound 13.6</text>"));
    CHECK(sample::contains(svg, ">time [ms]</text>"));
    CHECK(sample::contains(svg, ">limit 5</text>"));
    CHECK(sample::contains(svg, ">peak 4</text>"));
    CHECK(sample::contains(svg, ">peak 3</text>"));
    for (const char* name : {"F forward", "I backward, input", "W backward, weight", "B backward", "offload", "reload",
                             "bubble", "device memory [GB]", "memory limit"})
        CHECK(sample::count(svg, ">" + std::string{name} + "</text>") == 1);
    CHECK(sample::count(svg, "<line class=\"limit\"") == 2); // of rank 0, and in the legend
    CHECK(sample::count(svg, "<rect class=\"bubble\"") == 3);
    CHECK(sample::count(svg, "<path class=\"memory\"") == 2);
}

TEST_CASE("every operation is a box with its spelling and times") {
    const auto svg = figure(sample::two_ranks());
    CHECK(sample::count(svg, "<rect class=\"o ") == 12);
    CHECK(sample::contains(svg, "<title>0OFFLOAD0: 2 – 3 ms</title>"));
    for (const auto& timed : sample::by_hand(sample::two_ranks()).operations) {
        CHECK(sample::count(svg, "<title>" + to_string(timed.op) + ": ") == 1);
        if (!is_transfer(timed.op.kind)) CHECK(sample::count(svg, ">" + to_string(timed.op) + "</text>") == 1);
    }
    const auto unlabelled = figure(sample::two_ranks(), {.labels = false});
    CHECK(!sample::contains(unlabelled, ">0F0</text>"));
}

TEST_CASE("boxes lie where their times are") {
    const auto svg = figure(sample::two_ranks(), {.width = 96 + 84 + 1700});
    CHECK(sample::contains(svg, "x=\"496\" y=\"96\" width=\"100\" height=\"26\"><title>") == false);
    CHECK(sample::contains(svg, "<rect class=\"o F0\" x=\"296\" y=\"96\" width=\"200\""));  // 0F1: 2 – 4
    CHECK(sample::contains(svg, "<rect class=\"o B0\" x=\"1496\" y=\"96\" width=\"300\"")); // 0B1: 14 – 17
    CHECK(sample::contains(svg, "<line class=\"bound\" x1=\"1456\""));
}

TEST_CASE("a window shows some ranks and some time, at its own scale") {
    const auto svg =
        figure(sample::two_ranks(),
               {.width = 96 + 84 + 1000, .window = {.first_rank = 1, .from = duration{4}, .to = duration{14}}});
    CHECK(malformation(svg).empty());
    CHECK(!sample::contains(svg, ">rank 0</text>"));
    CHECK(sample::contains(svg, ">rank 1</text>"));
    CHECK(!sample::contains(svg, "<title>0"));
    CHECK(sample::contains(svg, "<rect class=\"o F0\" x=\"96\" y=\"96\" width=\"100\"")); // 1F0: 3 – 5
    CHECK(sample::contains(svg, "<title>1F0: 3 – 5 ms</title>"));
    CHECK(sample::contains(svg, "<rect class=\"o B0\" x=\"696\" y=\"96\" width=\"300\"")); // 1B1: 10 – 13
    CHECK(sample::contains(svg, "<line class=\"bound\" x1=\"1056\""));
    CHECK(!sample::contains(figure(sample::two_ranks(), {.window = {.to = duration{13}}}), "<line class=\"bound\""));
}

TEST_CASE("lanes can be left out") {
    const auto svg = figure(sample::two_ranks(), {.transfers = false, .memory = false});
    CHECK(malformation(svg).empty());
    CHECK(!sample::contains(svg, "OFFLOAD"));
    CHECK(!sample::contains(svg, "<path"));
    CHECK(!sample::contains(svg, "limit</text>"));
    CHECK(sample::count(svg, "<rect class=\"o ") == 10);
}

TEST_CASE("links that are shared say so") {
    auto p = sample::two_ranks();
    CHECK(sample::count(figure(p), "</title>host link</text>") == 2);
    p.transfer.share_link(rank{0}, rank{1});
    CHECK(sample::count(figure(p), "</title>link of 0, 1</text>") == 2);
}

TEST_CASE("the bound is no moment where the span counts, and none is drawn outside") {
    auto p = sample::two_ranks();
    p.objective = objective_kind::span;
    CHECK(!sample::contains(figure(p), "lower bound"));
    CHECK(sample::contains(figure(p), ">span 17 ms"));
    p.objective = objective_kind::makespan;
    CHECK(!sample::contains(schedule_to_svg(p, sample::report_of(p, duration{18})), "lower bound"));
    CHECK(!sample::contains(schedule_to_svg(p, sample::report_of(p, std::nullopt)), "bound 1"));
}

TEST_CASE("a limit far above doesn't flatten the curve, one that is broken is shown") {
    auto p = sample::two_ranks();
    p.memory_limit[rank{0}] = memory_size{400};
    CHECK(!sample::contains(figure(p), "<line class=\"limit\""));
    CHECK(sample::contains(figure(p), ">limit 400</text>"));
    p.memory_limit[rank{0}] = memory_size{3};
    CHECK(sample::contains(figure(p), "<text class=\"over\""));
    CHECK(sample::count(figure(p), "class=\"over\"") == 2);
}

TEST_CASE("names are escaped") {
    auto p = sample::two_ranks();
    p.name = "<script>&\"'\x01";
    p.time_unit = "<ms>";
    p.memory_unit = "&";
    const auto svg = figure(p);
    CHECK(malformation(svg).empty());
    CHECK(sample::contains(svg, "&lt;script&gt;&amp;"));
}

TEST_CASE("stages of one rank have shades of their own") {
    auto p = sample::two_ranks();
    per_stage<rank> one_rank(2);
    auto costs = p.costs;
    p = problem{any_graph{1, 2, placement::map<>{one_rank}}, costs};
    const auto svg = figure(p);
    CHECK(sample::contains(svg, "<rect class=\"o F0\""));
    CHECK(sample::contains(svg, "<rect class=\"o F1\""));
    CHECK(sample::contains(svg, "light to dark"));
}

TEST_CASE("labels give way as boxes get narrow, and what can't be seen is merged") {
    problem p;
    auto report = sequential(p, 2, 20);
    CHECK(sample::contains(schedule_to_svg(p, report, {.width = 2200}), ">1B12</text>"));
    const auto numbers = schedule_to_svg(p, report, {.width = 1000});
    CHECK(!sample::contains(numbers, ">1B12</text>"));
    CHECK(sample::count(numbers, ">12</text>") >= 4);
    const auto none = schedule_to_svg(p, report, {.width = 400});
    CHECK(!sample::contains(none, "<text class=\"dark\""));
    CHECK(!sample::contains(none, "<text class=\"light\""));
    CHECK(sample::count(none, "<rect class=\"o ") == 80);

    report = sequential(p, 2, 20'000);
    const auto merged = schedule_to_svg(p, report);
    CHECK(malformation(merged).empty());
    CHECK(merged.size() < 1'500'000);
    CHECK(sample::contains(merged, " operations: "));
}

TEST_CASE("figures of many ranks and of nothing are figures") {
    problem p;
    for (const std::size_t ranks : {1U, 3U, 8U, 16U, 32U, 64U, 100U}) {
        const auto report = sequential(p, ranks, 2);
        const auto svg = schedule_to_svg(p, report);
        CHECK(malformation(svg).empty());
        CHECK(sample::count(svg, "<rect class=\"o ") == 4 * ranks);
    }
    p = sample::two_ranks();
    CHECK(malformation(schedule_to_svg(p, {"none", {p.graph, {}}, measure(p, {p.graph, {}}), {}})).empty());
}

TEST_CASE("a thinned curve keeps its peaks and where it ends") {
    const auto point = [](double time, double level) { return memory_point{duration{time}, memory_size{level}}; };
    const std::vector curve{point(0, 1), point(0.1, 9), point(0.2, 2), point(5, 3), point(5.1, 0)};
    const std::vector expected{point(0, 9), point(1, 2), point(5, 3), point(6, 0)};
    CHECK(detail::thinned(curve, duration{1}) == expected);
    CHECK(detail::thinned(curve, duration{}) == curve);
    CHECK(detail::thinned({}, duration{1}).empty());
}

TEST_CASE("an overlay has the measurement and its plan on one axis") {
    auto p = sample::two_ranks();
    const auto plan = sample::report_of(p);
    auto slower = plan;
    slower.method = "measured";
    for (auto& timed : slower.schedule.operations)
        timed = {timed.op, 2 * timed.start, 2 * timed.end};
    slower.measures = measure(p, slower.schedule);
    const auto svg = overlay_to_svg(p, plan, slower, {.width = 96 + 84 + 1700});
    CHECK(malformation(svg).empty());
    CHECK(sample::count(svg, "<rect class=\"o ") == 24);
    CHECK(sample::contains(svg, ">sample · measured</text>"));
    CHECK(sample::contains(svg, ">measured makespan 34 ms  ·  planned 17 ms  ·  ratio 2  ·  bubble rate 41.2 %"));
    for (const auto& timed : plan.schedule.operations) {
        const auto name = to_string(timed.op) + ": ";
        CHECK(sample::count(svg, "<title>planned " + name + format_number(timed.start) + " – ") == 1);
        CHECK(sample::count(svg, "<title>" + name + format_number(2 * timed.start) + " – ") == 1);
    }
    // 34 units on 1700 pixels; the plan's row is half as high as the lane, and right above it.
    CHECK(sample::contains(svg,
                           "<rect class=\"o F0\" x=\"196\" y=\"96\" width=\"100\" height=\"12\"><title>planned 0F1:"));
    CHECK(sample::contains(svg, "<rect class=\"o F0\" x=\"296\" y=\"109\" width=\"200\" height=\"26\"><title>0F1:"));
    CHECK(sample::count(svg, "<path class=\"memory\"") == 2);
    CHECK(sample::count(svg, "<path class=\"planned\"") == 2);
    CHECK(sample::contains(svg, ">planned 17</text>"));
    CHECK(!sample::contains(svg, "lower bound"));
    CHECK(!sample::contains(figure(p), "planned"));
}

TEST_CASE("an overlay shows what only the plan has in view") {
    auto p = sample::two_ranks();
    const auto plan = sample::report_of(p);
    auto faster = plan;
    for (auto& timed : faster.schedule.operations)
        timed = {timed.op, 0.5 * timed.start, 0.5 * timed.end};
    faster.measures = measure(p, faster.schedule);
    const auto svg = overlay_to_svg(p, plan, faster, {.width = 96 + 84 + 1700});
    // The plan's 17 units are as wide as the plot.
    CHECK(sample::contains(svg, "<rect class=\"o B0\" x=\"1496\" y=\"96\" width=\"300\""));
    CHECK(sample::contains(svg, "ratio 0.5  ·"));
    p.objective = objective_kind::span;
    CHECK(!sample::contains(overlay_to_svg(p, plan, faster), ">planned 17</text>"));
}

TEST_CASE("recomputation has a colour of its own, where it is used") {
    const auto p = sample::recomputing();
    const auto svg = schedule_to_svg(p, sample::recomputing_report(p));
    CHECK(malformation(svg).empty());
    CHECK(sample::count(svg, ">C recompute</text>") == 1);
    CHECK(sample::count(svg, "<rect class=\"o C0\"") == 1);
    CHECK(sample::contains(svg, ".C0{fill:"));
    CHECK(sample::contains(svg, "<title>0RECOMPUTE0: 4 – 6 ms</title>"));
    CHECK(sample::contains(svg, ">0C0</text>"));
    CHECK(sample::contains(svg, "  ·  1 recomputed<"));
    const auto plain = figure(sample::two_ranks());
    CHECK_FALSE(sample::contains(plain, "recompute"));
    CHECK_FALSE(sample::contains(plain, ".C0{"));
    const auto shade = [](operation_kind kind) { return detail::shade_of(kind, 0, 1).text(); };
    for (const auto kind : all_operation_kinds)
        CHECK((kind == operation_kind::recompute || shade(kind) != shade(operation_kind::recompute)));
}

TEST_CASE("every text lies within the page, however narrow it is and whatever it says") {
    auto wide = sample::two_ranks();
    wide.name = std::string(90, 'M') + " and a name as long as nobody reads";
    wide.time_unit = "units of time for all";
    wide.memory_unit = "bytes on each device";
    wide.memory_limit[rank{0}] = memory_size{85899345920.0};
    wide.transfer.share_link(rank{0}, rank{1});
    const auto recomputing = sample::recomputing();
    for (const double width : {0.0, 200.0, 280.0, 400.0, 640.0, 900.0, 1600.0}) {
        CAPTURE(width);
        const svg_options options{.width = width};
        for (const auto& p : {sample::two_ranks(), wide}) {
            CHECK(texts_outside(figure(p, options)) == "");
            const auto r = sample::report_of(p);
            CHECK(texts_outside(overlay_to_svg(p, r, r, options)) == "");
        }
        const auto r = sample::recomputing_report(recomputing);
        CHECK(texts_outside(overlay_to_svg(recomputing, r, r, options)) == "");
        problem p;
        const auto many = sequential(p, 6, 3);
        p.transfer.share_link(rank{3}, rank{4});
        p.name = "六つの階級";
        CHECK(texts_outside(schedule_to_svg(p, many, options)) == "");
    }
}

TEST_CASE("what doesn't fit into one row of the header is in the next, and nothing is lost") {
    const auto p = sample::two_ranks();
    const auto narrow = figure(p, {.width = 400});
    for (const char* name : {"F forward", "I backward, input", "W backward, weight", "B backward", "offload", "reload",
                             "bubble", "device memory [GB]", "memory limit"})
        CHECK(sample::count(narrow, ">" + std::string{name} + "</text>") == 1);
    CHECK(sample::contains(narrow, "1 offload</text>"));
    CHECK(detail::lines_of({"one", "two three", "four"}, ", ", 45.0, 10.0) ==
          std::vector<std::string>{"one", "two", "three", "four"});
    CHECK(detail::lines_of({"one", "two"}, ", ", 100.0, 10.0) == std::vector<std::string>{"one, two"});
    CHECK(detail::cut_to_width("abcdefgh", 40.0, 10.0) == "abcd…");
}
