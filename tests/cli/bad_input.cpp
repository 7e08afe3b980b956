#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "oracle/random_cases.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <iterator>
#include <string>

using namespace program;
using nlohmann::json;

namespace {

/// The refusal of a problem file by plan, compare, check, run and draw. All must refuse it in the same way and leave
/// the folder unchanged. Each command is tried every time, or in rotation where a program takes many times as long to
/// start.
finished refusal_of(const workplace& place, const std::string& problem) {
    const auto before = place.files();
    const auto first = run({"plan", problem, "--out", place / "out.json", "--svg", place / "out.svg"});
    const std::vector<std::string> others[] = {
        {"compare", problem, "--json", place / "out.json"},
        {"check", problem, data("two-ranks.json")},
        {"run", problem, data("two-ranks.json"), "--out", place / "out.json"},
        {"draw", data("two-ranks.json"), "--problem", problem, "--svg", place / "out.svg"}};
    static std::size_t asked = 0;
    for (const auto& arguments : others) {
        if (asked++ % oracle::stride(3) != 0) continue;
        const auto other = run(arguments);
        CHECK_MESSAGE((other.status == 2 && other.out.empty() && other.err == first.err), other);
    }
    CHECK(place.files() == before);
    return first;
}

json valid_problem() { return json::parse(content_of(data("two-ranks.json"))); }

std::string repeated(const std::string& text, std::size_t bytes) {
    std::string all;
    all.reserve(bytes + text.size());
    while (all.size() < bytes)
        all += text;
    return all;
}

constexpr std::size_t megabyte = 1000 * 1000;

} // namespace

TEST_CASE("a problem with a bad field is refused with one line that names the file and the field") {
    struct {
        std::string field;
        std::function<void(json&)> spoil;
    } const cases[] = {
        {"format: is missing", [](json& p) { p.erase("format"); }},
        {"format: is \"optpipe.problem/4\"", [](json& p) { p["format"] = "optpipe.problem/4"; }},
        {"format: is \"optpipe.schedule/1\"", [](json& p) { p["format"] = "optpipe.schedule/1"; }},
        {"ranks: is missing", [](json& p) { p.erase("ranks"); }},
        {"ranks: must not be negative", [](json& p) { p["ranks"] = -1; }},
        {"ranks: must be a whole number", [](json& p) { p["ranks"] = 1.5; }},
        {"ranks: must be at most", [](json& p) { p["ranks"] = 1e18; }},
        {"microbatches: is missing", [](json& p) { p.erase("microbatches"); }},
        {"microbatches: must be at least 1", [](json& p) { p["microbatches"] = 0; }},
        {"stages: is missing", [](json& p) { p.erase("stages"); }},
        {"stages: must be a list", [](json& p) { p["stages"] = 1; }},
        {"stages: must hold at least one", [](json& p) { p["stages"] = json::array(); }},
        {"stages[1]: must be an object", [](json& p) { p["stages"][1] = 1; }},
        {"stages[0].rank: is missing", [](json& p) { p["stages"][0].erase("rank"); }},
        {"stages[1].rank: is 2, there are 2 ranks", [](json& p) { p["stages"][1]["rank"] = 2; }},
        {"rank 1 holds no stage", [](json& p) { p["stages"][1]["rank"] = 0; }},
        {"stages[0].forward: is missing", [](json& p) { p["stages"][0].erase("forward"); }},
        {"stages[0].forward: must be above 0", [](json& p) { p["stages"][0]["forward"] = -1.0; }},
        {"stages[0].forward: must be a number, is \"10\"", [](json& p) { p["stages"][0]["forward"] = "10"; }},
        {"stages[1].backward_input: is missing", [](json& p) { p["stages"][1].erase("backward_input"); }},
        {"stages[1].backward_weight: must be above 0", [](json& p) { p["stages"][1]["backward_weight"] = 0; }},
        {"stages[0].activation: is missing", [](json& p) { p["stages"][0].erase("activation"); }},
        {"stages[0].activation: must not be negative", [](json& p) { p["stages"][0]["activation"] = -1; }},
        {"stages[0].weight_stash: must not be negative", [](json& p) { p["stages"][0]["weight_stash"] = -0.5; }},
        {"stages[0].reload: is missing", [](json& p) { p["stages"][0]["reload"] = nullptr; }},
        {"stages[0].offload: must not be negative", [](json& p) { p["stages"][0]["offload"] = -8; }},
        {"split_backward: must be true or false", [](json& p) { p["split_backward"] = 1; }},
        {"p2p: must not be negative", [](json& p) { p["p2p"] = -0.1; }},
        {"p2p: has 1 entries, there are 2 ranks",
         [](json& p) {
             p["p2p"] = {{0, 1}};
         }},
        {"memory_limit: has 3 entries, there are 2 ranks",
         [](json& p) {
             p["memory_limit"] = {1, 1, 1};
         }},
        {"memory_limit[1]: must not be negative",
         [](json& p) {
             p["memory_limit"] = {1, -1};
         }},
        {"memory_limit[0]: 0.5 is below 1, what a single microbatch needs on rank 0",
         [](json& p) {
             p["memory_limit"] = {0.5, 1};
         }},
        {"host_memory_limit: must be a number", [](json& p) { p["host_memory_limit"] = "much"; }},
        {"transfer.engines: must be 1 or 2", [](json& p) { p["transfer"]["engines"] = 3; }},
        {"transfer.duplex: must be \"full\" or \"half\"", [](json& p) { p["transfer"]["duplex"] = "both"; }},
        {"transfer.links[0][1]: is 5",
         [](json& p) {
             p["transfer"]["links"] = {{0, 5}};
         }},
        {"transfer.links[1][0]: rank 0 is already",
         [](json& p) {
             p["transfer"]["links"] = {{0}, {0}};
         }},
        {"memory_limits: is no field of this format; did you mean memory_limit?",
         [](json& p) { p["memory_limits"] = 1; }},
        {"objektive: is no field of this format; did you mean objective?", [](json& p) { p["objektive"] = "span"; }},
        {"stages[1].storage: storage options belong to optpipe.problem/2",
         [](json& p) { p["stages"][1]["storage"] = json::array(); }},
        {"transfer.engine: is no field of this format; did you mean engines?",
         [](json& p) { p["transfer"]["engine"] = 2; }},
        {"objective: must be \"makespan\" or \"span\"", [](json& p) { p["objective"] = "cost"; }},
    };
    for (const auto& each : cases) {
        const auto& field = each.field;
        const workplace place;
        auto problem = valid_problem();
        each.spoil(problem);
        const auto result = refusal_of(place, place.write("bad.json", problem.dump()));
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({"bad.json", field})), field << '\n'
                                                                                                            << result);
    }
}

