#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/json.hpp"

#include <limits>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

const char* const example = R"({ "format": "optpipe.problem/1",
  "name": "example", "time_unit": "us", "memory_unit": "MB",
  "ranks": 2, "microbatches": 8,
  "stages": [
    { "rank": 0, "forward": 10.0, "backward_input": 10.5, "backward_weight": 6.0,
      "activation": 1.0, "weight_stash": 0.25, "offload": 8.0, "reload": 9.0 },
    { "rank": 1, "forward": 11.0, "backward_input": 10.5, "backward_weight": 6.0,
      "activation": 1.0, "weight_stash": 0.5, "offload": null, "reload": null } ],
  "split_backward": false,
  "p2p": [[0, 0.4], [0.6, 0]],
  "memory_limit": [1.5, null],
  "host_memory_limit": 7,
  "transfer": { "engines": 2, "links": [[0, 1]], "duplex": "half" },
  "objective": "span", "note": "not ours" })";

std::vector<violation> violations_of(const std::string& text) {
    try {
        (void)parse_problem(text, "file.json");
    } catch (const input_error& refused) {
        CHECK(refused.source() == "file.json");
        const std::string what = refused.what();
        CHECK(what.substr(0, 11) == "file.json: ");
        CHECK(what.size() < 2000);
        for (const char c : what)
            CHECK(static_cast<unsigned char>(c) >= 0x20);
        return refused.violations();
    }
    return {};
}

bool says(const std::vector<violation>& found, const std::string& place, const std::string& reason) {
    for (const auto& v : found)
        if (v.place == place && sample::contains(v.reason, reason)) return true;
    return false;
}

std::string text_of(const std::vector<violation>& found) {
    std::string text = found.empty() ? "nothing was found" : "";
    for (const auto& v : found)
        text += "[" + v.text() + "] ";
    return text;
}

/// Checks that the example with one change has exactly this violation.
void refuses(const char* pointer, const json& value, const std::string& place, const std::string& reason) {
    auto changed = json::parse(example);
    changed[json::json_pointer{pointer}] = value;
    const auto found = violations_of(changed.dump());
    INFO(pointer << " = " << value.dump() << ": " << text_of(found));
    CHECK(found.size() == 1);
    CHECK(says(found, place, reason));
}

void refuses_without(const char* object, const char* field, const std::string& place, const std::string& reason) {
    auto changed = json::parse(example);
    changed[json::json_pointer{object}].erase(field);
    const auto found = violations_of(changed.dump());
    INFO("without " << field << ": " << text_of(found));
    CHECK(found.size() == 1);
    CHECK(says(found, place, reason));
}

bool same(const problem& a, const problem& b) {
    bool hops = true;
    for (const rank r : a.graph.all_ranks())
        for (const rank q : a.graph.all_ranks())
            hops = hops && a.p2p(r, q) == b.p2p(r, q);
    return hops && a.graph == b.graph && a.costs == b.costs && a.split_backward == b.split_backward &&
           a.memory_limit == b.memory_limit && a.host_memory_limit == b.host_memory_limit &&
           a.transfer.engines == b.transfer.engines && a.transfer.duplex == b.transfer.duplex &&
           a.transfer.link == b.transfer.link && a.objective == b.objective && a.name == b.name &&
           a.time_unit == b.time_unit && a.memory_unit == b.memory_unit;
}

} // namespace

TEST_CASE("every field is read") {
    const auto p = parse_problem(example, "file.json");
    CHECK(p.name == "example");
    CHECK(p.time_unit == "us");
    CHECK(p.memory_unit == "MB");
    CHECK(p.graph.ranks() == 2);
    CHECK(p.graph.microbatches() == 8);
    CHECK(p.graph.stages() == 2);
    CHECK(p.rank_of(stage{1}) == rank{1});
    const auto& c = p.costs[stage{0}];
    CHECK(c.forward == duration{10});
    CHECK(c.backward_input == duration{10.5});
    CHECK(c.backward_weight == duration{6});
    CHECK(c.activation == memory_size{1});
    CHECK(c.weight_stash == memory_size{0.25});
    CHECK(p.storage_of(stage{0}, 1).transfer == transfer_times{duration{8}, duration{9}});
    CHECK(p.storage_options(stage{1}) == 1);
    CHECK(!p.split_backward);
    CHECK(p.p2p(rank{0}, rank{1}) == duration{0.4});
    CHECK(p.p2p(rank{1}, rank{0}) == duration{0.6});
    CHECK(p.memory_limit[rank{0}] == memory_size{1.5});
    CHECK(p.memory_limit[rank{1}].is_unlimited());
    CHECK(p.host_memory_limit[rank{1}] == memory_size{7});
    CHECK(p.transfer.engines == 2);
    CHECK(p.transfer.duplex == duplex_kind::half);
    CHECK(p.transfer.link[rank{0}] == p.transfer.link[rank{1}]);
    CHECK(p.objective == objective_kind::span);
}

