#pragma once

#include "optpipe/core/error.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::bootstrap {

class network_error : public error {
public:
    using error::error;
};

namespace detail {

class socket_handle {
public:
    explicit socket_handle(int handle = -1) : handle_{handle} {}
    socket_handle(socket_handle&& other) noexcept : handle_{std::exchange(other.handle_, -1)} {}
    socket_handle& operator=(socket_handle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~socket_handle() {
        if (handle_ >= 0) ::close(handle_);
    }
    [[nodiscard]] int get() const { return handle_; }
    explicit operator bool() const { return handle_ >= 0; }
    /// Makes calls on the socket return immediately. `poll` tells when the socket can send or receive.
    void unblock() const { ::fcntl(handle_, F_SETFL, ::fcntl(handle_, F_GETFL) | O_NONBLOCK); }

private:
    int handle_;
};

/// A common deadline for all waits of one exchange.
class patience_left {
public:
    explicit patience_left(std::chrono::milliseconds patience)
        : deadline_{std::chrono::steady_clock::now() + patience} {}
    /// Polls until one of the handles is ready, or the deadline has passed. Returns whether a handle is ready.
    [[nodiscard]] bool any_ready(std::span<pollfd> handles) const {
        for (;;) {
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
            const auto wait = std::clamp<long long>(left.count(), 0, std::numeric_limits<int>::max());
            const int answer = ::poll(handles.data(), handles.size(), static_cast<int>(wait));
            if (answer < 0 && errno == EINTR) continue;
            return answer > 0;
        }
    }
    [[nodiscard]] bool ready(int handle, short events) const {
        pollfd asked{handle, events, 0};
        return any_ready({&asked, 1});
    }
    [[nodiscard]] bool over() const { return std::chrono::steady_clock::now() >= deadline_; }
    /// The earlier of this deadline and `most` from now.
    [[nodiscard]] patience_left at_most(std::chrono::milliseconds most) const {
        auto shorter = *this;
        shorter.deadline_ = std::min(deadline_, std::chrono::steady_clock::now() + most);
        return shorter;
    }

private:
    std::chrono::steady_clock::time_point deadline_;
};

using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

inline addresses resolve(const std::string& host, const std::string& port, bool listen) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = listen ? AI_PASSIVE : 0;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(listen && host.empty() ? nullptr : host.c_str(), port.c_str(), &wanted, &found);
    if (status != 0) throw network_error{host + ":" + port + ": " + ::gai_strerror(status)};
    return {found, &::freeaddrinfo};
}

inline socket_handle listen_at(const std::string& host, const std::string& port) {
    const auto found = resolve(host, port, true);
    for (const auto* a = found.get(); a; a = a->ai_next) {
        socket_handle listener{::socket(a->ai_family, a->ai_socktype, a->ai_protocol)};
        if (!listener) continue;
        const int on = 1;
        ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(listener.get(), SOMAXCONN) == 0)
            return listener;
    }
    throw network_error{host + ":" + port + ": can't listen there: " + std::strerror(errno)};
}

