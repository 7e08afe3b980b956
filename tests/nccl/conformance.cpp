#include "conformance/faults_of.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/threads/failure.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using conformance::faults_of;
using optpipe::rank;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

/// Each rank finds out alone that another is gone, when its patience has ended.
constexpr optpipe::testing::conformance_options each_for_itself{.bytes = 512, .rounds = 4, .same_error = false};

/// A failure channel for ranks that are threads.
struct shared_failure final : optpipe::execution::failure_channel {
    optpipe::threads::failure first;
    void tell(const optpipe::execution_error& what) override {
        first.report(what.rank(), what.operation(), what.reason());
    }
    [[nodiscard]] std::optional<optpipe::execution_error> failure() const override {
        if (!first.happened().load()) return std::nullopt;
        return first.what();
    }
};
struct member_pointer {
    std::unique_ptr<nccl::member> here;
    cuda::executor& operator*() const { return here->executor(); }
};

TEST_CASE("ranks that talk by NCCL keep to the concepts, whatever their streams do first") {
    // The suite examines one rank after the other. Later ranks wait in `finish` for all before them: on a busy machine
    // for a minute. With a channel no rank waits out the patience, so it may be long.
    constexpr auto patience = 20min;
    constexpr optpipe::testing::conformance_options together{.bytes = 512, .rounds = 4};
    // A ring of odd length has two neighbours that share their communicators. A ring of one rank sends to itself
    // outside of a group, which NCCL refuses.
    for (const auto ranks : {std::size_t{2}, std::size_t{4}}) {
        CAPTURE(ranks);
        fake_cuda::reset({.seed = ranks});
        fake_nccl::reset();
        const auto id = nccl::world_id::make(nccl::communicator_layout::per_sender);
        shared_failure failures;
        const auto join = [&](rank r) {
            auto how = joined::options_of(r, patience);
            how.failures = &failures;
            return member_pointer{std::make_unique<nccl::member>(id, r, ranks, how)};
        };
        CHECK(faults_of(ranks, together, join) == "");
        CHECK(streamed::lines(fake_nccl::complaints()) == "");
        CHECK(fake_cuda::alive() == fake_cuda::census{});
        CHECK(fake_nccl::alive() == 0);
    }
}

/// Each of the next two carriers makes one mistake. This one sends every message in a group of its own.
struct one_by_one final : cuda::detail::carrier {
    nccl::messages inner;
    one_by_one(const nccl::world_id& id, rank r, std::size_t ranks) : inner{id, r, ranks, 500ms} {}
    bool carry(cuda::detail::lane_state& on, cuda::detail::command& what) override {
        for (std::size_t i = 0; i < what.count; ++i) {
            auto alone = what;
            alone.messages[0] = what.messages[i];
            alone.count = 1;
            inner.carry(on, alone);
        }
        return true;
    }
    void forget(cuda::detail::lane_state&) noexcept override {}
    void check_health() override { inner.check_health(); }
    void abandon() noexcept override { inner.abandon(); }
};
/// Sends gradients with the activations.
struct mixing final : cuda::detail::carrier {
    nccl::messages inner;
    mixing(const nccl::world_id& id, rank r, std::size_t ranks) : inner{id, r, ranks, 500ms} {}
    bool carry(cuda::detail::lane_state& on, cuda::detail::command& what) override {
        for (std::size_t i = 0; i < what.count; ++i)
            what.messages[i].label.op.kind = optpipe::operation_kind::forward;
        return inner.carry(on, what);
    }
    void forget(cuda::detail::lane_state&) noexcept override {}
    void abandon() noexcept override { inner.abandon(); }
};

template <class Carrier> struct faulty_member {
    faulty_member(const nccl::world_id& id, rank r, std::size_t ranks)
        : device{static_cast<int>(r.value())}, carrier{id, r, ranks}, executor{group, carrier,
                                                                               joined::options_of(r, 500ms), r, ranks} {
    }
    cuda::current_device device;
    cuda::detail::rank_group group;
    Carrier carrier;
    cuda::executor executor;
};
template <class Carrier> struct faulty_pointer {
    std::unique_ptr<faulty_member<Carrier>> member;
    cuda::executor& operator*() const { return member->executor; }
};
template <class Carrier> bool is_found(const std::string& sentence) {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::world_id::make(nccl::communicator_layout::per_sender);
    const auto text = faults_of(2, each_for_itself, [&](rank r) {
        return faulty_pointer<Carrier>{std::make_unique<faulty_member<Carrier>>(id, r, std::size_t{2})};
    });
    INFO(text);
    return text.find(sentence) != std::string::npos;
}

TEST_CASE("mistakes are found") {
    CHECK(is_found<one_by_one>("throws: rank"));
    CHECK(is_found<mixing>("a message isn't the one whose turn it is"));
}

} // namespace
