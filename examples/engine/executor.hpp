#pragma once

#include "streams.hpp"
#include <optpipe/execution.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Implements OptPipe's concepts on the engine's streams, so that programs can run on them.
namespace adapter {

class lane {
public:
    struct marker {
        engine::event last;
    };

    explicit lane(std::shared_ptr<engine::stream> on) : on_{std::move(on)} {}

    template <optpipe::execution::small_work Work> void launch(const optpipe::task_label& label, const Work& work) {
        on_->enqueue({.name = to_string(label), .run = [on = on_.get(), work] {
                          lane here{{std::shared_ptr<engine::stream>{}, on}}; // a lane that doesn't own it
                          work(here);
                      }});
    }
    void record(marker& m) {
        m.last = std::make_shared<bool>(false);
        on_->enqueue({.name = "record", .over = [over = m.last] { *over = true; }});
    }
    void wait(const marker& m) {
        if (m.last) on_->enqueue({.name = "wait", .ready = [over = m.last] { return *over; }});
    }
    [[nodiscard]] engine::stream& stream() const { return *on_; }

private:
    std::shared_ptr<engine::stream> on_;
};

struct memory {
    static engine::buffer device(std::size_t bytes) { return take(bytes); }
    static engine::buffer host(std::size_t bytes) { return take(bytes); }

private:
    static engine::buffer take(std::size_t bytes) {
        try {
            return engine::buffer{bytes};
        } catch (const std::bad_alloc&) {
            throw optpipe::error{"there are no " + std::to_string(bytes) + " bytes"};
        }
    }
};

struct copy_engine {
    void copy(lane& on, optpipe::execution::copy_direction, const optpipe::task_label& label,
              optpipe::execution::copy_pieces pieces) {
        on.stream().enqueue({.name = to_string(label), .run = [pieces] {
                                 for (const auto& [to, from] : pieces)
                                     std::copy(from.begin(), from.end(), to.begin());
                             }});
    }
};

class transport {
public:
    explicit transport(engine::post& by) : post_{&by} {}

    void exchange(lane& on, optpipe::execution::message_ends messages) {
        if (messages.empty()) return;
        auto open = std::make_shared<std::vector<end>>();
        auto& stream = on.stream();
        {
            const std::scoped_lock lock{stream.on().mutex};
            for (const auto& mine : messages)
                open->push_back({mine, announce(mine, stream.device())});
        }
        const auto name = to_string(messages.front().label);
        stream.enqueue({.name = name, .over = [open, &stream] { arrive(*open, stream); }});
        stream.enqueue({.name = name, .ready = [open] {
                            return std::all_of(open->begin(), open->end(),
                                               [](const auto& each) { return each.message->over; });
                        }});
    }

private:
    /// One end of a message, and the engine's message that it belongs to.
    struct end {
        optpipe::execution::message_end what;
        engine::post::message_ptr message;
    };

    engine::post::message_ptr announce(const optpipe::execution::message_end& mine, std::size_t self) const {
        const auto peer = mine.label.peer.position();
        const auto channel = static_cast<int>(optpipe::direction_of(mine.label.op));
        return post_->announce(mine.sends ? engine::post::route{self, peer, channel}
                                          : engine::post::route{peer, self, channel},
                               mine.sends);
    }
    static void arrive(std::vector<end>& open, engine::stream& stream) {
        for (auto& [what, message] : open) {
            if (what.sends)
                message->from = {what.from, what.bytes};
            else
                message->to = {what.to, what.bytes};
            if (!engine::post::come(*message))
                stream.on().fail({stream.device(), to_string(what.label), "another number of bytes than was to come"});
        }
    }

    engine::post* post_;
};

class executor {
public:
    using lane_type = lane;

    executor(engine::machine& on, engine::post& by, optpipe::rank self, std::size_t ranks)
        : machine_{&on}, transport_{by}, self_{self}, ranks_{ranks} {}

    [[nodiscard]] optpipe::rank self() const { return self_; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }
    [[nodiscard]] lane open_lane(optpipe::lane_kind, std::size_t) {
        std::erase_if(streams_, [](const auto& each) { return each.expired(); });
        auto mine = std::make_shared<engine::stream>(*machine_, self_.position());
        streams_.push_back(mine);
        return lane{std::move(mine)};
    }
    [[nodiscard]] lane::marker make_marker() { return {}; }
    [[nodiscard]] copy_engine copies() { return {}; }
    [[nodiscard]] adapter::transport& transport() { return transport_; }
    [[nodiscard]] adapter::memory memory() { return {}; }

    void finish() {
        std::unique_lock lock{machine_->mutex};
        machine_->changed.wait(lock, [&] {
            return std::all_of(streams_.begin(), streams_.end(), [](const auto& each) {
                const auto open = each.lock();
                return !open || open->idle();
            });
        });
        if (const auto& f = machine_->failed)
            throw optpipe::execution_error{optpipe::rank{f->device}, f->work, f->reason};
    }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        const std::scoped_lock lock{machine_->mutex};
        machine_->fail({self_.position(), std::string{what_it_did}, std::string{reason}});
    }

private:
    engine::machine* machine_;
    adapter::transport transport_;
    optpipe::rank self_;
    std::size_t ranks_;
    std::vector<std::weak_ptr<engine::stream>> streams_; // owned by their lanes
};
static_assert(optpipe::execution::check_executor<executor>());

} // namespace adapter