/// The address of one end of a connection; empty if unknown. `ask` is `getsockname` or `getpeername`.
[[nodiscard]] inline std::string address_of(int handle, int (*ask)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (ask(handle, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
    return std::string(reinterpret_cast<const char*>(&address), size);
}
/// Whether the socket is connected to itself. A socket can connect to itself if nothing listens on the port yet.
[[nodiscard]] inline bool is_connected_to_itself(int handle) {
    const auto here = address_of(handle, &::getsockname);
    return !here.empty() && here == address_of(handle, &::getpeername);
}

/// Tries once to connect to one address.
inline socket_handle try_to_connect(const addrinfo& to, const patience_left& patience) {
    // At most 1 s per address, because an address may not answer.
    constexpr std::chrono::seconds most{1};
    socket_handle peer{::socket(to.ai_family, to.ai_socktype, to.ai_protocol)};
    if (!peer) return peer;
    peer.unblock();
    if (::connect(peer.get(), to.ai_addr, to.ai_addrlen) != 0) {
        if (errno != EINPROGRESS || !patience.at_most(most).ready(peer.get(), POLLOUT)) return socket_handle{};
        int status = 0;
        socklen_t size = sizeof status;
        const int asked = ::getsockopt(peer.get(), SOL_SOCKET, SO_ERROR, &status, &size);
        if (asked != 0 || status != 0) return socket_handle{};
    }
    return is_connected_to_itself(peer.get()) ? socket_handle{} : std::move(peer);
}

/// Connects to rank 0. Retries until the deadline, because rank 0 may not listen yet.
inline socket_handle connect_to(const std::string& host, const std::string& port, const patience_left& patience) {
    for (;;) {
        try {
            const auto found = resolve(host, port, false);
            for (const auto* a = found.get(); a; a = a->ai_next)
                if (auto peer = try_to_connect(*a, patience)) return peer;
        } catch (const network_error&) {
            if (patience.over()) throw;
        }
        if (patience.over()) return socket_handle{};
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
}

[[nodiscard]] inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

template <class Byte, class Move>
bool move_all(int handle, std::span<Byte> bytes, short events, const patience_left& patience, Move move) {
    while (!bytes.empty()) {
        if (!patience.ready(handle, events)) return false;
        const auto moved = move(handle, bytes.data(), bytes.size());
        if (moved < 0 && would_block()) continue;
        if (moved <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(moved));
    }
    return true;
}
inline bool send_all(int handle, std::span<const std::byte> bytes, const patience_left& patience) {
    return move_all(handle, bytes, POLLOUT, patience, [](int to, const std::byte* data, std::size_t size) {
        return ::send(to, data, size, MSG_NOSIGNAL);
    });
}
inline bool receive_all(int handle, std::span<std::byte> bytes, const patience_left& patience) {
    return move_all(handle, bytes, POLLIN, patience,
                    [](int from, std::byte* data, std::size_t size) { return ::recv(from, data, size, 0); });
}

using rank_name = std::array<std::byte, 4>;

/// The bytes that tell rank 0 which rank has connected. All machines use the same order of bytes.
[[nodiscard]] inline rank_name name_of(std::uint32_t rank) {
    return {std::byte(rank >> 24U), std::byte(rank >> 16U), std::byte(rank >> 8U), std::byte(rank)};
}
[[nodiscard]] inline std::uint32_t rank_of(const rank_name& name) {
    std::uint32_t rank = 0;
    for (const auto each : name)
        rank = rank << 8U | std::to_integer<std::uint32_t>(each);
    return rank;
}

/// Sends the bytes once to each rank that connects. Connections that don't come from a rank don't delay the ranks.
class rank_server {
public:
    rank_server(socket_handle listener, std::span<const std::byte> bytes, int ranks)
        : listener_{std::move(listener)}, bytes_{bytes}, is_served_(static_cast<std::size_t>(ranks), false) {
        is_served_.front() = true; // rank 0 itself needs no bytes
    }
    /// Serves until the deadline, or until every other rank has been served. Returns the number of ranks served.
    [[nodiscard]] int serve(const patience_left& patience) {
        int served = 0;
        const auto all = static_cast<int>(is_served_.size()) - 1;
        while (served < all) {
            std::vector<pollfd> handles{{listener_.get(), POLLIN, 0}};
            for (const auto& v : visitors_)
                handles.push_back({v.peer.get(), POLLIN, 0});
            if (!patience.any_ready(handles)) break;
            for (std::size_t i = visitors_.size(); i-- > 0;)
                if (handles[i + 1].revents != 0 && is_done(visitors_[i], patience, served))
                    visitors_.erase(visitors_.begin() + static_cast<std::ptrdiff_t>(i));
            if (handles.front().revents != 0) welcome();
        }
        return served;
    }

private:
    struct visitor {
        socket_handle peer;
        rank_name name{};
        std::size_t heard = 0;
    };

    void welcome() {
        socket_handle peer{::accept(listener_.get(), nullptr, nullptr)};
        if (!peer) return;
        peer.unblock();
        visitors_.push_back({std::move(peer)});
    }
    /// Reads the next bytes from a connected process. Returns true if the process has nothing more to send.
    bool is_done(visitor& v, const patience_left& patience, int& served) {
        const auto heard = ::recv(v.peer.get(), v.name.data() + v.heard, v.name.size() - v.heard, 0);
        if (heard < 0 && would_block()) return false;
        if (heard <= 0) return true;
        v.heard += static_cast<std::size_t>(heard);
        if (v.heard < v.name.size()) return false;
        const auto rank = rank_of(v.name);
        if (rank >= is_served_.size() || is_served_[rank]) return true;
        if (send_all(v.peer.get(), bytes_, patience)) {
            is_served_[rank] = true;
            ++served;
        }
        return true;
    }

    socket_handle listener_;
    std::span<const std::byte> bytes_;
    std::vector<bool> is_served_;
    std::vector<visitor> visitors_;
};

} // namespace detail

/// Distributes `bytes` of rank 0 to all ranks. Rank 0 listens at host:port, and returns when all ranks have the bytes.
/// The other ranks connect and send their numbers. A rank throws if it hasn't finished within `patience`. The error of
/// rank 0 states how many ranks were served.
inline void share_by_tcp(std::span<std::byte> bytes, const std::string& host, const std::string& port, int rank,
                         int ranks, std::chrono::milliseconds patience) {
    const detail::patience_left left{patience};
    const auto waited = " within " + std::to_string(patience.count()) + " ms";
    if (rank == 0) {
        const auto served = detail::rank_server{detail::listen_at(host, port), bytes, ranks}.serve(left);
        if (served < ranks - 1)
            throw network_error{host + ":" + port + ": " + std::to_string(served) + " of " + std::to_string(ranks - 1) +
                                " ranks came" + waited};
        return;
    }
    const auto name = detail::name_of(static_cast<std::uint32_t>(rank));
    const auto peer = detail::connect_to(host, port, left);
    if (!peer || !detail::send_all(peer.get(), name, left) || !detail::receive_all(peer.get(), bytes, left))
        throw network_error{host + ":" + port + ": rank " + std::to_string(rank) + " got no answer from rank 0" +
                            waited};
}

} // namespace optpipe::bootstrap
