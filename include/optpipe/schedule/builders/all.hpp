#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/gis.hpp"
#include "optpipe/schedule/builders/gis_half.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/mario.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/builders/pipe_offload_full.hpp"
#include "optpipe/schedule/builders/pipe_offload_half.hpp"
#include "optpipe/schedule/builders/v_auto.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/v_min.hpp"
#include "optpipe/schedule/builders/zero_bubble_auto.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <tuple>

namespace optpipe {

/// Every builder of this library, as `optpipe compare` lists them.
inline constexpr std::tuple all_builders{gpipe,
                                         one_forward_one_backward,
                                         interleaved,
                                         zero_bubble_h1,
                                         zero_bubble_h2,
                                         zero_bubble_auto,
                                         zero_bubble_v,
                                         v_half,
                                         v_min,
                                         v_auto,
                                         dual_pipe_v,
                                         gis,
                                         gis_half,
                                         pipe_offload,
                                         pipe_offload_half,
                                         pipe_offload_full,
                                         adaptive};

/// Calls `visit(builder)` for each of them, in that order.
template <class Visitor> constexpr void for_each_builder(Visitor visit) {
    std::apply([&](const auto&... builders) { (visit(builders), ...); }, all_builders);
}

/// The builders that choose storage options themselves.
inline constexpr std::tuple storage_builders{adapipe, mario};

template <class Visitor> constexpr void for_each_storage_builder(Visitor visit) {
    std::apply([&](const auto&... builders) { (visit(builders), ...); }, storage_builders);
}

#if defined(OPTPIPE_COMPILED)
// For problems with dynamic extents, defined in the library.
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const adaptive_builder<>& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const dual_pipe_v_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const gis_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const gis_half_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const gpipe_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const interleaved_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const one_forward_one_backward_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const pipe_offload_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const pipe_offload_full_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const pipe_offload_half_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const v_auto_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const v_half_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const v_min_builder& build, stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const zero_bubble_auto_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const zero_bubble_h1_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const zero_bubble_h2_builder& build,
                                               stop_check stop = {});
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const zero_bubble_v_builder& build,
                                               stop_check stop = {});
#endif

} // namespace optpipe
