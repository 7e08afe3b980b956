#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

/// The engine's base: streams, events, an allocator and messages. It knows nothing about pipelines.
namespace engine {

/// The first failure on any device, which stopped everything.
struct failure {
    std::size_t device = 0;
    std::string work;
    std::string reason;
};

/// State shared by all devices. After a failure no work starts.
struct machine {
    /// How long work may wait for an event or a message.
    std::chrono::seconds patience{20};
    std::mutex mutex;
    std::condition_variable_any changed;
    std::optional<failure> failed;

    void fail(failure f) { // mutex held
        if (!failed) failed = std::move(f);
        changed.notify_all();
    }
};

/// Set once. The machine's mutex must be held.
using event = std::shared_ptr<bool>;

/// Runs work in order, on its own thread.
class stream {
public:
    struct work {
        std::string name;
        /// Holds the work back until it returns true; called with the machine's mutex held. Empty: the work starts at
        /// once.
        std::function<bool()> ready{};
        std::function<void()> run{};
        /// Called after the work, with the machine's mutex held, to make its end visible to others.
        std::function<void()> over{};
    };

    stream(machine& on, std::size_t device)
        : machine_{&on}, device_{device}, thread_{[this](const std::stop_token& stop) { loop(stop); }} {}

    void enqueue(work w) {
        const std::scoped_lock lock{machine_->mutex};
        queue_.push_back(std::move(w));
        machine_->changed.notify_all();
    }
    /// The machine's mutex must be held.
    [[nodiscard]] bool idle() const { return queue_.empty(); }
    [[nodiscard]] machine& on() const { return *machine_; }
    [[nodiscard]] std::size_t device() const { return device_; }

private:
    void loop(const std::stop_token& stop) {
        std::unique_lock lock{machine_->mutex};
        while (machine_->changed.wait(lock, stop, [&] { return !queue_.empty(); })) {
            step(queue_.front(), lock);
            queue_.pop_front();
            machine_->changed.notify_all();
        }
    }
    void step(work& w, std::unique_lock<std::mutex>& lock) {
        const auto ready = [&] { return machine_->failed || !w.ready || w.ready(); };
        if (!machine_->changed.wait_for(lock, machine_->patience, ready))
            machine_->fail({device_, w.name, "not over after " + std::to_string(machine_->patience.count()) + " s"});
        if (machine_->failed) return;
        if (w.run) {
            std::optional<failure> wrong;
            lock.unlock();
            try {
                w.run();
            } catch (const std::exception& e) {
                wrong = failure{device_, w.name, e.what()};
            }
            lock.lock();
            if (wrong) machine_->fail(*wrong);
        }
        if (w.over && !machine_->failed) w.over();
    }

    machine* machine_;
    std::size_t device_;
    std::deque<work> queue_; // elements stay in place while others are added
    std::jthread thread_;    // destroyed first
};

/// Memory of a device, or of its host.
class buffer {
public:
    /// Throws std::bad_alloc.
    explicit buffer(std::size_t bytes)
        : data_{new std::max_align_t[bytes / sizeof(std::max_align_t) + 1]}, bytes_{bytes} {}
    [[nodiscard]] std::span<std::byte> memory() const { return {reinterpret_cast<std::byte*>(data_.get()), bytes_}; }

private:
    std::unique_ptr<std::max_align_t[]> data_;
    std::size_t bytes_;
};

/// A message ends when both ends have come and its bytes are copied. Between two devices, on one channel, the ends of
/// messages match in the order in which they are announced.
class post {
public:
    struct message {
        std::span<const std::byte> from{};
        std::span<std::byte> to{};
        int ends = 0;
        bool over = false;
    };
    using message_ptr = std::shared_ptr<message>;
    /// Sender, receiver, channel.
    using route = std::tuple<std::size_t, std::size_t, int>;

    /// Announces an end of a message. The machine's mutex must be held.
    message_ptr announce(const route& way, bool sends) {
        auto& r = routes_[way];
        auto& number = sends ? r.sent : r.received;
        auto& met = r.half_met[number++];
        if (met) return r.half_met.extract(number - 1).mapped();
        return met = std::make_shared<message>();
    }
    /// Called when one end has come, with the machine's mutex held. False if the ends don't match.
    static bool come(message& m) {
        if (++m.ends < 2) return true;
        if (m.from.size() != m.to.size()) return false;
        std::copy(m.from.begin(), m.from.end(), m.to.begin());
        return m.over = true;
    }

private:
    struct counters {
        std::size_t sent = 0;
        std::size_t received = 0;
        std::map<std::size_t, message_ptr> half_met;
    };
    std::map<route, counters> routes_;
};

} // namespace engine
