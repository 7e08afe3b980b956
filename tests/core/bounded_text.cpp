#include "optpipe/core/bounded_text.hpp"

#include <doctest/doctest.h>

#include <string>

using optpipe::bounded_text;

TEST_CASE("a text that doesn't fit is cut, ends with dots, and says so") {
    constexpr bounded_text<8> whole{"12345678"};
    static_assert(whole == "12345678" && !whole.is_cut());
    constexpr bounded_text<8> cut{"123456789"};
    static_assert(cut == "12345..." && cut.is_cut());
    constexpr bounded_text<8> more{"1234", 56789, "x"};
    static_assert(more == "12345..." && more.is_cut());
}

TEST_CASE("no character of several bytes is cut in two") {
    // Two bytes each: the fifth byte is the first of the third character.
    bounded_text<8> text{std::string{"\xC3\xA4\xC3\xB6\xC3\xBC\xC3\x9F\xC3\xA4"}};
    CHECK(text == "\xC3\xA4\xC3\xB6...");
    text.append("more");
    CHECK(text == "\xC3\xA4\xC3\xB6...");
    CHECK(bounded_text<8>{"\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80"} == "\xF0\x9F\x98\x80...");
}
