#include "conformance/faults_of.hpp"
#include "execution/trace_executor.hpp"
#include "optpipe/execution/threads/executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace {

using namespace std::chrono_literals;
using conformance::faults_of;
using optpipe::rank;
namespace threads = optpipe::threads;

TEST_CASE("threads keep to the concepts") {
    for (const bool by_cancel : {false, true})
        for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
            CAPTURE(by_cancel);
            CAPTURE(ranks);
            threads::cluster all{ranks, {.patience = 20s}};
            CHECK(faults_of(ranks, {.by_cancel = by_cancel}, [&](rank r) { return &all[r]; }) == "");
        }
}

TEST_CASE("so do slow links") {
    threads::options how{.patience = 20s};
    how.copies = [](rank, const optpipe::task_label&, std::size_t bytes) {
        return threads::nanoseconds{static_cast<std::int64_t>(bytes / 2)};
    };
    how.messages = [](rank, const optpipe::task_label&, std::size_t) { return threads::nanoseconds{200us}; };
    how.transfer = optpipe::transfer_rules<>{2};
    how.transfer.share_link(rank{0}, rank{1});
    how.transfer.duplex = optpipe::duplex_kind::half;
    threads::cluster all{2, how};
    CHECK(faults_of(2, {}, [&](rank r) { return &all[r]; }) == "");
}

TEST_CASE("virtual time keeps to the concepts") {
    for (const bool by_cancel : {false, true})
        for (const auto ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
            CAPTURE(by_cancel);
            CAPTURE(ranks);
            optpipe::testing::trace_world all{ranks, {.seed = 5}};
            const auto make = [&](rank r) { return std::make_unique<optpipe::testing::trace_executor>(all, r); };
            CHECK(faults_of(ranks, {.bytes = 4096, .by_cancel = by_cancel, .work_may_block = false}, make) == "");
        }
}

} // namespace
