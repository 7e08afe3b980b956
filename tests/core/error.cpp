#include "optpipe/core/error.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using optpipe::violation;

TEST_CASE("a violation is a place and a reason") {
    CHECK(violation{"p2p", "must not be negative"}.text() == "p2p: must not be negative");
    CHECK(violation{"", "is not JSON"}.text() == "is not JSON");
    CHECK(violation{"p2p", "a"} == violation{"p2p", "a"});
    CHECK_FALSE(violation{"p2p", "a"} == violation{"p2p", "b"});
}

TEST_CASE("an input error names its source and the first violations, and keeps all") {
    std::vector<violation> found{{"ranks", "a"}, {"p2p", "b"}};
    const optpipe::input_error two{"file.json", found};
    CHECK(std::string{two.what()} == "file.json: ranks: a; p2p: b");
    CHECK(two.source() == "file.json");
    CHECK(two.violations() == found);

    for (int i = 0; i < 4; ++i)
        found.push_back({"more", "c"});
    const optpipe::input_error six{"file.json", found};
    CHECK(std::string{six.what()} == "file.json: ranks: a; p2p: b; more: c; more: c; more: c; and 1 more");
    CHECK(six.violations().size() == 6);

    found.pop_back();
    CHECK(std::string{optpipe::input_error("file.json", found).what()}.ends_with("more: c; more: c"));
    CHECK(std::string{optpipe::input_error("file.json", {}).what()} == "file.json");
}

TEST_CASE("everything that is thrown has one root") {
    CHECK_THROWS_AS(throw optpipe::input_error("file.json", {}), optpipe::error);
    CHECK_THROWS_AS(throw optpipe::file_error("file.json: no such file"), optpipe::error);
    CHECK_THROWS_AS(throw optpipe::error("anything"), std::runtime_error);
}
