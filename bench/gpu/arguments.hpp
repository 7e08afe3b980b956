#pragma once

#include <optpipe/core/error.hpp>
#include <optpipe/core/parse_number.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace gpu_bench {

/// The arguments of a program: `--name value`, for each name that has a default.
class arguments {
public:
    arguments(int count, const char* const* given, std::map<std::string, std::string> defaults)
        : values_{std::move(defaults)} {
        for (int i = 1; i < count; i += 2) {
            const std::string name = given[i];
            const auto known = values_.find(name);
            if (known == values_.end()) throw optpipe::error{"there is no option '" + name + "'; " + names()};
            if (i + 1 == count) throw optpipe::error{name + " needs a value"};
            known->second = given[i + 1];
        }
    }
    [[nodiscard]] const std::string& operator[](const std::string& name) const { return values_.at(name); }
    [[nodiscard]] std::size_t number(const std::string& name) const {
        const auto& text = values_.at(name);
        const auto value = optpipe::parse_number<std::size_t>(text);
        if (!value || *value == 0) throw optpipe::error{name + " takes a whole number above 0, not '" + text + "'"};
        return *value;
    }

private:
    [[nodiscard]] std::string names() const {
        std::string all = "there are";
        for (const auto& [name, value] : values_)
            all += " " + name;
        return all;
    }
    std::map<std::string, std::string> values_;
};

} // namespace gpu_bench
