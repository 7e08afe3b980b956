#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "optpipe/version.hpp"

using namespace program;

TEST_CASE("help and version are answers") {
    const auto help = run({"--help"});
    CHECK_MESSAGE(help.status == 0, help);
    for (const auto* command : {"plan", "compare", "check", "run", "draw"}) {
        CHECK_MESSAGE(contains(help.out, command), help);
        const auto own = run({command, "--help"});
        CHECK_MESSAGE((own.status == 0 && own.err.empty()), own);
        CHECK_MESSAGE(contains(own.out, "Usage: optpipe " + std::string{command}), own);
    }
    const auto version = run({"--version"});
    CHECK_MESSAGE((version.status == 0 && version.err.empty()), version);
    CHECK(version.out == "optpipe " + std::string{optpipe::version_string} + "\n");
}

TEST_CASE("help of a command is the same by either way") {
    const auto commands = run({"help"});
    CHECK_MESSAGE((commands.status == 0 && commands.err.empty()), commands);
    CHECK(commands.out == run({"--help"}).out);
    for (const auto* command : {"plan", "draw", "help"}) {
        const auto own = run({"help", command});
        CHECK_MESSAGE((own.status == 0 && own.out == run({command, "--help"}).out), own);
    }
}

TEST_CASE("the help of plan names every method and option") {
    const auto help = run({"plan", "--help"}).out;
    for (const auto* word : {"gpipe", "1f1b", "adaptive", "--method", "--time-limit", "--threads", "--seed", "--out",
                             "--svg", "--trace", "--quiet"})
        CHECK_MESSAGE(contains(help, word), word);
}

TEST_CASE("a wrong command line is refused with one line that says what is wrong") {
    const auto problem = data("two-ranks.json");
    struct {
        std::vector<std::string> arguments;
        std::vector<std::string> says;
    } const cases[] = {
        {{}, {"subcommand is required", "--help"}},
        {{"frob"}, {"there is no command frob"}},
        {{""}, {"there is no command"}},
        {{"a\nb"}, {"there is no command a"}},
        {{"--frob"}, {"there is no option --frob"}},
        {{"plan"}, {"PROBLEM is required", "optpipe plan --help"}},
        {{"plan", problem, "--frob"}, {"--frob"}},
        {{"plan", problem, "more"}, {"more"}},
        {{"plan", problem, "--out"}, {"--out"}},
        {{"plan", problem, "--method", "frob"}, {"--method", "\"frob\"", "gpipe", "1f1b", "adaptive"}},
        {{"plan", problem, "--method", "a\nb"}, {"--method"}},
        {{"plan", problem, "--time-limit", "soon"}, {"--time-limit", "soon"}},
        {{"plan", problem, "--time-limit", "nan"}, {"--time-limit", "nan"}},
        {{"plan", problem, "--time-limit", "inf"}, {"--time-limit", "inf"}},
        {{"plan", problem, "--time-limit", "-1"}, {"--time-limit", "-1"}},
        {{"plan", problem, "--threads", "-1"}, {"--threads", "-1"}},
        {{"plan", problem, "--threads", "99999999999999999999"}, {"--threads"}},
        {{"plan", problem, "--seed", "-1"}, {"--seed", "-1"}},
        {{"plan", problem, "--time-limit", ""}, {"--time-limit", "is empty"}},
        {{"plan", problem, "--threads", ""}, {"--threads", "is empty"}},
        {{"plan", problem, "--seed", ""}, {"--seed", "is empty"}},
        {{"plan", problem, "--gap", ""}, {"--gap", "is empty"}},
        {{"plan", problem, "--percentile", ""}, {"--percentile", "is empty"}},
        {{"run", problem, problem, "--scale", ""}, {"--scale", "is empty"}},
        {{"draw", problem, "--problem", problem, "--from", ""}, {"--from", "is empty"}},
        {{"profile", problem, problem, "--warm-up", ""}, {"--warm-up", "is empty"}},
        {{"plna", problem}, {"there is no command plna; did you mean plan?"}},
        {{"plan", problem, "--tiem-limit", "5"}, {"there is no option --tiem-limit; did you mean --time-limit?"}},
        {{"plan", "--metod", "gpipe", problem}, {"there is no option --metod; did you mean --method?"}},
        {{"plan", problem, "--treads=2"}, {"there is no option --treads; did you mean --threads?"}},
        {{"plan", problem, "-quiet"}, {"there is no option -quiet; did you mean --quiet?"}},
        {{"draw", "plan.json", "--problm", problem}, {"there is no option --problm; did you mean --problem?"}},
        {{"check", problem, "--frob", "x"}, {"there is no option --frob; see"}},
        {{"compare"}, {"PROBLEM is required"}},
        {{"check", problem}, {"PLAN is required"}},
        {{"run", problem}, {"PLAN is required"}},
        {{"draw", problem, "--svg", "x.svg"}, {"PLAN is required"}},
        {{"draw", problem, problem, "--problem", problem}, {"--problem", "given already"}},
        {{"help", "plna"}, {"there is no command plna; did you mean plan?"}},
        {{"plan", problem, "--gap", "200%"}, {"--gap", "between 0 and 1"}},
        {{"plan", problem, "--gap", "few%"}, {"--gap", "few%"}},
        {{"plan", problem, "--method", "1f1b", "--gap", "1%"}, {"--gap", "leave out --method"}},
        {{"plan", problem, "--method", "1f1b", "--without", "cp"}, {"--without", "leave out --method"}},
        {{"plan", problem, "--method", "1f1b", "--cache", "kept"}, {"--cache", "leave out --method"}},
        {{"plan", problem, "--method", "1f1b", "--deterministic"}, {"--deterministic", "leave out --method"}},
        {{"plan", problem, "--method", "1f1b", "--threads", "2"}, {"--threads", "leave out --method"}},
        {{"plan", problem, "--method", "adaptive", "--progress"}, {"--progress", "leave out --method"}},
        {{"plan", problem, "--method", "1f1b", "--seed", "2"}, {"--seed", "doesn't use it"}},
        {{"plan", problem, "--method", "v-auto", "--time-limit", "2"}, {"--time-limit", "doesn't use it"}},
        {{"plan", problem, "--method", "2f2b", "--seed", "2"}, {"there is no \"2f2b\""}},
    };
    for (const auto& [arguments, says] : cases) {
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(says)), result);
    }
}

TEST_CASE("standard output that takes nothing is an error") {
    const auto result = run({"plan", data("two-ranks.json")}, "/dev/full");
    CHECK_MESSAGE((result.status == 2 && result.says({"standard output"})), result);
}

#endif
