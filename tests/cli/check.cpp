#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

using namespace program;
using nlohmann::json;

namespace {

/// A plan for trying how check judges changes.
class plan {
public:
    explicit plan(std::string problem) : problem_{std::move(problem)} {
        REQUIRE(run({"plan", problem_, "--quiet", "--time-limit", "0.2", "--out", place_ / "s.json"}).status == 0);
        valid_ = json::parse(place_.read("s.json"));
    }
    [[nodiscard]] json document() const { return valid_; }
    [[nodiscard]] finished check(const json& changed) const {
        return run({"check", problem_, place_.write("changed.json", changed.dump())});
    }

private:
    std::string problem_;
    workplace place_;
    json valid_;
};

json& find(json& document, const std::string& op) {
    for (auto& entry : document["operations"])
        if (entry["op"] == op) return entry;
    FAIL("there is no " << op);
    return document;
}

} // namespace

TEST_CASE("a valid schedule is valid, in any order of its operations and with what it claims left out") {
    const plan p{data("two-ranks.json")};
    auto document = p.document();
    const auto as_planned = p.check(document);
    CHECK_MESSAGE(as_planned.status == 0, as_planned);
    CHECK(as_planned.out == "valid objective=152 bubble_rate=0.3026 offloads=4 peak_memory=[1.5, 1.5]\n");
    std::reverse(document["operations"].begin(), document["operations"].end());
    CHECK(p.check(document).out == as_planned.out);
    for (const auto* claim : {"objective", "bound", "gap", "bubble_rate", "peak_memory", "method"})
        document.erase(claim);
    CHECK(p.check(document).out == as_planned.out);
}

TEST_CASE("an invalid schedule has status 1, and the operation is named") {
    const plan p{data("two-ranks.json")};
    const auto refused = [&](const json& document, const std::string& part) {
        const auto result = p.check(document);
        CHECK_MESSAGE((result.status == 1 && result.out.starts_with("INVALID: ") && contains(result.out, part)),
                      result);
    };
    auto shifted = p.document();
    find(shifted, "0F2")["start"] = 0.0;
    find(shifted, "0F2")["end"] = 10.0;
    refused(shifted, "0F2 starts at 0 while 0F0 runs until 10");

    auto stretched = p.document();
    find(stretched, "1I1")["end"] = find(stretched, "1I1")["end"].get<double>() + 1.0;
    refused(stretched, "1I1 lasts 11.5, not 10.5");

    auto twice = p.document();
    twice["operations"].push_back(find(twice, "1W2"));
    refused(twice, "1W2 appears twice");

    auto dropped = p.document();
    dropped["operations"].erase(dropped["operations"].begin());
    refused(dropped, "0F0 is missing");

    auto elsewhere = p.document();
    find(elsewhere, "0F0")["op"] = "7F0";
    refused(elsewhere, "7F0: no such stage or microbatch");

    auto unreadable = p.document();
    find(unreadable, "0F0")["op"] = "0X0";
    refused(unreadable, "0X0");
}

TEST_CASE("a false claim is refused, and named") {
    const plan p{data("two-ranks.json")};
    const std::pair<const char*, json> lies[] = {{"objective", 151.0},    {"bound", 153.0},
                                                 {"bubble_rate", 0.2},    {"gap", 0.5},
                                                 {"peak_memory", {1, 1}}, {"peak_memory", json::array({1.5})}};
    for (const auto& [field, lie] : lies) {
        auto document = p.document();
        document[field] = lie;
        const auto result = p.check(document);
        CHECK_MESSAGE((result.status == 1 && contains(result.out, field)), result);
    }
}

TEST_CASE("a schedule without operations lacks every one of them; 20 are listed") {
    const plan p{example("llama2-7b-4k-p4.json")};
    auto document = p.document();
    document["operations"] = json::array();
    const auto result = p.check(document);
    CHECK_MESSAGE((result.status == 1 && result.out.starts_with("INVALID: 128 violations\n")), result);
    CHECK_MESSAGE((contains(result.out, "0F0 is missing\n") && result.out.ends_with("and 108 more\n")), result);
    CHECK(std::count(result.out.begin(), result.out.end(), '\n') == 22);
}

TEST_CASE("a schedule of another problem is noted, and judged all the same") {
    const plan p{data("two-ranks.json")};
    auto document = p.document();
    document["problem"] = "another";
    const auto result = p.check(document);
    CHECK_MESSAGE((result.status == 0 && result.says({"note", "another", "two-ranks"})), result);
}

#endif
