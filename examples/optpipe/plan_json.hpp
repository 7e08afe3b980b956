#pragma once

#include "methods.hpp"
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/time/report.hpp>
#if defined(OPTPIPE_HAS_MILP)
#include <optpipe/planner/alternatives.hpp>
#include <optpipe/planner/partition.hpp>
#include <optpipe/planner/plan_result.hpp>
#endif

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

/// The output of `plan --json` and `partition --json`; README lists the fields.
namespace program {

/// The document as commands print it. Names and texts from files may be invalid UTF-8, which JSON can't hold; a
/// replacement character stands for it.
std::string json_text(const nlohmann::ordered_json& document);
/// Adds the number of uses of each storage option, as `storage`; nothing if stages have no options.
void add_storage_uses(nlohmann::ordered_json& result, const optpipe::problem& p, const optpipe::schedule& s);
std::string json_of_refusal(const optpipe::problem& p, const std::string& reason);
std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const std::vector<attempt>& attempts);
#if defined(OPTPIPE_HAS_MILP)
/// Whether no better plan was found than a cached plan of the same problem.
bool is_from_cache(const optpipe::plan_result& planned);
std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const optpipe::plan_result& planned);
/// The plan of the chosen pipeline, with the layers and the rank of each stage.
std::string json_of(const optpipe::schedule_report& report, const optpipe::partition_plan& chosen);
/// The plan of the chosen problem, with its number of microbatches and those that were tried. Contract: `found` belongs
/// to the problems.
std::string json_of(const std::vector<optpipe::problem>& problems, const optpipe::schedule_report& report,
                    const optpipe::alternatives_plan& found);
#endif

} // namespace program
