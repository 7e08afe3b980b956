// Forwards alone, from the plan to the run: each command recognizes them by their file.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// A plan of forwards in a file.
class planned {
public:
    explicit planned(const std::string& problem) : problem_{data(problem)} {
        REQUIRE(run({"plan", problem_, "--forward-only", "--quiet", "--out", path()}).status == 0);
    }
    [[nodiscard]] std::string path() const { return place_ / "forwards.json"; }
    [[nodiscard]] const std::string& problem() const { return problem_; }
    [[nodiscard]] const workplace& place() const { return place_; }
    [[nodiscard]] json document() const { return json::parse(place_.read("forwards.json")); }
    [[nodiscard]] finished check(const json& changed) const {
        return run({"check", problem_, place_.write("changed.json", changed.dump())});
    }

private:
    std::string problem_;
    workplace place_;
};

} // namespace

TEST_CASE("forwards are planned, shown with their proof, and pass check") {
    for (const std::string name : {"two-ranks.json", "v-three-ranks.json", "chunks.json"}) {
        CAPTURE(name);
        const auto shown = run({"plan", data(name), "--forward-only"});
        CHECK_MESSAGE((shown.status == 0 && shown.err.empty()), shown);
        CHECK_MESSAGE(contains(shown.out, "0F0"), shown);
        CHECK_MESSAGE(contains(shown.out, "bound"), shown);
        CHECK_MESSAGE(contains(shown.out, "peak 0"), shown);

        const planned p{name};
        const auto document = p.document();
        CHECK(document["format"] == "optpipe.schedule/2");
        CHECK(document["forward_only"] == true);
        CHECK(document["method"] == "forward-only");
        CHECK(document["bound"].is_number());
        for (const auto& peak : document["peak_memory"])
            CHECK(peak == 0.0);
        const auto checked = p.check(document);
        CHECK_MESSAGE((checked.status == 0 && checked.out.starts_with("valid objective=")), checked);
    }
}

TEST_CASE("the result as JSON") {
    const auto result = run({"plan", data("two-ranks.json"), "--forward-only", "--json"});
    REQUIRE_MESSAGE(result.status == 0, result);
    const auto document = json::parse(result.out);
    CHECK(document["method"] == "forward-only");
    CHECK(document["gap"] == 0.0);
    CHECK(document["methods"].empty());
}

TEST_CASE("a file of forwards that doesn't say so is no schedule, and one that says so has nothing else") {
    const planned p{"two-ranks.json"};
    auto silent = p.document();
    silent.erase("forward_only");
    const auto training = p.check(silent);
    CHECK_MESSAGE((training.status == 1 && contains(training.out, "needs either B, or I and W")), training);

    auto more = p.document();
    more["operations"].push_back({{"op", "0B0"}, {"start", 1000}, {"end", 1016.5}});
    const auto refused = p.check(more);
    CHECK_MESSAGE((refused.status == 1 && contains(refused.out, "0B0 isn't a forward")), refused);

    auto fewer = p.document();
    fewer["operations"].erase(0);
    CHECK_MESSAGE(p.check(fewer).status == 1, p.check(fewer));

    auto early = p.document();
    early["format"] = "optpipe.schedule/1";
    const auto version = p.check(early);
    CHECK_MESSAGE((version.status == 2 && version.says({"forward_only", "belongs to optpipe.schedule/2"})), version);

    auto wrong = p.document();
    wrong["forward_only"] = "yes";
    CHECK_MESSAGE((p.check(wrong).status == 2 && p.check(wrong).says({"forward_only"})), p.check(wrong));

    auto lie = p.document();
    lie["objective"] = 1.0;
    CHECK_MESSAGE((p.check(lie).status == 1 && contains(p.check(lie).out, "objective")), p.check(lie));
}

TEST_CASE("they are drawn in every form") {
    const planned p{"v-three-ranks.json"};
    const auto text = run({"draw", p.path(), "--problem", p.problem()});
    CHECK_MESSAGE((text.status == 0 && text.err.empty() && contains(text.out, "0F0")), text);
    const auto& place = p.place();
    const auto drawn = run({"draw", p.path(), "--problem", p.problem(), "--svg", place / "f.svg", "--html",
                            place / "f.html", "--trace", place / "f.trace"});
    CHECK_MESSAGE((drawn.status == 0 && drawn.err.empty()), drawn);
    CHECK(contains(place.read("f.svg"), "5F0"));
    CHECK_FALSE(contains(place.read("f.svg"), "nan"));
    CHECK(contains(place.read("f.html"), "forward-only"));
    CHECK(contains(place.read("f.trace"), "5F0"));
}

TEST_CASE("they run on threads, and what was measured is a file of forwards again") {
    const planned p{"two-ranks.json"};
    const auto ran = run({"run", p.problem(), p.path(), "--scale", "1e-5", "--out", p.place() / "ran.json"});
    REQUIRE_MESSAGE((ran.status == 0 && contains(ran.out, "ratio")), ran);
    const auto measured = json::parse(p.place().read("ran.json"));
    CHECK(measured["forward_only"] == true);
    CHECK(measured["operations"].size() == p.document()["operations"].size());
    const auto both = run({"draw", p.path(), "--problem", p.problem(), "--measured", p.place() / "ran.json"});
    CHECK_MESSAGE(both.status == 0, both);
}

TEST_CASE("what has no use for them says so") {
    const planned p{"two-ranks.json"};
    const auto out = p.place() / "out";
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"export-csv", p.problem(), p.path(), "--out", out},
          {"export-megatron", p.problem(), p.path()},
          {"profile", p.problem(), p.path()},
          {"plan", p.problem(), "--start", p.path()}}) {
        const auto result = run(command);
        CHECK_MESSAGE((result.status == 2 && result.says({"forward_only", "training steps alone"})), result);
    }
    for (const std::vector<std::string>& option : {std::vector<std::string>{"--method", "1f1b"},
                                                   {"--time-limit", "1"},
                                                   {"--noise", "0.1"},
                                                   {"--gap", "0.1"},
                                                   {"--without", "cp"},
                                                   {"--most-distinct-pairs", "1"},
                                                   {"--threads", "2"},
                                                   {"--seed", "2"},
                                                   {"--progress"},
                                                   {"--deterministic"}}) {
        std::vector<std::string> command{"plan", p.problem(), "--forward-only"};
        command.insert(command.end(), option.begin(), option.end());
        const auto result = run(command);
        CHECK_MESSAGE((result.status == 2 && result.says({option.front(), "without a search"})), result);
    }
}

#endif
