#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"

#include <array>
#include <cstddef>
#include <vector>

namespace optpipe {

/// A sequence of at most `Capacity` elements. The elements are stored inside the object. If the capacity is dynamic,
/// the sequence is a vector.
template <class T, auto Capacity> class basic_bounded_vector {
public:
    using value_type = T;

    constexpr basic_bounded_vector() = default;

    constexpr void push_back(const T& item) {
        OPTPIPE_EXPECT(size_ < Capacity, "bounded_vector: more elements than its capacity");
        items_[size_++] = item;
    }
    constexpr void reserve(std::size_t) {}
    constexpr void clear() { size_ = 0; }
    constexpr void resize(std::size_t count) {
        OPTPIPE_EXPECT(count <= Capacity, "bounded_vector: more elements than its capacity");
        for (std::size_t i = size_; i < count; ++i)
            items_[i] = T{};
        size_ = count;
    }
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    constexpr T& operator[](std::size_t i) { return items_[i]; }
    constexpr const T& operator[](std::size_t i) const { return items_[i]; }
    constexpr T* begin() { return items_.data(); }
    constexpr T* end() { return items_.data() + size_; }
    constexpr const T* begin() const { return items_.data(); }
    constexpr const T* end() const { return items_.data() + size_; }
    constexpr const T& back() const { return items_[size_ - 1]; }

    friend constexpr bool operator==(const basic_bounded_vector& a, const basic_bounded_vector& b) {
        if (a.size_ != b.size_) return false;
        for (std::size_t i = 0; i < a.size_; ++i)
            if (!(a.items_[i] == b.items_[i])) return false;
        return true;
    }

private:
    std::array<T, Capacity> items_{};
    std::size_t size_ = 0;
};

template <class T> class basic_bounded_vector<T, extents::dynamic> : public std::vector<T> {
public:
    using std::vector<T>::vector;
};

template <class T, std::size_t Capacity> using bounded_vector = basic_bounded_vector<T, named_extent<Capacity>()>;

/// An array with one `T` per index of one kind. Only indices of this kind can subscript it.
template <class Index, class T, auto Count> class basic_table {
public:
    constexpr basic_table() = default;
    constexpr explicit basic_table(std::size_t count, const T& value = T{}) {
        OPTPIPE_EXPECT(count == Count, "table: another number of entries than its static extent");
        for (auto& item : items_)
            item = value;
    }

    constexpr T& operator[](Index i) { return items_[i.position()]; }
    constexpr const T& operator[](Index i) const { return items_[i.position()]; }
    [[nodiscard]] static constexpr std::size_t size() { return Count; }
    [[nodiscard]] constexpr index_range<Index> indices() const { return index_range<Index>{size()}; }
    constexpr auto begin() { return items_.begin(); }
    constexpr auto end() { return items_.end(); }
    constexpr auto begin() const { return items_.begin(); }
    constexpr auto end() const { return items_.end(); }
    friend bool operator==(const basic_table&, const basic_table&) = default;

private:
    std::array<T, Count> items_{};
};

template <class Index, class T> class basic_table<Index, T, extents::dynamic> {
public:
    constexpr basic_table() = default;
    constexpr explicit basic_table(std::size_t count, const T& value = T{}) : items_(count, value) {}

    constexpr decltype(auto) operator[](Index i) { return items_[i.position()]; }
    constexpr decltype(auto) operator[](Index i) const { return items_[i.position()]; }
    [[nodiscard]] constexpr std::size_t size() const { return items_.size(); }
    [[nodiscard]] constexpr index_range<Index> indices() const { return index_range<Index>{size()}; }
    constexpr auto begin() { return items_.begin(); }
    constexpr auto end() { return items_.end(); }
    constexpr auto begin() const { return items_.begin(); }
    constexpr auto end() const { return items_.end(); }
    friend bool operator==(const basic_table&, const basic_table&) = default;

private:
    std::vector<T> items_;
};

template <class Index, class T, std::size_t Count = dynamic> using table = basic_table<Index, T, named_extent<Count>()>;
template <class T, std::size_t Count = dynamic> using per_rank = table<rank, T, Count>;
template <class T, std::size_t Count = dynamic> using per_stage = table<stage, T, Count>;

} // namespace optpipe
