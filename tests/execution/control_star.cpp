#include "optpipe/execution/control_star.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/execution/bootstrap/tcp_control.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

using optpipe::rank;
using optpipe::execution::control_letter;
using optpipe::execution::control_star;

TEST_CASE("what another rank sends is taken as it is meant, or refused") {
    for (const rank self : {rank{0}, rank{1}}) {
        control_star star{self, 3};
        const rank other{1 - self.value()};
        star.take(other, {control_letter::kind_type::peer, 2, "it"});
        CHECK_THROWS_WITH_AS(star.take(other, {control_letter::kind_type::peer, 3, "it"}),
                             "control channel: a letter that names rank 3 of 3", optpipe::error);
        CHECK_THROWS_AS(star.take(other, {static_cast<control_letter::kind_type>(9), 0, ""}), optpipe::error);
    }
}

TEST_CASE("a frame is taken off once it is all there, and what is none is refused") {
    using optpipe::bootstrap::detail::control_frame;
    const auto bytes = control_frame{control_frame::kind_type::peer, 7, "text"}.bytes();
    auto came = bytes.substr(0, bytes.size() - 1);
    CHECK_FALSE(control_frame::take(came));
    came = bytes + bytes;
    const auto first = control_frame::take(came);
    REQUIRE(first);
    CHECK(first->kind == control_frame::kind_type::peer);
    CHECK(first->value == 7);
    CHECK(first->text == "text");
    CHECK(came == bytes);
    came[0] = 'x';
    CHECK_THROWS_AS(static_cast<void>(control_frame::take(came)), optpipe::bootstrap::network_error);
}

} // namespace
