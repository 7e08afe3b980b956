#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// A dense vector that also lists the indices of possible nonzeros. Each index is listed once.
class work_vector {
public:
    std::vector<double> value;
    std::vector<int> index;

    void resize(std::size_t size) {
        value.assign(size, 0.0);
        index.clear();
        index.reserve(size);
    }
    [[nodiscard]] double operator[](int i) const { return value[static_cast<std::size_t>(i)]; }

    void clear() {
        if (!is_listed_ || index.size() * dense_share > value.size())
            std::fill(value.begin(), value.end(), 0.0);
        else
            for (const int i : index)
                value[static_cast<std::size_t>(i)] = 0.0;
        index.clear();
        is_listed_ = true;
    }
    /// Marks the list of indices as invalid until `clear`.
    void leave_unlisted() { is_listed_ = false; }
    [[nodiscard]] bool is_listed() const { return is_listed_; }
    /// Inserts an entry. Contract: the index isn't listed yet.
    void insert(int i, double v) {
        value[static_cast<std::size_t>(i)] = v;
        index.push_back(i);
    }
    void add(int i, double v) {
        double& place = value[static_cast<std::size_t>(i)];
        if (place == 0.0) index.push_back(i);
        place += v;
        // A listed entry that cancels keeps a tiny value. An entry of 0 would be listed again when it becomes nonzero.
        if (place == 0.0) place = trace;
    }
    void copy(const work_vector& other) {
        clear();
        for (const int i : other.index)
            insert(i, other[i]);
    }
    void drop_tiny() {
        std::size_t kept = 0;
        for (const int i : index) {
            double& place = value[static_cast<std::size_t>(i)];
            if (std::abs(place) > tiny)
                index[kept++] = i;
            else
                place = 0.0;
        }
        index.resize(kept);
    }
    void list_all() {
        index.resize(value.size());
        std::size_t listed = 0;
        for (std::size_t i = 0; i < value.size(); ++i) {
            const bool counts = std::abs(value[i]) > tiny;
            value[i] = counts ? value[i] : 0.0;
            index[listed] = static_cast<int>(i);
            listed += counts ? 1U : 0U;
        }
        index.resize(listed);
    }
    [[nodiscard]] double density() const {
        return value.empty() ? 0.0 : static_cast<double>(index.size()) / static_cast<double>(value.size());
    }
    [[nodiscard]] double square() const {
        double sum = 0.0;
        for (const int i : index)
            sum += (*this)[i] * (*this)[i];
        return sum;
    }

private:
    bool is_listed_ = true;
    static constexpr std::size_t dense_share = 3;
    static constexpr double trace = 1e-50;
    static constexpr double tiny = 1e-14;
};

} // namespace optpipe::milp::lp
