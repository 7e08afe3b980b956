#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// A folder with a problem, its plan and a measurement of it.
struct prepared {
    workplace place;
    std::string problem = place.write("p.json", content_of(data("two-ranks.json")));
    std::string plan = place / "s.json";
    std::string measured = place / "m.json";

    prepared() {
        REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", plan}).status == 0);
        fs::copy(plan, measured);
    }
};

} // namespace

TEST_CASE("an output that can't be written is found before the search") {
    const workplace place;
    // A search with this limit would last longer than any test.
    for (const std::string option : {"--out", "--svg", "--trace"}) {
        const auto result =
            run({"plan", example("llama2-7b-4k-p4.json"), "--time-limit", "100000", option, place / "none/x"});
        CHECK_MESSAGE((result.status == 2 && result.says({"none/x", "cannot write"})), result);
    }
    CHECK(place.files().empty());
}

TEST_CASE("an output that fails in the end costs neither the text nor the other outputs") {
    const prepared folder;
    const auto& place = folder.place;
    const auto planned = run({"plan", folder.problem, "--out", "/dev/full", "--svg", place / "s.svg"});
    CHECK_MESSAGE((planned.status == 2 && planned.says({"/dev/full", "No space left"})), planned);
    CHECK_MESSAGE(contains(planned.out, "152 ms"), planned);
    CHECK(place.read("s.svg").starts_with("<svg"));
    const auto ran =
        run({"run", folder.problem, folder.plan, "--scale", "0.0001", "--svg", "/dev/full", "--out", place / "r.json"});
    CHECK_MESSAGE((ran.status == 2 && ran.says({"/dev/full"}) && contains(ran.out, "ratio ")), ran);
    CHECK(place.has("r.json"));
    const auto compared = run({"compare", folder.problem, "--json", "/dev/full"});
    CHECK_MESSAGE((compared.status == 2 && compared.says({"/dev/full"}) && contains(compared.out, "adaptive")),
                  compared);
}

TEST_CASE("two outputs that are one file are refused, however they are spelled") {
    const prepared folder;
    const auto& place = folder.place;
    fs::create_directory(place / "d");
    fs::create_symlink(place / "new", place / "link");
    fs::create_directory_symlink(place / "d", place / "e");
    const auto before = place.files();
    const std::pair<std::string, std::string> spellings[] = {
        {"new", "new"},  {"new", "./new"}, {"new", "d/../new"}, {"./d/.././new", "new"},
        {"new", "link"}, {"link", "new"},  {"d/x", "e/x"},      {"d/x", "d//x"},
    };
    for (const auto& [one, other] : spellings)
        for (const std::vector<std::string>& command : {std::vector<std::string>{"plan", folder.problem, "--svg"},
                                                        {"run", folder.problem, folder.plan, "--svg"},
                                                        {"draw", folder.plan, "--problem", folder.problem, "--svg"}}) {
            auto arguments = command;
            arguments.insert(arguments.end(), {place / one, "--trace", place / other});
            const auto result = run(arguments);
            CHECK_MESSAGE(
                (result.status == 2 && result.out.empty() && result.says({"--trace", "is the same file as --svg"})),
                result);
        }
    CHECK(place.files() == before);
    // /dev/null may be given twice.
    CHECK(run({"plan", folder.problem, "--quiet", "--svg", "/dev/null", "--trace", "/dev/null"}).status == 0);
}

TEST_CASE("an output that would replace an input is refused, by every command") {
    const prepared folder;
    const auto& place = folder.place;
    const auto model = place.write("m.mps", "NAME\nROWS\n N C\n G R\nCOLUMNS\n x C 1 R 1\nENDATA\n");
    fs::create_symlink(folder.problem, place / "link");
    const auto before = place.files();
    const std::vector<std::string> cases[] = {
        {"plan", folder.problem, "--out", folder.problem},
        {"plan", folder.problem, "--trace", place / "./p.json"},
        {"plan", folder.problem, "--svg", place / "link"},
        {"compare", folder.problem, "--json", folder.problem},
        {"run", folder.problem, folder.plan, "--out", folder.plan},
        {"run", folder.problem, folder.plan, "--svg", folder.problem},
        {"draw", folder.plan, "--problem", folder.problem, "--svg", folder.plan},
        {"draw", folder.plan, "--problem", folder.problem, "--svg", folder.problem},
        {"draw", folder.plan, "--problem", folder.problem, "--measured", folder.measured, "--trace", folder.measured},
#if defined(OPTPIPE_HAS_MILP)
        {"solve", model, "--out", model},
        {"export-mps", folder.problem, "--out", folder.problem},
        {"import-solution", folder.problem, folder.plan, "--out", folder.plan},
#endif
    };
    for (const auto& arguments : cases) {
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({"would replace the input"})), result);
    }
    CHECK(place.files() == before);
}

