#pragma once

#include "model.hpp"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace engine {

/// Messages between devices: the input of a stage for a microbatch. Sender and receiver may come in any order.
class mailbox {
public:
    using address = std::pair<std::uint32_t, std::uint32_t>; // stage, microbatch

    void send(address to, matrix what) {
        {
            const std::scoped_lock lock{mutex_};
            arrived_.emplace(to, std::move(what));
        }
        changed_.notify_all();
    }
    matrix receive(address at) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return arrived_.contains(at); });
        return std::move(arrived_.extract(at).mapped());
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<address, matrix> arrived_;
};

} // namespace engine
