// The building blocks of messages over MPI.
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/bootstrap.hpp"
#include "optpipe/execution/mpi/byte_type.hpp"
#include "optpipe/execution/mpi/clock.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/execution/mpi/message_tags.hpp"
#include "optpipe/execution/mpi/notice.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::microbatch;
using optpipe::operation;
using optpipe::operation_kind;
using optpipe::rank;
using optpipe::stage;
namespace mpi = optpipe::mpi;

TEST_CASE("a tag tells the operation") {
    for (const int largest : {32767, 268435455, 2147483647}) {
        CAPTURE(largest);
        const mpi::message_tags tags{largest};
        for (const auto kind : {operation_kind::forward, operation_kind::backward_input, operation_kind::backward})
            for (const std::size_t s : {0U, 1U, 7U, 15U})
                for (const std::size_t m : {0U, 1U, 100U, 127U}) {
                    const operation op{stage{s}, kind, microbatch{m}};
                    CHECK(tags(op) >= 0);
                    CHECK(tags(op) <= largest);
                    CHECK(tags.made_by(tags(op)) == op);
                }
        const operation last{stage{100000}, operation_kind::reload, microbatch{10000000}};
        CHECK(tags(last) >= 0);
        CHECK(tags(last) <= largest);
    }
}

TEST_CASE("bytes in blocks arrive as they are") {
    const std::size_t count = world::ranks();
    const auto next = static_cast<int>((world::self().position() + 1) % count);
    const auto before = static_cast<int>((world::self().position() + count - 1) % count);
    for (const std::size_t bytes : {0U, 1U, 99U, 100U, 101U, 200U, 12345U}) {
        CAPTURE(bytes);
        std::vector<unsigned char> from(bytes), to(bytes + 1, 255);
        for (std::size_t i = 0; i < bytes; ++i)
            from[i] = static_cast<unsigned char>(7 * i + i / 256);
        const mpi::byte_type type{bytes, 100};
        CHECK((type.native() == MPI_BYTE) == (bytes <= 100));
        MPI_Status status;
        mpi::check(MPI_Sendrecv(from.data(), type.count(), type.native(), next, 0, to.data(), type.count(),
                                type.native(), before, 0, MPI_COMM_WORLD, &status),
                   "MPI_Sendrecv");
        CHECK(mpi::bytes_of(status) == bytes);
        CHECK(to.back() == 255);
        to.pop_back();
        CHECK(to == from);
    }
}

TEST_CASE("a notice is read as it was written, or cut") {
    using kind = mpi::notice::kind_type;
    const mpi::notice n{kind::report, rank{12}, "receive of 1F2 from rank 1", "two\nlines"};
    const auto again = mpi::notice::read(n.text());
    CHECK(again.kind == kind::report);
    CHECK(again.where == rank{12});
    CHECK(again.operation == n.operation);
    CHECK(again.reason == n.reason);
    const auto empty = mpi::notice::read(mpi::notice{}.text());
    CHECK(empty.kind == kind::done);
    CHECK(empty.reason == "");
    const mpi::notice large{kind::report, rank{1}, std::string(5000, 'x'), std::string(5000, 'y')};
    CHECK(large.text().size() == mpi::notice::largest);
    CHECK(mpi::notice::read(large.text()).operation == std::string(mpi::notice::largest / 4, 'x'));
    CHECK(mpi::notice::read(large.text()).reason.front() == 'y');
    for (const char* bad : {"", "r", "r1", "r1\n", "r1\nx", "r\n\n", "rx\n\n", "r1x\n\n", "r99999999999\n\n"})
        CHECK_THROWS_AS(static_cast<void>(mpi::notice::read(bad)), optpipe::error);
}

TEST_CASE("all ranks mean the same instant by the beginning") {
    mpi::communicator among{MPI_COMM_WORLD, 20s};
    const auto begin = mpi::common_begin(among, 20s);
    // On one machine all processes read the same clock.
    auto mine = std::chrono::nanoseconds{begin.time_since_epoch()}.count();
    std::vector<decltype(mine)> all(world::ranks());
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    for (const auto& each : all)
        CHECK(std::chrono::abs(std::chrono::nanoseconds{each - all[0]}) < 1s);
}

TEST_CASE("what rank 0 has, all have") {
    std::array<unsigned char, 256> secret{};
    if (world::self() == rank{0})
        for (std::size_t i = 0; i < secret.size(); ++i)
            secret[i] = static_cast<unsigned char>(i * 5 + 1);
    optpipe::bootstrap::share_by_mpi(std::as_writable_bytes(std::span{secret}), MPI_COMM_WORLD, 20s);
    for (std::size_t i = 0; i < secret.size(); ++i)
        CHECK(secret[i] == static_cast<unsigned char>(i * 5 + 1));
}

TEST_CASE("a rank that waits for rank 0 in vain says so") {
    std::array<std::byte, 16> none{};
    MPI_Comm among = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &among);
    std::string said;
    if (world::self() != rank{0}) {
        try {
            optpipe::bootstrap::share_by_mpi(none, among, 100ms);
        } catch (const mpi::timeout_error& e) {
            said = e.what();
        }
        CHECK(said == "mpi: waited 100 ms for what rank 0 shares");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world::self() == rank{0}) optpipe::bootstrap::share_by_mpi(none, among, 20s); // late, but it ends
}

TEST_CASE("an error tells the call and what MPI says of it") {
    mpi::communicator among{MPI_COMM_WORLD, 20s};
    std::string said;
    try {
        mpi::check(MPI_Send(nullptr, 0, MPI_BYTE, 1000, 0, among.native()), "MPI_Send");
    } catch (const mpi::error& e) {
        said = e.what();
    }
    CHECK(said.starts_with("MPI_Send: "));
    // Open MPI: "MPI_ERR_RANK: invalid rank", MPICH: "Invalid rank, error stack: …".
    CHECK(said.find("nvalid rank") != std::string::npos);
}

TEST_CASE("a session borrows what is there, and members can be on any communicator") {
    const mpi::session second;
    CHECK(!second.owns());
    const world::first_ranks two{2};
    if (two) {
        mpi::member here{two.native(), {.patience = 20s}};
        mpi::member again{two.native(), {.patience = 20s}};
        CHECK(here.executor().ranks() == 2);
        CHECK(here.executor().self() == world::self());
    }
    MPI_Barrier(second.world());
}

} // namespace