TEST_CASE("a problem that isn't JSON is refused with the place where it stops to be") {
    const auto text = content_of(data("two-ranks.json"));
    const auto with = [&](const std::string& what, const std::string& instead) {
        auto changed = text;
        return changed.replace(changed.find(what), what.size(), instead);
    };
    const std::pair<std::string, std::string> cases[] = {
        {with("10.0", "NaN"), "line 5, column"},
        {with("10.0", "-Infinity"), "line 5, column"},
        {with("10.0", "1e999"), "line 5, column"},
        {with("10.0", "010"), "line 5, column"},
        {with("null", "nul"), "line 12, column"},
        {text.substr(0, text.size() / 2), "line "},
        {text.substr(0, text.size() - 2), "line "},
        {text + "{", "line "},
        {"", "is empty"},
        {" \n\n", "is empty"},
        {std::string(10, '\0'), "isn't JSON"},
        {"\xff\xfe{\0}\0", "isn't JSON"},
        {with("\"name\"", "\"ranks\": 3, \"name\""), "has the field ranks twice"},
        {"null", "must be an object"},
        {"[]", "must be an object"},
        {"42", "must be an object"},
    };
    for (const auto& [content, part] : cases) {
        const workplace place;
        const auto result = refusal_of(place, place.write("bad.json", content));
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({"bad.json", part})), result);
    }
}

