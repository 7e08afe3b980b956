#include "archetypes/executor.hpp"
#include "execution/trace_executor.hpp"
#include "mutants/executor.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/testing/executor_model.hpp"

namespace {

namespace ex = optpipe::execution;
using namespace optpipe::testing;

static_assert(ex::lane<archetype::lane>);
static_assert(!ex::lane<mutant::lane_without_move>);
static_assert(!ex::lane<mutant::lane_without_marker>);
static_assert(!ex::lane<mutant::lane_without_launch>);
static_assert(!ex::lane<mutant::lane_without_record>);
static_assert(!ex::lane<mutant::lane_without_wait>);
static_assert(!ex::lane<mutant::lane_with_mutable_wait>);

static_assert(ex::copy_engine<archetype::copy_engine, archetype::lane>);
static_assert(!ex::copy_engine<mutant::copy_engine_without_copy, archetype::lane>);

static_assert(ex::memory<archetype::device_memory>);
static_assert(!ex::memory<mutant::memory_without_device>);
static_assert(!ex::memory<mutant::memory_without_host>);
static_assert(!ex::memory<mutant::memory_with_bare_pointer>);

static_assert(ex::transport<archetype::transport, archetype::lane>);
static_assert(!ex::transport<mutant::transport_without_exchange, archetype::lane>);
static_assert(!ex::transport<mutant::transport_with_mutable_messages, archetype::lane>);

static_assert(ex::stage_model<archetype::stage_model, archetype::lane>);
static_assert(!ex::stage_model<mutant::stage_without_forward, archetype::lane>);
static_assert(!ex::stage_model<mutant::stage_without_backward_input, archetype::lane>);
static_assert(!ex::stage_model<mutant::stage_without_backward_weight, archetype::lane>);
static_assert(ex::overlapping_stage_model<archetype::overlapping_stage_model, archetype::lane>);
static_assert(!ex::overlapping_stage_model<archetype::stage_model, archetype::lane>);
static_assert(!ex::overlapping_stage_model<mutant::overlapping_without_overlap, archetype::lane>);
static_assert(ex::reversible_model<archetype::reversible_model, archetype::lane>);
static_assert(!ex::reversible_model<archetype::stage_model, archetype::lane>);
static_assert(!ex::reversible_model<mutant::reversible_without_gradient_squares, archetype::lane>);
static_assert(!ex::reversible_model<mutant::reversible_without_update, archetype::lane>);
static_assert(!ex::reversible_model<mutant::reversible_without_revise, archetype::lane>);
static_assert(!ex::reversible_model<mutant::reversible_without_settle, archetype::lane>);
static_assert(!ex::reversible_model<mutant::reversible_without_abandon, archetype::lane>);
static_assert(!ex::has_backward<archetype::stage_model, archetype::lane>);
static_assert(!ex::has_update<archetype::stage_model, archetype::lane>);
static_assert(!ex::has_recompute<archetype::stage_model, archetype::lane>);

static_assert(ex::executor<archetype::executor>);
static_assert(!ex::executor<mutant::executor_without_lane_type>);
static_assert(!ex::executor<mutant::executor_without_open_lane>);
static_assert(!ex::executor<mutant::executor_without_make_marker>);
static_assert(!ex::executor<mutant::executor_without_copies>);
static_assert(!ex::executor<mutant::executor_without_transport>);
static_assert(!ex::executor<mutant::executor_without_memory>);
static_assert(!ex::executor<mutant::executor_without_place>);
static_assert(!ex::executor<mutant::executor_without_finish>);
static_assert(!ex::executor<mutant::executor_without_cancel>);

static_assert(ex::control_channel<archetype::control_channel>);
static_assert(!ex::control_channel<mutant::control_channel_without_place>);
static_assert(!ex::control_channel<mutant::control_channel_without_publish>);
static_assert(!ex::control_channel<mutant::control_channel_with_bare_text>);
static_assert(!ex::control_channel<mutant::control_channel_without_report>);
static_assert(!ex::control_channel<mutant::control_channel_with_anonymous_report>);
static_assert(!ex::control_channel<mutant::control_channel_without_begin_minimum>);
static_assert(!ex::control_channel<mutant::control_channel_without_minimum>);
static_assert(!ex::control_channel<mutant::control_channel_without_cancel>);

static_assert(ex::peer_channel<archetype::peer_channel>);
static_assert(!ex::peer_channel<mutant::peer_channel_without_place>);
static_assert(!ex::peer_channel<mutant::peer_channel_without_send>);
static_assert(!ex::peer_channel<mutant::peer_channel_without_wait>);

// The library's own models.
static_assert(ex::executor<optpipe::threads::executor>);
static_assert(ex::executor<trace_executor>);
static_assert(ex::control_channel<optpipe::threads::control_channel>);
static_assert(ex::peer_channel<optpipe::threads::control_channel>);
static_assert(ex::timed_lane<optpipe::threads::lane> && !ex::timed_lane<archetype::lane>);
static_assert(ex::stage_model<tracing_model, optpipe::threads::lane>);
static_assert(ex::has_update<tracing_model, optpipe::threads::lane>);
static_assert(ex::has_recompute<tracing_model, optpipe::threads::lane>);

// Work that needs an allocation, or a destructor, isn't accepted.
struct large_work {
    std::byte state[64];
    void operator()(optpipe::threads::lane&) const {}
};
struct owning_work {
    std::vector<int> state;
    void operator()(optpipe::threads::lane&) const {}
};
static_assert(!ex::small_work<large_work> && !ex::small_work<owning_work>);

} // namespace
