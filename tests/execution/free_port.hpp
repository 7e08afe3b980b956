#pragma once

#include "optpipe/execution/bootstrap/tcp.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

namespace tcp_ports {

/// A port on which nobody seems to listen.
inline std::string free_port() {
    for (int port = 40000 + getpid() % 10000;; ++port) {
        try {
            const auto text = std::to_string(port);
            static_cast<void>(optpipe::bootstrap::detail::listen_at("127.0.0.1", text));
            return text;
        } catch (const optpipe::bootstrap::network_error&) { // taken
            REQUIRE(port < 65000);
        }
    }
}

} // namespace tcp_ports
