#pragma once

#include "command_table.hpp"

#include <string>
#include <vector>

namespace program {

inline const std::vector<std::string> shell_names{"bash", "zsh", "fish"};

/// The script that completes the program's command line in one of `shell_names`.
std::string completion_script(const command_table& table, const std::string& shell);

} // namespace program
