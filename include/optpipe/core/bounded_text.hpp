#pragma once

#include "optpipe/core/standard.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <string_view>

namespace optpipe {

/// Types that can be parts of a text: strings and integers, except `bool` and `char`.
template <class T>
concept text_part = std::convertible_to<const T&, std::string_view> ||
    (std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>);

/// A text of at most `Capacity` bytes, stored inside the object. A longer text is cut between two UTF-8 characters, and
/// ends with dots.
template <std::size_t Capacity> class bounded_text {
    static constexpr std::string_view dots = "...";
    static_assert(Capacity > dots.size());

public:
    constexpr bounded_text() = default;
    /// Concatenates the parts.
    template <text_part First, text_part... More>
    constexpr bounded_text(const First& first, const More&... more) { // NOLINT(google-explicit-constructor)
        append(first);
        (append(more), ...);
    }

    constexpr void append(std::string_view more) {
        for (const char c : more) {
            if (is_cut_) return;
            if (size_ == Capacity) return cut();
            characters_[size_++] = c;
        }
    }
    template <std::integral Integer> constexpr void append(Integer number) {
        std::array<char, 24> digits{};
        std::size_t first = digits.size();
        bool is_negative = false;
        if constexpr (std::signed_integral<Integer>) is_negative = number < 0;
        do {
            const auto digit = static_cast<int>(number % 10);
            digits[--first] = static_cast<char>('0' + (digit < 0 ? -digit : digit));
            number = static_cast<Integer>(number / 10);
        } while (number != 0);
        if (is_negative) digits[--first] = '-';
        append(std::string_view{digits.data() + first, digits.size() - first});
    }

    [[nodiscard]] constexpr std::string_view view() const { return {characters_.data(), size_}; }
    constexpr operator std::string_view() const { return view(); } // NOLINT(google-explicit-constructor)
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    [[nodiscard]] constexpr bool is_cut() const { return is_cut_; }

    template <std::convertible_to<std::string_view> Text>
    friend constexpr bool operator==(const bounded_text& a, const Text& b) {
        return a.view() == std::string_view{b};
    }
    template <class Traits>
    friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const bounded_text& t) {
        return out << t.view();
    }

private:
    constexpr void cut() {
        is_cut_ = true;
        size_ = Capacity - dots.size();
        while (size_ > 0 && (static_cast<unsigned char>(characters_[size_]) & 0xC0U) == 0x80U)
            --size_;
        for (const char dot : dots)
            characters_[size_++] = dot;
    }

    std::array<char, Capacity> characters_{};
    std::size_t size_ = 0;
    bool is_cut_ = false;
};

} // namespace optpipe
