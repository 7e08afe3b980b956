#pragma once

#include <string>
#include <vector>

namespace program {

/// The text of a problem file or layers file with other values of some fields. A change names a field and its value, as
/// in "microbatches=64", "memory_limit[3]=40" (one rank), "stages[2].forward=12", or "stages.forward=12" (all stages).
/// Throws `optpipe::error` if a change can't be read, or names an element that isn't there; unknown fields are left to
/// the reader of the text.
std::string with_changes(const std::string& text, const std::string& source, const std::vector<std::string>& changes);

} // namespace program
