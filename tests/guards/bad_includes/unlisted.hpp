#pragma once

#include <regex>

inline bool is_name(const char* text) { return std::regex_match(text, std::regex{"[a-z]+"}); }
