#pragma once

#include "methods.hpp"
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/time/report.hpp>
#if defined(OPTPIPE_HAS_MILP)
#include <optpipe/planner/partition.hpp>
#include <optpipe/planner/plan_result.hpp>
#endif

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

/// What `plan --json` and `partition --json` print; the fields are those that the README lists.
namespace program {

/// The document as commands print it. Names and text of files may be broken UTF-8, which JSON can't hold: a replacement
/// character stands for it.
std::string json_text(const nlohmann::ordered_json& document);
/// How often each storage option is used, as `storage`; nothing where stages have none.
void add_storage_uses(nlohmann::ordered_json& result, const optpipe::problem& p, const optpipe::schedule& s);
std::string json_of_refusal(const optpipe::problem& p, const std::string& reason);
std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const std::vector<attempt>& attempts);
#if defined(OPTPIPE_HAS_MILP)
/// Whether nothing was found that is better than a kept plan of the same problem.
bool is_from_cache(const optpipe::plan_result& planned);
std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const optpipe::plan_result& planned);
/// Of its pipeline, with the layers of each stage, and the rank that holds it.
std::string json_of(const optpipe::schedule_report& report, const optpipe::partition_plan& chosen);
#endif

} // namespace program