TEST_CASE("what may be left out has the defaults of the format") {
    const auto p = parse_problem(R"({"format": "optpipe.problem/1", "ranks": 1, "microbatches": 3, "stages":
        [{"rank": 0, "forward": 1, "backward_input": 2, "backward_weight": 3, "activation": 4}]})",
                                 "models/tiny.json");
    CHECK(p.name == "tiny");
    CHECK(p.time_unit == "ms");
    CHECK(p.memory_unit == "GB");
    CHECK(p.costs[stage{0}].weight_stash == memory_size{2});
    CHECK(p.storage_options(stage{0}) == 1);
    CHECK(p.split_backward);
    CHECK(p.p2p.is_uniform());
    CHECK(p.p2p(rank{0}, rank{1}) == duration{0});
    CHECK(p.memory_limit[rank{0}].is_unlimited());
    CHECK(p.host_memory_limit[rank{0}].is_unlimited());
    CHECK(p.transfer.engines == 1);
    CHECK(p.transfer.duplex == duplex_kind::full);
    CHECK(p.objective == objective_kind::makespan);
}

TEST_CASE("a problem may be without full backwards") {
    const auto with = [](const char* fields) {
        auto changed = json::parse(example);
        changed.update(json::parse(fields));
        return changed.dump();
    };
    CHECK(parse_problem(example, "x").full_backward);
    const auto split = with(R"({"split_backward": true, "full_backward": false})");
    const auto p = parse_problem(split, "x");
    CHECK_FALSE(p.full_backward);
    CHECK_FALSE(parse_problem(problem_to_json(p), "x").full_backward);
    CHECK_FALSE(sample::contains(problem_to_json(parse_problem(example, "x")), "full_backward"));
    const auto neither = violations_of(with(R"({"full_backward": false})"));
    CHECK_MESSAGE(says(neither, "full_backward", "is false, and so is split_backward"), text_of(neither));
    const auto no_flag = violations_of(with(R"({"full_backward": "fused"})"));
    CHECK_MESSAGE(says(no_flag, "full_backward", "must be true or false"), text_of(no_flag));
}

TEST_CASE("a problem is written as people write it") {
    CHECK(problem_to_json(sample::two_ranks()) == R"({ "format": "optpipe.problem/1",
  "name": "sample",
  "time_unit": "ms",
  "memory_unit": "GB",
  "ranks": 2,
  "microbatches": 2,
  "stages": [
    { "rank": 0, "forward": 2, "backward_input": 2, "backward_weight": 1, "activation": 2, "weight_stash": 1, "offload": 1, "reload": 1 },
    { "rank": 1, "forward": 2, "backward_input": 2, "backward_weight": 1, "activation": 2, "weight_stash": 1, "offload": 1, "reload": 1 } ],
  "split_backward": true,
  "p2p": 1,
  "memory_limit": [5, null],
  "host_memory_limit": [null, null],
  "transfer": { "engines": 1, "links": [], "duplex": "full" },
  "objective": "makespan" }
)");
}

TEST_CASE("a problem reads back as it was, bit by bit") {
    auto p = sample::two_ranks();
    CHECK(same(parse_problem(problem_to_json(p), "x"), p));
    CHECK(same(parse_problem(problem_to_json(parse_problem(example, "x")), "x"), parse_problem(example, "x")));
    p.name = "a \"name\"\\ with\nevery\tthing \xC3\xA9";
    p.transfer.share_link(rank{0}, rank{1});
    for (const double value : {0.1, 1.0 / 3.0, 1e-60, 123456789.123456789, 1e22, 9007199254740993.0, 1e60}) {
        p.costs[stage{1}].forward = duration{value};
        p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{value}, duration{}}; });
        const auto q = parse_problem(problem_to_json(p), "x");
        CHECK(q.costs[stage{1}].forward == duration{value});
        CHECK(same(p, q));
        CHECK(!same(p, sample::two_ranks()));
    }
}

