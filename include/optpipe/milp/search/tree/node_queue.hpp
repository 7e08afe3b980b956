#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/tree/node.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The open nodes. The node with the least bound is first.
class node_queue {
public:
    void push(node n) {
        n.number = ++births_;
        bytes_ += n.bytes();
        heap_.push_back(std::move(n));
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    /// Number of bytes, including spare room of the heap.
    [[nodiscard]] std::size_t bytes() const { return bytes_ + bytes_of(heap_); }
    /// The least bound of a node; infinite if there are no nodes.
    [[nodiscard]] double least_bound() const {
        return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().bound;
    }
    node pop() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        node n = std::move(heap_.back());
        heap_.pop_back();
        bytes_ -= n.bytes();
        return n;
    }
    /// Removes the nodes that can't be better than the cutoff.
    void prune(double cutoff) {
        if (cutoff >= pruned_at_) {
            if (least_bound() > cutoff) clear();
            return;
        }
        pruned_at_ = cutoff;
        const auto kept = std::remove_if(heap_.begin(), heap_.end(), [&](const node& n) { return n.bound > cutoff; });
        heap_.erase(kept, heap_.end());
        std::make_heap(heap_.begin(), heap_.end(), later);
        bytes_ = 0;
        for (const auto& n : heap_)
            bytes_ += n.bytes();
    }
    void clear() {
        heap_.clear();
        bytes_ = 0;
    }

private:
    static bool later(const node& a, const node& b) {
        if (a.bound != b.bound) return a.bound > b.bound;
        if (a.estimate != b.estimate) return a.estimate > b.estimate;
        return a.number < b.number;
    }

    std::vector<node> heap_;
    std::uint64_t births_ = 0;
    std::size_t bytes_ = 0;
    double pruned_at_ = std::numeric_limits<double>::infinity();
};

} // namespace optpipe::milp::search
