#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/trace_names.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace optpipe {

/// Adds the operations in a trace to a profile. Reads Chrome's trace events from PyTorch's profiler (Kineto),
/// `schedule_to_chrome_trace` or converters of Nsight Systems. A trace may cover only some of the ranks. All traces of
/// a run cover the same steps, starting with `first_step`. The n-th range of an operation belongs to the n-th step. GPU
/// ranges (`gpu_user_annotation`) take precedence over host ranges of the same stage and kind. Messages aren't
/// measured.
///
/// The trace is read event by event. Throws `input_error` if the text isn't JSON, has no operations, or has operations
/// that aren't in the problem.
void add_trace(cost_profile& profile, const problem& p, std::uint64_t first_step, std::string_view text,
               const std::string& source_name, const trace_options& options = {});
void add_trace(cost_profile& profile, const problem& p, std::uint64_t first_step, std::FILE* file,
               const std::string& source_name, const trace_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/io/json_trace_reader.hpp"
#include "optpipe/io/trace_steps.hpp"

namespace optpipe {

OPTPIPE_INLINE void add_trace(cost_profile& profile, const problem& p, std::uint64_t first_step, std::string_view text,
                              const std::string& source_name, const trace_options& options) {
    detail::trace_reader reader{options.patterns};
    if (!detail::json::sax_parse(text.begin(), text.end(), &reader)) reader.refuse_unless_cut(source_name);
    detail::trace_steps{p, options, source_name}.add(profile, first_step, reader);
}

OPTPIPE_INLINE void add_trace(cost_profile& profile, const problem& p, std::uint64_t first_step, std::FILE* file,
                              const std::string& source_name, const trace_options& options) {
    detail::trace_reader reader{options.patterns};
    if (!detail::json::sax_parse(file, &reader)) reader.refuse_unless_cut(source_name);
    detail::trace_steps{p, options, source_name}.add(profile, first_step, reader);
}

} // namespace optpipe
#endif
