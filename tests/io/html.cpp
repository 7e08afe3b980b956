#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/html.hpp"
#include "optpipe/io/palette.hpp"
#include "optpipe/io/svg.hpp"
#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/timeline.hpp"

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

json data_of(const std::string& page) {
    const std::string begin = "<script type=\"application/json\" id=\"data\">";
    const auto from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
}

} // namespace

TEST_CASE("a page holds the schedule, its measures and what is beside it") {
    const auto p = sample::two_ranks();
    html_options options;
    options.beside = {"measured", sample::report_of(p, {})};
    options.progress = {{"adaptive", 0.25, {}, duration{13}}, {"cp", 0.5, duration{17}, duration{13.6}}};
    options.seconds = 2.0;
    const auto data = data_of(schedule_to_html(p, sample::report_of(p), options));
    CHECK(data["name"] == "sample");
    CHECK(data["bound"] == 13.6);
    CHECK(data["limit"] == json::parse("[5, null]"));
    CHECK(data["stageRank"] == json::parse("[0, 1]"));
    CHECK(data["history"] == json::parse("[[0.25, null, 13, 0], [0.5, 17, 13.6, 1]]"));
    CHECK(data["strategies"] == json::parse(R"(["adaptive", "cp"])"));
    REQUIRE(data["schedules"].size() == 2);
    const auto& own = data["schedules"][0];
    CHECK(own["objective"] == 17);
    // F, F, I, W, B, then the transfers.
    CHECK(own["ranks"][0] == json::parse("[0,0,0,0,2,1, 0,0,1,2,4,0, 0,1,0,8,10,1, 0,2,0,10,11,1, 0,3,1,14,17,0,"
                                         " 0,4,0,2,3,1, 0,5,0,6,7,1]"));
    CHECK(own["host"][0] == json::parse("[2,2, 7,0]"));
    CHECK(data["schedules"][1]["title"] == "measured");
}

TEST_CASE("storage options are named, with what they hold") {
    const auto p = sample::recomputing();
    const auto data = data_of(schedule_to_html(p, sample::recomputing_report(p)));
    CHECK(data["options"] == json::parse(R"([["keep", "ahead", "offload"], ["keep", "offload"]])"));
    CHECK(data["rules"][0][0]["effects"][1][0] == json::parse("[0.5, 0, 0, 0]"));
}

TEST_CASE("a page knows edges, groups, slices and what microbatches cost, once for equal microbatches") {
    const auto p = sample::branching();
    const auto data = data_of(schedule_to_html(p, sample::branching_report(p)));
    CHECK(data["slices"] == json::parse("[[0, 0], [0, 1], [1, 0]]"));
    CHECK(data["rulesOf"] == json::parse("[0, 1, 2]"));
    // Inputs are stage, kind, difference of microbatches, and delay.
    const auto& slice = data["rules"][1];
    CHECK(slice[2]["inputs"] == json::parse("[[[0,0,0,2],[2,0,-1,0]],[[1,0,0,0.3],[2,0,0,0.3]]]"));
    CHECK(slice[0]["inputs"] == json::parse("[[[0,0,-1,0]],[[1,1,0,0],[2,1,0,2]]]"));
    CHECK(slice[2]["frees"] == json::parse("[[[0,0.5]],[]]"));
    const auto& costly = data["rules"][2];
    CHECK(costly[2]["inputs"][0] == json::parse("[[0,0,0,6]]"));
    CHECK(costly[2]["frees"][0] == json::parse("[[0,1]]"));
    CHECK(costly[0]["effects"][0][0] == json::parse("[5,0,0,0]")); // its stash, and what waits for stage 2
    const auto plain = data_of(schedule_to_html(sample::two_ranks(), sample::report_of(sample::two_ranks())));
    CHECK(plain["rules"].size() == 1);
    CHECK(plain["slices"].empty());
}

TEST_CASE("memory curves know what an operation frees on another rank") {
    const auto p = sample::branching();
    const auto report = sample::branching_report(p);
    const auto shown = detail::timeline_of(p, report.schedule);
    for (const rank r : p.graph.all_ranks()) {
        CHECK(shown.ranks[r].device_memory == memory_curve(p, report.schedule, r));
        CHECK(shown.ranks[r].device_memory.back().level.value() == doctest::Approx(0.0));
    }
}

TEST_CASE("page and figure have the colours of kinds from one table; options have colours of their own") {
    const auto p = sample::recomputing();
    const auto report = sample::recomputing_report(p);
    const auto page = schedule_to_html(p, report);
    const auto figure = schedule_to_svg(p, report);
    for (const auto kind : {operation_kind::forward, operation_kind::backward, operation_kind::recompute}) {
        const auto colour = detail::base_colour(kind).text();
        CHECK(sample::contains(page, "--" + std::string{spelling(kind)} + ": " + colour));
        CHECK(sample::contains(figure, "." + detail::shade_class(kind, 0) + "{fill:" + colour + "}"));
    }
    const auto colours = data_of(page)["optionColours"].get<std::vector<std::string>>();
    CHECK(colours.size() >= 10);
    CHECK(std::set<std::string>(colours.begin(), colours.end()).size() == colours.size());
}

TEST_CASE("a page loads nothing") {
    const auto page = schedule_to_html(sample::two_ranks(), sample::report_of(sample::two_ranks()));
    CHECK(page.find("src=") == std::string::npos);
    CHECK(page.find("<link") == std::string::npos);
    CHECK(page.find("@import") == std::string::npos);
    CHECK(page.find("fetch(") == std::string::npos);
    const std::string name_space = "http://www.w3.org/2000/svg";
    for (auto at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1))
        CHECK(page.substr(at, name_space.size()) == name_space);
}

TEST_CASE("no name ends the element that it is in") {
    auto p = sample::two_ranks();
    p.name = "</script><script>alert(1)</script>";
    const auto page = schedule_to_html(p, sample::report_of(p));
    CHECK(page.find("<script>alert") == std::string::npos);
    CHECK(data_of(page)["name"] == p.name);
}

#endif
