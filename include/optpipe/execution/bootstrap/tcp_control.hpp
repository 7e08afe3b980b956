#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/bootstrap/tcp.hpp"
#include "optpipe/execution/control_star.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/failure.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::bootstrap {

namespace detail {

/// The unit of data on a socket. A frame has a kind, a number, the length of a text, and the text.
struct control_frame {
    enum class kind_type : std::uint8_t {
        text,    ///< see `execution::control_letter`
        value,   ///< see `execution::control_letter`
        peer,    ///< see `execution::control_letter`
        failure, ///< a failure: the number is the rank, and the text has the operation and the reason on separate lines
        goodbye, ///< the last frame of the sender
    };
    static constexpr std::size_t header = 1 + 2 * 8;

    kind_type kind = kind_type::goodbye;
    std::uint64_t value = 0;
    std::string text{};

    [[nodiscard]] std::string bytes() const {
        std::string all;
        all.reserve(header + text.size());
        all += static_cast<char>(kind);
        for (const auto number : {value, std::uint64_t{text.size()}})
            for (unsigned shift = 0; shift < 64; shift += 8)
                all += static_cast<char>((number >> shift) & 0xffU);
        return all += text;
    }
    /// Removes the first frame from `from`, and returns it. Empty if the frame is incomplete. Throws `network_error` if
    /// `from` doesn't begin with a frame.
    [[nodiscard]] static std::optional<control_frame> take(std::string& from) {
        if (from.size() < header) return std::nullopt;
        if (static_cast<unsigned char>(from[0]) > static_cast<unsigned char>(kind_type::goodbye))
            throw network_error{"what came from another rank can't be read"};
        const auto length = number_at(from, 9);
        if (from.size() - header < length) return std::nullopt;
        control_frame frame{static_cast<kind_type>(from[0]), number_at(from, 1),
                            from.substr(header, static_cast<std::size_t>(length))};
        from.erase(0, header + static_cast<std::size_t>(length));
        return frame;
    }

private:
    [[nodiscard]] static std::uint64_t number_at(std::string_view bytes, std::size_t at) {
        std::uint64_t number = 0;
        for (std::size_t i = 8; i-- > 0;)
            number = (number << 8U) | static_cast<unsigned char>(bytes[at + i]);
        return number;
    }
};

/// Wakes a thread that waits in `poll`.
class wake_pipe {
public:
    wake_pipe() {
        std::array<int, 2> ends{};
        if (::pipe(ends.data()) != 0) throw network_error{std::string{"pipe: "} + std::strerror(errno)};
        out_ = socket_handle{ends[0]};
        in_ = socket_handle{ends[1]};
        for (const int each : ends)
            ::fcntl(each, F_SETFL, O_NONBLOCK);
    }
    void wake() const noexcept {
        const char byte = 0;
        // If the pipe is full, earlier bytes wake the reader.
        [[maybe_unused]] const auto written = ::write(in_.get(), &byte, 1);
    }
    void clear() const noexcept {
        std::array<char, 64> bytes{};
        while (::read(out_.get(), bytes.data(), bytes.size()) > 0) {
        }
    }
    [[nodiscard]] int handle() const { return out_.get(); }

private:
    socket_handle out_;
    socket_handle in_;
};

} // namespace detail