TEST_CASE("- is standard input, and standard output") {
    const prepared folder;
    const auto& place = folder.place;
    const auto planned = run({"plan", "-", "--out", "-"}, "", folder.problem);
    REQUIRE_MESSAGE(planned.status == 0, planned);
    CHECK(json::parse(planned.out)["objective"] == json::parse(place.read("s.json"))["objective"]);
    CHECK_MESSAGE(contains(planned.err, "152 ms"), planned); // the text goes to standard error instead
    const auto checked = run({"check", folder.problem, "-"}, "", folder.plan);
    CHECK_MESSAGE((checked.status == 0 && checked.out.starts_with("valid ")), checked);
    const auto drawn = run({"draw", "-", "--problem", folder.problem, "--svg", "-"}, "", folder.plan);
    CHECK_MESSAGE((drawn.status == 0 && drawn.out.starts_with("<svg") && drawn.err.empty()), drawn);
    const auto ran = run({"run", folder.problem, "-", "--scale", "0.0001", "--out", "-"}, "", folder.plan);
    CHECK_MESSAGE((ran.status == 0 && json::parse(ran.out)["operations"].size() > 0), ran);
    const auto compared = run({"compare", "-", "--json", "-"}, "", folder.problem);
    CHECK_MESSAGE((compared.status == 0 && json::parse(compared.out)["methods"].size() > 0), compared);
#if defined(OPTPIPE_HAS_MILP)
    const auto model = run({"export-mps", "-", "--out", "-"}, "", folder.problem);
    CHECK_MESSAGE((model.status == 0 && contains(model.out, "ROWS\n") && contains(model.err, "family")), model);
    const auto solved = run({"solve", "-", "--out", "-"}, "", place.write("m.mps", model.out));
    REQUIRE_MESSAGE(solved.status == 0, solved);
    CHECK_MESSAGE((json::parse(solved.out)["status"] == "optimal" && solved.err.starts_with("optimal ")), solved);
    const auto imported =
        run({"import-solution", folder.problem, "-", "--out", "-"}, "", place.write("m.sol", solved.out));
    CHECK_MESSAGE((imported.status == 0 && json::parse(imported.out)["operations"].size() > 0), imported);
#endif
}

TEST_CASE("a stream can't be two things, and messages name it") {
    const prepared folder;
    const auto twice = run({"check", "-", "-"});
    CHECK_MESSAGE((twice.status == 2 && twice.says({"PROBLEM", "PLAN", "standard input"})), twice);
    const auto both = run({"plan", folder.problem, "--out", "-", "--svg", "-"});
    CHECK_MESSAGE((both.status == 2 && both.says({"--out", "--svg", "standard output"})), both);
    const auto json_too = run({"plan", folder.problem, "--out", "-", "--json"});
    CHECK_MESSAGE((json_too.status == 2 && json_too.says({"--out", "--json", "standard output"})), json_too);
    const auto empty = run({"plan", "-"});
    CHECK_MESSAGE((empty.status == 2 && empty.says({"standard input: is empty"})), empty);
    const auto endless = run({"plan", "-"}, "", "/dev/zero");
    CHECK_MESSAGE((endless.status == 2 && endless.says({"standard input", "larger than 64 MiB"})), endless);
    const auto full = run({"plan", folder.problem, "--out", "-"}, "/dev/full");
    CHECK_MESSAGE((full.status == 2 && contains(full.err, "standard output")), full);
}

namespace {

/// Limits the size of files for programs that are started during its lifetime.
class file_size_limit {
public:
    explicit file_size_limit(rlim_t bytes) {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
        const rlimit now{bytes, before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
    }
    file_size_limit(const file_size_limit&) = delete;
    file_size_limit& operator=(const file_size_limit&) = delete;
    ~file_size_limit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

private:
    rlimit before_{};
};

} // namespace

TEST_CASE("a file beyond the limit of its size is reported, and nothing is left of it") {
    const prepared folder;
    const auto before = folder.place.files();
    finished result;
    {
        const file_size_limit small{1000};
        result = run({"draw", folder.plan, "--problem", folder.problem, "--html", folder.place / "page.html"});
    }
    CHECK_MESSAGE((result.status == 2 && result.says({"page.html", "File too large"})), result);
    CHECK(folder.place.files() == before);
}

#endif
