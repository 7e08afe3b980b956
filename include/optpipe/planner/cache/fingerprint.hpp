#pragma once

#include "optpipe/core/standard.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace optpipe::detail {

/// FNV-1a, 64 bits.
class fingerprint {
public:
    void add(std::string_view text) {
        for (const char c : text)
            value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    void add(std::uint64_t number) {
        for (unsigned shift = 0; shift < bits; shift += 8)
            value_ = (value_ ^ ((number >> shift) & 0xffU)) * 0x100000001b3U;
    }
    [[nodiscard]] std::string text() const {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string result;
        for (unsigned shift = bits; shift > 0; shift -= 4)
            result += digits[(value_ >> (shift - 4)) & 0xfU];
        return result;
    }

private:
    static constexpr unsigned bits = 64;
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

} // namespace optpipe::detail