/// One rank's control channel over sockets. Rank 0 listens at host:port, and the other ranks connect to rank 0. NCCL's
/// executor reports failures to other processes through a `tcp_control` (`cuda::options::failures`). All ranks must
/// construct and destroy their `tcp_control` at the same time. The destructor waits for the other ranks for at most
/// `patience`. A lost connection counts as a failure of the rank at the other end. Ranks that fail at the same time may
/// report different reasons.
class tcp_control final : public execution::failure_channel,
                          private threads::control_carrier,
                          private threads::wakeable {
public:
    using milliseconds = std::chrono::milliseconds;

    /// On rank 0, returns when all ranks have connected. On other ranks, returns when this rank has connected. Throws
    /// `network_error` after `patience`.
    tcp_control(const std::string& host, const std::string& port, rank self, std::size_t ranks, milliseconds patience)
        : patience_{patience}, channel_{self, ranks, patience, failed_, mutex_, *this}, registration_{failed_, *this} {
        if (self == rank{0})
            accept_all(host, port);
        else
            connect(host, port);
        for (auto& each : peers_)
            set_up(each.socket.get());
        thread_ = std::thread{[this] { serve(); }};
    }
    tcp_control(const tcp_control&) = delete;
    tcp_control& operator=(const tcp_control&) = delete;
    ~tcp_control() {
        if (std::uncaught_exceptions() > exceptions_) channel_.cancel("outside of operations", "left by an exception");
        {
            const std::scoped_lock lock{mutex_};
            leaving_at_ = std::chrono::steady_clock::now();
        }
        pipe_.wake();
        thread_.join();
    }

    [[nodiscard]] threads::control_channel& channel() { return channel_; }
    void tell(const execution_error& what) override { failed_.report(what.rank(), what.operation(), what.reason()); }
    [[nodiscard]] std::optional<execution_error> failure() const override {
        if (!failed_.happened().load()) return std::nullopt;
        return failed_.what();
    }

private:
    using frame = detail::control_frame;
    using letter = execution::control_letter;
    using time_point = std::chrono::steady_clock::time_point;

    struct peer {
        rank who{};
        detail::socket_handle socket{};
        std::string in{};
        std::string out{};
        bool has_left = false;
    };

    // Functions that exchange greetings, before the channel's thread starts.

    /// The first message that a rank sends on its connection. A peer without a greeting isn't a rank.
    struct greeting {
        static constexpr std::uint64_t of_a_rank = 0x6f70745f6374726c; // "opt_ctrl"
        std::uint64_t magic = of_a_rank;
        std::uint64_t self = 0;
        std::uint64_t ranks = 0;
    };
    /// The longest time for which a silent connection may delay the ranks. The limit leaves time to resend lost
    /// packets.
    static constexpr milliseconds greeting_limit{2'000};

    void accept_all(const std::string& host, const std::string& port) {
        const auto ranks = channel_.ranks();
        if (ranks == 1) return;
        const detail::patience_left left{patience_};
        const auto listener = detail::listen_at(host, port);
        std::vector<bool> here(ranks, false);
        while (peers_.size() + 1 < ranks) {
            if (!left.ready(listener.get(), POLLIN))
                throw network_error{host + ":" + port + ": " + std::to_string(peers_.size()) + " of " +
                                    std::to_string(ranks - 1) + " ranks came within " +
                                    std::to_string(patience_.count()) + " ms"};
            detail::socket_handle socket{::accept(listener.get(), nullptr, nullptr)};
            greeting said;
            const auto bytes = std::as_writable_bytes(std::span{&said, 1});
            if (!socket || !detail::receive_all(socket.get(), bytes, left.at_most(greeting_limit))) continue;
            if (said.magic != greeting::of_a_rank) continue;
            const auto name = "rank " + std::to_string(said.self) + " of " + std::to_string(said.ranks);
            if (said.ranks != ranks || said.self == 0 || said.self >= ranks)
                throw network_error{host + ":" + port + ": " + name + " came, to rank 0 of " + std::to_string(ranks)};
            const auto at = static_cast<std::size_t>(said.self);
            if (here[at]) throw network_error{host + ":" + port + ": " + name + " came twice"};
            here[at] = true;
            peers_.push_back({rank{at}, std::move(socket)});
        }
    }
    void connect(const std::string& host, const std::string& port) {
        const detail::patience_left left{patience_};
        auto socket = detail::connect_to(host, port, left);
        const greeting mine{.self = channel_.self().value(), .ranks = channel_.ranks()};
        if (!socket || !detail::send_all(socket.get(), std::as_bytes(std::span{&mine, 1}), left))
            throw network_error{host + ":" + port + ": rank " + std::to_string(mine.self) +
                                " got no answer from rank 0 within " + std::to_string(patience_.count()) + " ms"};
        peers_.push_back({rank{0}, std::move(socket)});
    }
    /// Makes the socket send without delay and never block. Messages are small, and a rank waits for each of them.
    static void set_up(int socket) {
        const int on = 1;
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::fcntl(socket, F_SETFL, O_NONBLOCK);
    }

    // Functions that any thread may call.

    void carry(threads::control_channel&) override { pipe_.wake(); }
    execution_error verdict() override { return failed_.what(); }
    void wake() noexcept override { pipe_.wake(); }

    // Functions that the channel's thread calls.

    void serve() {
        try {
            while (step()) {
            }
        } catch (const std::exception& e) {
            failed_.report(channel_.self(), "the control channel", e.what());
        }
    }
    /// Returns false once all ranks have left, or the time limit for leaving has expired.
    bool step() {
        std::optional<time_point> leaving;
        {
            const std::scoped_lock lock{mutex_};
            for (const auto& [to, what] : channel_.take_outbox())
                if (auto* at = find(to)) at->out += to_frame(what).bytes();
            leaving = leaving_at_;
        }
        tell_failure();
        if (leaving && !std::exchange(said_goodbye_, true)) send_to_all({frame::kind_type::goodbye});
        const bool is_over =
            std::all_of(peers_.begin(), peers_.end(), [](const peer& p) { return p.has_left && p.out.empty(); });
        if (leaving && (is_over || std::chrono::steady_clock::now() >= *leaving + patience_)) return false;
        await_sockets(leaving);
        for (auto& each : peers_)
            if (each.socket) {
                write(each);
                read(each);
            }
        return true;
    }
    [[nodiscard]] static frame to_frame(const letter& what) { return {frame_kind(what.kind), what.value, what.text}; }
    [[nodiscard]] static frame::kind_type frame_kind(letter::kind_type kind) {
        switch (kind) {
        case letter::kind_type::text: return frame::kind_type::text;
        case letter::kind_type::value: return frame::kind_type::value;
        case letter::kind_type::peer: return frame::kind_type::peer;
        }
        return frame::kind_type::goodbye;
    }
    [[nodiscard]] peer* find(rank who) {
        const auto at = std::find_if(peers_.begin(), peers_.end(), [&](const peer& p) { return p.who == who; });
        return at != peers_.end() && at->socket ? &*at : nullptr;
    }
    void send_to_all(const frame& what) {
        for (auto& each : peers_)
            if (each.socket) each.out += what.bytes();
    }
    void tell_failure() {
        if (!failed_.happened().load() || std::exchange(told_failure_, true)) return;
        const auto what = failed_.what();
        send_to_all({frame::kind_type::failure, what.rank().value(), what.operation() + '\n' + what.reason()});
    }
    /// Waits for a socket, for a wake-up through the pipe, or for the time limit for leaving.
    void await_sockets(const std::optional<time_point>& leaving) {
        polled_.assign(1, {pipe_.handle(), POLLIN, 0});
        for (const auto& each : peers_)
            if (each.socket)
                polled_.push_back(
                    {each.socket.get(), static_cast<short>(each.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
        int timeout = -1;
        if (leaving) {
            const auto left = *leaving + patience_ - std::chrono::steady_clock::now();
            timeout = static_cast<int>(std::max<long long>(1, std::chrono::duration_cast<milliseconds>(left).count()));
        }
        ::poll(polled_.data(), polled_.size(), timeout);
        pipe_.clear();
    }
    void write(peer& to) {
        while (to.socket && !to.out.empty()) {
            const auto moved = ::send(to.socket.get(), to.out.data(), to.out.size(), MSG_NOSIGNAL);
            if (moved < 0 && detail::would_block()) return;
            if (moved <= 0) return lose(to);
            to.out.erase(0, static_cast<std::size_t>(moved));
        }
    }
    void read(peer& from) {
        while (from.socket) {
            const auto moved = ::recv(from.socket.get(), room_.data(), room_.size(), 0);
            if (moved < 0 && detail::would_block()) break;
            if (moved <= 0) {
                hear(from);
                return lose(from);
            }
            from.in.append(room_.data(), static_cast<std::size_t>(moved));
        }
        hear(from);
    }
    void hear(peer& from) {
        while (auto what = frame::take(from.in)) {
            switch (what->kind) {
            case frame::kind_type::text: take(from, letter::kind_type::text, *what); break;
            case frame::kind_type::value: take(from, letter::kind_type::value, *what); break;
            case frame::kind_type::peer: take(from, letter::kind_type::peer, *what); break;
            case frame::kind_type::failure: {
                const auto end = what->text.find('\n');
                failed_.report(rank{what->value}, what->text.substr(0, end), what->text.substr(end + 1));
                break;
            }
            case frame::kind_type::goodbye: from.has_left = true; break;
            }
        }
    }
    void take(const peer& from, letter::kind_type kind, frame& what) {
        const std::scoped_lock lock{mutex_};
        channel_.take(from.who, {kind, what.value, std::move(what.text)});
    }
    void lose(peer& which) {
        if (!std::exchange(which.has_left, true))
            failed_.report(which.who, "the control channel", "its connection is lost");
        which.socket = detail::socket_handle{};
        which.out.clear();
    }

    milliseconds patience_;
    int exceptions_ = std::uncaught_exceptions();
    threads::failure failed_;
    std::mutex mutex_;
    detail::wake_pipe pipe_;
    threads::control_channel channel_;
    std::optional<time_point> leaving_at_;

    // Members that only the channel's thread uses.
    std::vector<peer> peers_;
    std::vector<pollfd> polled_;
    std::array<char, 65536> room_{};
    bool told_failure_ = false;
    bool said_goodbye_ = false;

    threads::wake_registration registration_;
    std::thread thread_;
};

} // namespace optpipe::bootstrap
