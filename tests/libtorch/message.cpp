// The tensors between two stages, in a message.
#include "optpipe/execution/libtorch/message.hpp"

#include "libtorch/torch_and_doctest.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/libtorch/stash.hpp"

#include <cstddef>
#include <span>
#include <vector>

using namespace optpipe;

namespace {

using libtorch::message_layout;
using libtorch::tensors;

/// The values after their way through a message.
tensors sent(const message_layout& by, const tensors& values) {
    std::vector<std::byte> message(by.bytes());
    by.write(values, message, at::kCPU);
    const auto found = by.read(message, at::kCPU, at::kCPU);
    message.assign(message.size(), std::byte{}); // tensors have memory of their own
    return found;
}

TEST_CASE(
    "a message brings tensors of all types and sizes, in any memory order, and says which of them are undefined") {
    const tensors values{at::rand({3, 5}, at::kDouble).t(), at::arange(7), at::ones({2, 1}, at::kBool),
                         at::rand({}, at::kFloat), at::empty({0, 4}, at::kHalf)};
    const message_layout layout{values};
    CHECK(layout.bytes() == 15 * 8 + 7 * 8 + 2 + 4 + values.size());
    CHECK(libtorch::message_bytes(values) == 256);
    const auto found = sent(layout, values);
    REQUIRE(found.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(at::equal(found[i], values[i]));
        const bool has_type = found[i].scalar_type() == values[i].scalar_type();
        CHECK(has_type);
    }
    const auto gradients = sent(layout, {values[0], {}, {}, values[3], {}});
    CHECK(at::equal(gradients[0], values[0]));
    CHECK(!gradients[1].defined());
    CHECK(!gradients[2].defined());
    CHECK(at::equal(gradients[3], values[3]));
    CHECK(!gradients[4].defined());
}

TEST_CASE("tensors of other types and sizes, and messages that are too small, are refused") {
    const message_layout layout{{at::ones({3, 2})}};
    std::vector<std::byte> message(layout.bytes());
    for (const auto& other : {at::ones({2, 3}), at::ones({3, 2}, at::kLong)})
        CHECK_THROWS_WITH_AS(layout.write({other}, message, at::kCPU), doctest::Contains("other tensors"), error);
    CHECK_THROWS_WITH_AS(layout.write({}, message, at::kCPU), doctest::Contains("other tensors"), error);
    const std::span<std::byte> small{message.data(), message.size() - 1};
    CHECK_THROWS_WITH_AS(layout.write({at::ones({3, 2})}, small, at::kCPU),
                         doctest::Contains("libtorch::message_bytes"), error);
    CHECK_THROWS_WITH_AS(static_cast<void>(layout.read(small, at::kCPU, at::kCPU)), doctest::Contains("25 bytes"),
                         error);
}

} // namespace
