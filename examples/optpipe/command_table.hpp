#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

/// The commands and options of the program as data, for completions and the manual.
namespace program {

/// An option, or an argument.
struct option_entry {
    /// With its dashes; the name of an argument is in capitals.
    std::string name;
    /// For example "-h"; usually empty.
    std::string short_name;
    std::string text;
    /// The kind of its value, such as TEXT or FLOAT; empty for a flag.
    std::string value;
    /// The possible values, if they are few.
    std::vector<std::string> choices;
    bool is_required = false;
    bool repeats = false;

    [[nodiscard]] bool takes_file() const { return value == "TEXT" && choices.empty(); }
};

struct command_entry {
    std::string name;
    std::string text;
    std::vector<option_entry> options;
    std::vector<option_entry> arguments;
};

struct command_table {
    std::string text;
    /// The paragraph on exit statuses.
    std::string footer;
    std::vector<option_entry> options;
    std::vector<command_entry> commands;
};

/// Possible values that the parser doesn't know, by the name of the option or argument.
using known_choices = std::map<std::string, std::vector<std::string>>;

command_table table_of(const CLI::App& app, const known_choices& choices);

} // namespace program