TEST_CASE("each field that is wrong is named, with the reason") {
    REQUIRE(violations_of(example).empty());
    refuses(
        "/format", "optpipe.problem/4", "format",
        "is \"optpipe.problem/4\", must be \"optpipe.problem/1\" or \"optpipe.problem/2\" or \"optpipe.problem/3\"");
    refuses("/format", 1, "format", "is 1");
    refuses("/name", 7, "name", "must be a string, is 7");
    refuses("/time_unit", nullptr, "time_unit", "must be a string, is null");
    refuses("/memory_unit", json::array(), "memory_unit", "must be a string, is a list");
    refuses("/ranks", -1, "ranks", "must not be negative, is -1");
    refuses("/ranks", 1.5, "ranks", "must be a whole number, is 1.5");
    refuses("/ranks", "2", "ranks", "must be a whole number, is \"2\"");
    refuses("/ranks", 1e18, "ranks", "must be at most 4096, is 1e+18");
    refuses("/microbatches", 0, "microbatches", "must be at least 1");
    refuses("/microbatches", -3, "microbatches", "must not be negative, is -3");
    refuses("/microbatches", 2.5, "microbatches", "whole number");
    refuses("/microbatches", 1e300, "microbatches", "must be at most");
    refuses("/microbatches", (1U << 19U) + 1, "microbatches", "times stages must be at most 1048576");
    refuses("/stages", json::array(), "stages", "at least one stage");
    refuses("/stages", 3, "stages", "must be a list, is 3");
    refuses("/stages/1", "x", "stages[1]", "must be an object, is \"x\"");
    refuses("/stages/1/rank", 2, "stages[1].rank", "is 2, there are 2 ranks");
    refuses("/stages/1/rank", -1, "stages[1].rank", "must not be negative");
    refuses("/stages/1/rank", 0, "stages", "rank 1 holds no stage");
    refuses("/stages/1/rank", 4294967296, "stages[1].rank", "must be at most");
    refuses("/stages/0/forward", 0, "stages[0].forward", "must be above 0, is 0");
    refuses("/stages/0/forward", "ten", "stages[0].forward", "must be a number, is \"ten\"");
    refuses("/stages/1/backward_input", -2, "stages[1].backward_input", "must be above 0, is -2");
    refuses("/stages/1/backward_weight", true, "stages[1].backward_weight", "must be a number, is true");
    refuses("/stages/0/activation", -1, "stages[0].activation", "must not be negative");
    refuses("/stages/0/weight_stash", -1, "stages[0].weight_stash", "must not be negative");
    refuses("/stages/0/weight_stash", nullptr, "stages[0].weight_stash", "must be a number, is null");
    refuses("/stages/0/offload", nullptr, "stages[0].offload", "is missing, but reload is given");
    refuses("/stages/0/reload", nullptr, "stages[0].reload", "is missing, but offload is given");
    refuses("/stages/0/offload", -1, "stages[0].offload", "must not be negative");
    refuses("/stages/0/reload", "x", "stages[0].reload", "must be a number");
    refuses("/split_backward", 1, "split_backward", "must be true or false, is 1");
    refuses("/p2p", -1, "p2p", "must not be negative, is -1");
    refuses("/p2p", "x", "p2p", "must be a number, is \"x\"");
    refuses("/p2p", json::array({1, 2, 3}), "p2p", "has 3 entries, there are 2 ranks");
    refuses("/p2p", json::array({1, 2}), "p2p[0]", "must be a list, is 1");
    refuses("/p2p/1", json::array({1}), "p2p[1]", "has 1 entries, there are 2 ranks");
    refuses("/p2p/1/0", "x", "p2p[1][0]", "must be a number");
    refuses("/p2p/1/0", -1, "p2p[1][0]", "must not be negative");
    refuses("/memory_limit", -1, "memory_limit", "must not be negative, is -1");
    refuses("/memory_limit", "x", "memory_limit", "must be a number");
    refuses("/memory_limit", json::array({2}), "memory_limit", "has 1 entries, there are 2 ranks");
    refuses("/memory_limit/1", -2, "memory_limit[1]", "must not be negative, is -2");
    refuses("/memory_limit/1", "x", "memory_limit[1]", "must be a number");
    refuses("/memory_limit/0", 0.5, "memory_limit[0]", "0.5 is below 1, what a single microbatch needs on rank 0");
    refuses("/host_memory_limit", json::array({1, 2, 3}), "host_memory_limit", "has 3 entries");
    refuses("/host_memory_limit", -1, "host_memory_limit", "must not be negative");
    refuses("/transfer", 1, "transfer", "must be an object, is 1");
    refuses("/transfer/engines", 3, "transfer.engines", "must be 1 or 2, is 3");
    refuses("/transfer/engines", 0, "transfer.engines", "must be 1 or 2, is 0");
    refuses("/transfer/engines", -1, "transfer.engines", "must not be negative");
    refuses("/transfer/engines", "1", "transfer.engines", "must be a whole number");
    refuses("/transfer/links", 1, "transfer.links", "must be a list");
    refuses("/transfer/links/0", 1, "transfer.links[0]", "must be a list");
    refuses("/transfer/links/0", json::array({0, 2}), "transfer.links[0][1]", "is 2, there are 2 ranks");
    refuses("/transfer/links/0", json::array({0, 0}), "transfer.links[0][1]", "rank 0 is already on a link");
    refuses("/transfer/links", json::array({{0}, {1, 0}}), "transfer.links[1][1]", "rank 0 is already on a link");
    refuses("/transfer/links/0/0", -1, "transfer.links[0][0]", "must not be negative");
    refuses("/transfer/duplex", "triplex", "transfer.duplex", "must be \"full\" or \"half\", is \"triplex\"");
    refuses("/objective", "speed", "objective", "must be \"makespan\" or \"span\", is \"speed\"");
    refuses("/objective", nullptr, "objective", "is null");
}

