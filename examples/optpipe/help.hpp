#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
class Error;
} // namespace CLI

/// The commands that describe the program itself, and its messages on wrong command lines.
namespace program {

void add_help(CLI::App& app, std::string& name, std::function<int()>& chosen);

/// A text that the program makes of its own options, and its output file.
struct own_text {
    std::string shell;
    std::string out = "-";
};

void add_completion(CLI::App& app, own_text& o, std::function<int()>& chosen);
void add_man_page(CLI::App& app, own_text& o, std::function<int()>& chosen);

/// The message on a wrong command line, in one line like all messages.
std::string usage_message(const CLI::App* app, const CLI::Error& e);

} // namespace program
