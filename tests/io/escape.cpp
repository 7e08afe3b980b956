#include "optpipe/io/escape.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

using namespace optpipe;

TEST_CASE("text for a terminal has no control characters and an end") {
    CHECK(printable("plain \xC3\xA9") == "plain \xC3\xA9");
    CHECK(printable("a\n\x1b[2J") == "a\\x0a\\x1b[2J");
    CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
    CHECK(printable("\xff") == "\\xff");
    CHECK(printable("\xC2\x9B"
                    "2J") == "\\xc2\\x9b2J");
    CHECK(printable("abcdef", 3) == "abc...");
    CHECK(printable("abc", 3) == "abc");
    CHECK(printable(std::string(1'000'000, '\x01'), 100).size() < 120);
    CHECK(printable("abc\xC3\xA9", 4) == "abc...");
}

TEST_CASE("UTF-8 is known from what only looks like it") {
    for (const char* good : {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"})
        CHECK(detail::utf8_length(good) == std::string{good}.size());
    for (const char* bad : {"\x80", "\xC0\xAF", "\xC3", "\xC3(", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
        CHECK(detail::utf8_length(bad) == 0);
}

TEST_CASE("JSON strings") {
    CHECK(json_quoted("a\"b\\c\n\x01\x7f") == "\"a\\\"b\\\\c\\n\\u0001\x7f\"");
    CHECK(json_quoted("\xff") == "\"\xEF\xBF\xBD\"");
}

TEST_CASE("XML text") {
    CHECK(xml_escaped("<a & \"b\" 'c'>") == "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;");
    CHECK(xml_escaped("\x01\xff") == "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("numbers") {
    CHECK(fixed_number(1.25, 2) == "1.25");
    CHECK(fixed_number(10.0, 2) == "10");
    CHECK(fixed_number(-0.001, 2) == "0");
    CHECK(fixed_number(std::numeric_limits<double>::max(), 1).size() > 300);
}
