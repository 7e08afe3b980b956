#include "optpipe/execution/bootstrap/tcp_control.hpp"

#include "execution/free_port.hpp"
#include "execution/handovers.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/testing/control_channel.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::bootstrap::network_error;
using optpipe::bootstrap::tcp_control;
using tcp_ports::free_port;

/// Calls `body(control)` for every rank on a separate thread, as if it were a process. Returns the result or the error
/// of each.
template <class Body>
std::vector<std::string> on_ranks(std::size_t ranks, std::chrono::milliseconds patience, const Body& body) {
    const auto port = free_port();
    std::vector<std::string> said(ranks);
    std::vector<std::jthread> hosts;
    for (const rank r : optpipe::index_range<rank>{ranks})
        hosts.emplace_back([&, r] {
            try {
                tcp_control control{"127.0.0.1", port, r, ranks, patience};
                said[r.position()] = body(control);
            } catch (const std::exception& e) {
                said[r.position()] = e.what();
            }
        });
    hosts.clear();
    return said;
}

TEST_CASE("sockets keep to the concept") {
    for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        const auto said = on_ranks(ranks, 20s, [](tcp_control& control) {
            std::string text;
            for (const auto& v : optpipe::testing::check_control_channel(control.channel(), {.seed = 3}))
                text += v.text() + '\n';
            return text;
        });
        for (const auto& text : said)
            CHECK(text == "");
    }
}

/// Polls until a rank fails.
std::string await_failure(tcp_control& control) {
    while (!control.failure())
        std::this_thread::sleep_for(1ms);
    return control.failure()->what();
}

TEST_CASE("a rank that is left by an exception tells all at once") {
    for (const rank bad : {rank{0}, rank{1}, rank{2}}) {
        const auto said = on_ranks(3, 60s, [&](tcp_control& control) {
            if (control.channel().self() == bad) throw std::runtime_error{"of my own"};
            return await_failure(control);
        });
        const auto name = std::to_string(bad.value());
        for (const rank r : optpipe::index_range<rank>{3})
            CHECK(said[r.position()] ==
                  (r == bad ? "of my own" : "rank " + name + ", outside of operations: left by an exception"));
    }
}

/// A connection that sends this and nothing more.
optpipe::bootstrap::detail::socket_handle connection(const std::string& port, std::span<const std::byte> says) {
    const optpipe::bootstrap::detail::patience_left left{20s};
    auto socket = optpipe::bootstrap::detail::connect_to("127.0.0.1", port, left);
    REQUIRE(::send(socket.get(), says.data(), says.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(says.size()));
    return socket;
}
/// A connection that begins like that of a rank.
optpipe::bootstrap::detail::socket_handle stranger(const std::string& port, std::uint64_t self, std::uint64_t ranks) {
    constexpr std::uint64_t of_a_rank = 0x6f70745f6374726c;
    const std::array greeting{of_a_rank, self, ranks};
    return connection(port, std::as_bytes(std::span{greeting}));
}

TEST_CASE("a rank that is gone is one that failed") {
    const auto port = free_port();
    std::vector<std::string> said(2);
    std::vector<std::jthread> hosts;
    for (const rank r : {rank{0}, rank{1}})
        hosts.emplace_back([&, r] {
            tcp_control control{"127.0.0.1", port, r, 3, 60s};
            said[r.position()] = await_failure(control);
        });
    static_cast<void>(stranger(port, 2, 3));
    hosts.clear();
    for (const auto& text : said)
        CHECK(text == "rank 2, the control channel: its connection is lost");
}

TEST_CASE("what connects and is no rank is ignored") {
    const auto port = free_port();
    std::vector<std::string> said(2);
    std::vector<std::jthread> hosts;
    hosts.emplace_back([&] {
        tcp_control control{"127.0.0.1", port, rank{0}, 2, 60s};
        said[0] = await_failure(control);
    });
    const std::string check = "GET /healthz HTTP/1.1\r\nHost: rank-0\r\n\r\n";
    const auto open = connection(port, std::as_bytes(std::span{check}));
    hosts.emplace_back([&] {
        tcp_control control{"127.0.0.1", port, rank{1}, 2, 60s};
        control.tell({rank{1}, "1F0", "on purpose"});
        said[1] = await_failure(control);
    });
    hosts.clear();
    CHECK(said[0] == "rank 1, 1F0: on purpose");
}

TEST_CASE("ranks that don't come, and such as don't belong to the others") {
    const auto port = free_port();
    const auto message = [&](rank r, std::chrono::milliseconds patience) -> std::string {
        try {
            const tcp_control control{"127.0.0.1", port, r, 3, patience};
        } catch (const network_error& e) {
            return e.what();
        }
        return {};
    };
    CHECK(message(rank{0}, 30ms) == "127.0.0.1:" + port + ": 0 of 2 ranks came within 30 ms");
    CHECK(message(rank{2}, 30ms) == "127.0.0.1:" + port + ": rank 2 got no answer from rank 0 within 30 ms");
    const auto with_strangers = [&](std::uint64_t self, std::uint64_t ranks, std::size_t count) {
        std::string said;
        std::jthread host{[&] { said = message(rank{0}, 60s); }};
        std::vector<optpipe::bootstrap::detail::socket_handle> open;
        while (open.size() < count)
            open.push_back(stranger(port, self, ranks));
        host.join();
        return said;
    };
    CHECK(with_strangers(1, 4, 1) == "127.0.0.1:" + port + ": rank 1 of 4 came, to rank 0 of 3");
    CHECK(with_strangers(3, 3, 1) == "127.0.0.1:" + port + ": rank 3 of 3 came, to rank 0 of 3");
    CHECK(with_strangers(1, 3, 2) == "127.0.0.1:" + port + ": rank 1 of 3 came twice");
}

TEST_CASE("a connection that says nothing holds up the ranks for a moment only") {
    const auto port = free_port();
    std::vector<std::string> said(2);
    const auto come = [&](rank r) {
        try {
            const tcp_control control{"127.0.0.1", port, r, 2, 20s};
        } catch (const network_error& e) {
            said[r.position()] = e.what();
        }
    };
    std::jthread host{come, rank{0}};
    const optpipe::bootstrap::detail::patience_left left{20s};
    const auto silent = optpipe::bootstrap::detail::connect_to("127.0.0.1", port, left);
    REQUIRE(silent);
    come(rank{1});
    host.join();
    for (const auto& text : said)
        CHECK(text == "");
}

TEST_CASE("handovers beside an executor that knows nothing of the channel") {
    const auto plans = handovers::plans(3);
    optpipe::threads::cluster cluster{3, {.patience = 60s}};
    std::vector<handovers::record> seen(3);
    const auto said = on_ranks(3, 60s, [&](tcp_control& control) -> std::string {
        const auto r = control.channel().self();
        optpipe::testing::tracing_model model{3};
        seen[r.position()] = handovers::run_rank(cluster[r], control.channel(), model, plans, 20, 11);
        return "";
    });
    for (const auto& text : said)
        CHECK(text == "");
    CHECK(handovers::wrong_results(seen[0], 20, 3) == "");
    for (const auto& own : seen)
        CHECK(own.versions == seen[0].versions);
}

} // namespace
