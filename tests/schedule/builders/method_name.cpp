#include "optpipe/schedule/builders/method_name.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace optpipe;

TEST_CASE("a method's name with a storage option reads back") {
    for (const std::string option : {"full", "a,b", "a\\b", "\\", ",", "\\,", "g=3", "a\\\\,", "storage=x"}) {
        const auto text = method_with_storage("1f1b", option);
        const auto settings = parse_method_settings(text.substr(text.find(':') + 1));
        CHECK_MESSAGE(settings.storage == option, text);
        CHECK_FALSE(settings.parameters.has_value());
    }
    CHECK(method_with_storage("1f1b", "a,b\\") == "1f1b:storage=a\\,b\\\\");
}

TEST_CASE("settings are separated by commas, in any order") {
    const auto both = parse_method_settings("g=3,storage=a\\,b,chunks=2");
    CHECK((both.parameters == "g=3,chunks=2" && both.storage == "a,b"));
    CHECK(parse_method_settings("g=3,").parameters == "g=3,");
    CHECK(parse_method_settings("").parameters == "");
    CHECK(parse_method_settings("storage=a\\b").storage == "a\\b"); // before any other character it stands for itself
    CHECK(parse_method_settings("storage=").storage == "");
}
