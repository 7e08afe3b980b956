#include "optpipe/execution/bootstrap/tcp.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace bootstrap = optpipe::bootstrap;

namespace {

/// A port on which nobody seems to listen.
std::string free_port() {
    for (int port = 20000 + getpid() % 20000;; ++port) {
        try {
            const auto text = std::to_string(port);
            static_cast<void>(bootstrap::detail::listen_at("127.0.0.1", text));
            return text;
        } catch (const bootstrap::network_error&) { // taken
            REQUIRE(port < 65000);
        }
    }
}

} // namespace

TEST_CASE("what rank 0 has, all ranks get, whoever comes first") {
    const auto port = free_port();
    std::vector<std::array<std::byte, 128>> seen(4);
    seen[0].fill(std::byte{42});
    std::vector<std::jthread> ranks;
    for (int r = 3; r >= 0; --r)
        ranks.emplace_back(
            [&, r] { bootstrap::share_by_tcp(seen[static_cast<std::size_t>(r)], "127.0.0.1", port, r, 4, 20s); });
    ranks.clear();
    for (const auto& bytes : seen)
        CHECK(bytes == seen[0]);
}

TEST_CASE("both ends say what they waited for") {
    const auto port = free_port();
    std::array<std::byte, 8> bytes{};
    const auto message = [&](int rank) -> std::string {
        try {
            bootstrap::share_by_tcp(bytes, "127.0.0.1", port, rank, 3, 30ms);
        } catch (const bootstrap::network_error& e) {
            return e.what();
        }
        return {};
    };
    CHECK(message(0) == "127.0.0.1:" + port + ": 0 of 2 ranks came within 30 ms");
    CHECK(message(2) == "127.0.0.1:" + port + ": rank 2 got no answer from rank 0 within 30 ms");
}

TEST_CASE("who connects and says nothing, or comes twice, isn't counted as a rank") {
    const auto port = free_port();
    std::array<std::byte, 8> bytes{};
    std::string error;
    std::jthread server{[&] {
        try {
            bootstrap::share_by_tcp(bytes, "127.0.0.1", port, 0, 3, 2s);
        } catch (const bootstrap::network_error& e) {
            error = e.what();
        }
    }};
    const bootstrap::detail::patience_left patience{20s};
    const auto silent = bootstrap::detail::connect_to("127.0.0.1", port, patience);
    REQUIRE(silent);
    std::array<std::byte, 8> first{};
    std::array<std::byte, 8> second{};
    bootstrap::share_by_tcp(first, "127.0.0.1", port, 1, 3, 20s);
    CHECK_THROWS_AS(bootstrap::share_by_tcp(second, "127.0.0.1", port, 1, 3, 20s), bootstrap::network_error);
    server.join();
    CHECK(error == "127.0.0.1:" + port + ": 1 of 2 ranks came within 2000 ms");
}

TEST_CASE("an address that doesn't answer is given up, too") {
    // Once the queue is full and nobody accepts, further connections get no answer.
    const auto port = free_port();
    const auto full = bootstrap::detail::listen_at("127.0.0.1", port);
    REQUIRE(::listen(full.get(), 0) == 0);
    const bootstrap::detail::patience_left patience{100ms};
    std::vector<bootstrap::detail::socket_handle> queue;
    for (int i = 0; i < 4; ++i)
        queue.push_back(bootstrap::detail::connect_to("127.0.0.1", port, patience));
    CHECK_FALSE(queue.back());
}

TEST_CASE("a host that isn't there yet is asked for until the time is up") {
    std::array<std::byte, 8> bytes{};
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(bootstrap::share_by_tcp(bytes, "no-such-host.invalid", "1", 1, 2, 300ms), bootstrap::network_error);
    CHECK(std::chrono::steady_clock::now() - begin >= 300ms);
}

TEST_CASE("a socket that has reached itself is told from one that has reached rank 0") {
    const auto address = bootstrap::detail::resolve("127.0.0.1", "0", false); // any port
    const bootstrap::detail::socket_handle own{
        ::socket(address->ai_family, address->ai_socktype, address->ai_protocol)};
    REQUIRE(::bind(own.get(), address->ai_addr, address->ai_addrlen) == 0);
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    REQUIRE(::getsockname(own.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0);
    REQUIRE(::connect(own.get(), reinterpret_cast<sockaddr*>(&bound), size) == 0);
    CHECK(bootstrap::detail::is_connected_to_itself(own.get()));

    const auto other_port = free_port();
    const auto listener = bootstrap::detail::listen_at("127.0.0.1", other_port);
    const bootstrap::detail::patience_left patience{20s};
    const auto peer = bootstrap::detail::connect_to("127.0.0.1", other_port, patience);
    REQUIRE(peer);
    CHECK_FALSE(bootstrap::detail::is_connected_to_itself(peer.get()));
}
