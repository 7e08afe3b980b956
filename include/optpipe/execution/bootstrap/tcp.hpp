#pragma once

#include "optpipe/core/error.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

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

private:
    int handle_;
};

/// A deadline that every wait of one exchange shares.
class patience_left {
public:
    explicit patience_left(std::chrono::milliseconds patience)
        : deadline_{std::chrono::steady_clock::now() + patience} {}
    /// For poll: whether the handle is ready before the time is up.
    [[nodiscard]] bool ready(int handle, short events) const {
        for (;;) {
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
            pollfd asked{handle, events, 0};
            const int answer = ::poll(&asked, 1, static_cast<int>(std::max<long long>(0, left.count())));
            if (answer < 0 && errno == EINTR) continue;
            return answer > 0;
        }
    }
    [[nodiscard]] bool over() const { return std::chrono::steady_clock::now() >= deadline_; }

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

/// Rank 0 may not be there yet, so it is tried until the time is up.
inline socket_handle connect_to(const std::string& host, const std::string& port, const patience_left& patience) {
    for (;;) {
        const auto found = resolve(host, port, false);
        for (const auto* a = found.get(); a; a = a->ai_next) {
            socket_handle peer{::socket(a->ai_family, a->ai_socktype, a->ai_protocol)};
            if (peer && ::connect(peer.get(), a->ai_addr, a->ai_addrlen) == 0) return peer;
        }
        if (patience.over()) return socket_handle{};
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
}

template <class Byte, class Move>
bool move_all(int handle, std::span<Byte> bytes, short events, const patience_left& patience, Move move) {
    while (!bytes.empty()) {
        if (!patience.ready(handle, events)) return false;
        const auto moved = move(handle, bytes.data(), bytes.size());
        if (moved <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(moved));
    }
    return true;
}

} // namespace detail

/// Hands `bytes` of rank 0 to all ranks. Rank 0 listens at host:port and returns when all others have had theirs; the
/// others ask there. Everybody throws after `patience`, rank 0 saying how many came.
inline void share_by_tcp(std::span<std::byte> bytes, const std::string& host, const std::string& port, int rank,
                         int ranks, std::chrono::milliseconds patience) {
    const detail::patience_left left{patience};
    const auto waited = " within " + std::to_string(patience.count()) + " ms";
    if (rank == 0) {
        const auto listener = detail::listen_at(host, port);
        for (int served = 0; served < ranks - 1;) {
            if (!left.ready(listener.get(), POLLIN))
                throw network_error{host + ":" + port + ": " + std::to_string(served) + " of " +
                                    std::to_string(ranks - 1) + " ranks came" + waited};
            const detail::socket_handle peer{::accept(listener.get(), nullptr, nullptr)};
            const auto send = [](int handle, const std::byte* data, std::size_t size) {
                return ::send(handle, data, size, MSG_NOSIGNAL);
            };
            if (peer && detail::move_all(peer.get(), std::span<const std::byte>{bytes}, POLLOUT, left, send)) ++served;
        }
        return;
    }
    const auto receive = [](int handle, std::byte* data, std::size_t size) { return ::recv(handle, data, size, 0); };
    const auto peer = detail::connect_to(host, port, left);
    if (!peer || !detail::move_all(peer.get(), bytes, POLLIN, left, receive))
        throw network_error{host + ":" + port + ": rank " + std::to_string(rank) + " got no answer from rank 0" +
                            waited};
}

} // namespace optpipe::bootstrap