TEST_CASE("each field that is missing is named") {
    refuses_without("", "format", "format", "is missing, must be \"optpipe.problem/1\" or");
    refuses_without("", "ranks", "ranks", "is missing");
    refuses_without("", "microbatches", "microbatches", "is missing");
    refuses_without("", "stages", "stages", "is missing");
    for (const char* field : {"rank", "forward", "backward_input", "backward_weight", "activation"})
        refuses_without("/stages/1", field, std::string{"stages[1]."} + field, "is missing");
    refuses_without("/stages/0", "offload", "stages[0].offload", "is missing");
    refuses_without("/stages/0", "reload", "stages[0].reload", "is missing");
}

TEST_CASE("a field that the format doesn't know is refused at every level, with the name that may have been meant") {
    struct {
        const char* place;
        const char* reason;
        void (*add)(json&);
    } const cases[] = {
        {"memory_limits", "did you mean memory_limit?", [](json& p) { p["memory_limits"] = 1; }},
        {"objektive", "did you mean objective?", [](json& p) { p["objektive"] = "span"; }},
        {"micro_batches", "did you mean microbatches?", [](json& p) { p["micro_batches"] = 8; }},
        {"P2P", "did you mean p2p?", [](json& p) { p["P2P"] = 1; }},
        {"storage", "is no field of this format", [](json& p) { p["storage"] = json::array(); }},
        {"stages[1].weigth_stash", "did you mean weight_stash?", [](json& p) { p["stages"][1]["weigth_stash"] = 0; }},
        {"stages[0].memory_limit", "is no field of this format", [](json& p) { p["stages"][0]["memory_limit"] = 0; }},
        {"stages[0].storage", "storage options belong to optpipe.problem/2",
         [](json& p) { p["stages"][0]["storage"] = json::array(); }},
        {"transfer.engine", "did you mean engines?", [](json& p) { p["transfer"]["engine"] = 2; }},
        {"\"\"", "is no field of this format", [](json& p) { p[""] = 2; }},
    };
    for (const auto& [place, reason, add] : cases) {
        auto changed = json::parse(example);
        add(changed);
        const auto found = violations_of(changed.dump());
        CHECK_MESSAGE(found.size() == 1, text_of(found));
        CHECK_MESSAGE(says(found, place, reason), text_of(found));
    }
    auto annotated = json::parse(example);
    for (auto* level : {&annotated, &annotated["stages"][0], &annotated["transfer"]}) {
        (*level)["note"] = {{"measured", "yesterday"}};
        (*level)["x-author"] = json::array({1, 2});
    }
    CHECK_MESSAGE(violations_of(annotated.dump()).empty(), text_of(violations_of(annotated.dump())));
    auto far = json::parse(example);
    far["temperature"] = 3;
    CHECK(text_of(violations_of(far.dump())) == "[temperature: is no field of this format] ");
}

