#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// The base of all exceptions of this library, except `contract_error`.
class error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// An error in input data: its place and its reason.
struct violation {
    std::string place;
    std::string reason;

    [[nodiscard]] std::string text() const { return place.empty() ? reason : place + ": " + reason; }
    friend bool operator==(const violation&, const violation&) = default;
};

/// Thrown for unusable input data. Carries every violation that was found. `what()` names the source and the first five
/// violations.
class input_error : public error {
public:
    input_error(std::string source, std::vector<violation> violations)
        : error{describe(source, violations)}, source_{std::move(source)}, violations_{std::move(violations)} {}

    [[nodiscard]] const std::string& source() const { return source_; }
    [[nodiscard]] const std::vector<violation>& violations() const { return violations_; }

private:
    static std::string describe(const std::string& source, const std::vector<violation>& violations) {
        constexpr std::size_t shown = 5;
        std::string text = source;
        for (std::size_t i = 0; i < violations.size() && i < shown; ++i)
            text += (i == 0 ? ": " : "; ") + violations[i].text();
        if (violations.size() > shown) text += "; and " + std::to_string(violations.size() - shown) + " more";
        return text;
    }

    std::string source_;
    std::vector<violation> violations_;
};

/// An operation on a file failed.
class file_error : public error {
public:
    using error::error;
};

} // namespace optpipe