TEST_CASE("garbage is refused, and at once where it is 100 MB") {
    const std::pair<const char*, std::string> garbage[] = {{"text", repeated("garbage \x01\xff", 10 * megabyte)},
                                                           {"brackets", repeated("[", 10 * megabyte)},
                                                           {"objects", repeated("{\"a\":", 10 * megabyte)},
                                                           {"list", "[" + repeated("0,", 10 * megabyte)},
                                                           {"string", "\"" + repeated("x", 10 * megabyte)}};
    for (const auto& each : garbage) {
        const auto* const kind = each.first;
        const workplace place;
        const auto large = place.write("large.json", each.second);
        const auto read = run({"plan", large, "--out", place / "out.json"});
        CHECK_MESSAGE((read.status == 2 && read.says({"large.json"}) && read.err.size() < 1000), kind << '\n' << read);
        fs::resize_file(large, 100 * megabyte);
        const auto as_problem = run({"plan", large, "--out", place / "out.json"});
        CHECK_MESSAGE((as_problem.status == 2 && as_problem.says({"large.json", "larger than 64 MiB"})),
                      kind << '\n'
                           << as_problem);
        const auto as_schedule = run({"check", data("two-ranks.json"), large});
        CHECK_MESSAGE((as_schedule.status == 2 && as_schedule.says({"large.json"})), kind << '\n' << as_schedule);
        CHECK(std::distance(fs::directory_iterator{place / ""}, {}) == 1);
    }
}

TEST_CASE("what can't be read is refused by its name") {
    const workplace place;
    const auto missing = refusal_of(place, place / "none.json");
    CHECK_MESSAGE((missing.status == 2 && missing.says({"none.json", "No such file"})), missing);
    const auto directory = refusal_of(place, place / "");
    CHECK_MESSAGE((directory.status == 2 && directory.says({"Is a directory"})), directory);
    const auto below_file = refusal_of(place, place.write("file", "") + "/problem.json");
    CHECK_MESSAGE((below_file.status == 2 && below_file.says({"file/problem.json"})), below_file);
    const auto odd_name = refusal_of(place, place / "a\nb\x1b[31m");
    CHECK_MESSAGE((odd_name.status == 2 && odd_name.says({"a\\x0ab"})), odd_name);
    const auto endless = run({"plan", "/dev/zero"});
    CHECK_MESSAGE((endless.status == 2 && endless.says({"/dev/zero", "larger than"})), endless);

    const auto closed = place.write("closed.json", content_of(data("two-ranks.json")));
    fs::permissions(closed, fs::perms::none);
    if (::geteuid() == 0) return; // root reads everything
    const auto unreadable = run({"plan", closed});
    CHECK_MESSAGE((unreadable.status == 2 && unreadable.says({"closed.json", "Permission denied"})), unreadable);
}

TEST_CASE("a schedule that departs from its format is refused with its field") {
    const std::pair<std::string, std::string> cases[] = {
        {"{}", "format: is missing"},
        {R"({"format": "optpipe.problem/1", "operations": []})", "format: is \"optpipe.problem/1\""},
        {R"({"format": "optpipe.schedule/1"})", "operations: is missing"},
        {R"({"format": "optpipe.schedule/1", "operations": 3})", "operations: must be a list"},
        {R"({"format": "optpipe.schedule/1", "operations": [3]})", "operations[0]: must be an object"},
        {R"({"format": "optpipe.schedule/1", "operations": [{"op": "0F0", "end": 1}]})",
         "operations[0].start: is missing"},
        {R"({"format": "optpipe.schedule/1", "operations": [{"op": 1, "start": 0, "end": 1}]})",
         "operations[0].op: must be a string"},
        {R"({"format": "optpipe.schedule/1", "operations": [{"op": "0F0", "start": NaN, "end": 1}]})",
         "line 1, column"},
        {R"({"format": "optpipe.schedule/1", "objective": "short", "operations": []})", "objective: must be a number"},
        {R"({"format": "optpipe.schedule/1", "operations": [{"op": "0F0")", "line 1, column"},
    };
    for (const auto& [content, part] : cases) {
        const workplace place;
        const auto result = run({"check", data("two-ranks.json"), place.write("bad.json", content)});
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({"bad.json", part})), result);
    }
}

TEST_CASE("where a file can't be written, none is left half written") {
    for (const std::string option : {"--out", "--svg", "--trace"}) {
        const workplace place;
        place.write("file", "as before");
        fs::create_directory(place / "folder");
        const auto before = place.files();
        const std::string targets[] = {place / "none/s.json", place / "folder", place / "file/s.json", place / "new/",
                                       place / std::string(300, 'x')};
        for (const auto& target : targets) {
            const auto result = run({"plan", data("two-ranks.json"), option, target});
            CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({"cannot write"})), result);
            CHECK(place.files() == before);
        }
    }
}

#endif