TEST_CASE("of a file of another format nothing else is said") {
    const auto found = violations_of(R"({"format": "optpipe.schedule/1", "operations": []})");
    REQUIRE(found.size() == 1);
    CHECK(found[0].place == "format");
}

TEST_CASE("all that is wrong is said at once") {
    auto changed = json::parse(example);
    changed["stages"][0]["forward"] = "x";
    changed["stages"][1]["activation"] = -1;
    changed["memory_limit"] = json::array({1});
    changed["objective"] = 3;
    changed["transfer"]["engines"] = 9;
    const auto found = violations_of(changed.dump());
    INFO(text_of(found));
    CHECK(found.size() == 5);
    CHECK(says(found, "stages[0].forward", "number"));
    CHECK(says(found, "stages[1].activation", "negative"));
    CHECK(says(found, "memory_limit", "entries"));
    CHECK(says(found, "objective", "must be"));
    CHECK(says(found, "transfer.engines", "must be 1 or 2"));
}

TEST_CASE("what isn't JSON is refused where it stops to be") {
    const auto refused_at = [](const std::string& text, const std::string& place, const std::string& reason) {
        const auto found = violations_of(text);
        INFO(printable(text) << ": " << text_of(found));
        REQUIRE(found.size() == 1);
        CHECK(found[0].place == place);
        CHECK(sample::contains(found[0].reason, reason));
    };
    refused_at("", "", "is empty");
    refused_at(" \n\t", "", "is empty");
    refused_at("{\n  \"ranks\": nul }", "line 2, column 15", "isn't JSON: invalid literal");
    refused_at("x", "line 1, column 1", "isn't JSON");
    refused_at("{\"a\": 1", "line 1, column 7", "unexpected end of input");
    refused_at("{\"a\": 1}\n}", "line 2, column 1", "isn't JSON");
    refused_at("\n{\"a\": NaN}", "line 2, column 7", "isn't JSON");
    refused_at("{\"a\": Infinity}", "line 1, column 7", "isn't JSON");
    refused_at("{\"a\": 1e999}", "line 1, column 11", "number overflow");
    refused_at("{\"a\": \"\xff\"}", "line 1, column 8", "UTF-8");
    refused_at("{\"a\": \"\x01\"}", "line 1, column 8", "control character");
    refused_at(std::string("{\0}", 3), "line 1, column 2", "isn't JSON: holds a zero byte");
    refused_at(std::string("{}\n\0 {", 6), "line 2, column 1", "isn't JSON: holds a zero byte");
    refused_at("{\"a\": [{\"b\": 1, \"c\": 2, \"b\": 1}]}", "", "has the field b twice in one object (a[0])");
    refused_at("{\"a\": [{}, [{\"b\": {\"c\": 1, \"c\": 1}}]]}", "", "has the field c twice in one object (a[1][0].b)");
    refused_at("[1]", "", "must be an object, is a list");
    refused_at("null", "", "must be an object, is null");
}

TEST_CASE("huge and hostile texts end in a short message") {
    constexpr std::size_t large = 5'000'000;
    const auto only = [](const std::string& text) {
        const auto found = violations_of(text);
        REQUIRE(found.size() == 1);
        return found[0].text();
    };
    CHECK(sample::contains(only(std::string(large, '[')), "nested more than 64 levels"));
    CHECK(sample::contains(only(std::string(large, 'x')), "isn't JSON"));
    CHECK(sample::contains(only("\"" + std::string(large, '\x7f')), "isn't JSON"));
    CHECK(sample::contains(only("{\"a\": " + std::string(large, '9') + "}"), "number overflow"));
    std::string many = "[0";
    for (std::size_t i = 0; i < 4'200'000; ++i)
        many += ",0";
    CHECK(sample::contains(only(many + "]"), "holds more than 4194304 values"));
    std::string objects = "{\"format\": \"optpipe.problem/1\", \"ranks\": 1, \"microbatches\": 1, \"stages\": [{}";
    for (std::size_t i = 0; i < 100'000; ++i)
        objects += ",{}";
    CHECK(sample::contains(only(objects + "]}"), "stages: holds 100001, at most 4096"));
}

TEST_CASE("the file names itself") {
    CHECK_THROWS_WITH_AS((void)read_problem("/nowhere/problem.json"),
                         "cannot read '/nowhere/problem.json': No such file or directory", file_error);
}

#endif
