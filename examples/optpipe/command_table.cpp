#include "command_table.hpp"

#include <CLI/CLI.hpp>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace program {
namespace {

/// The texts between braces in "TEXT:{bash,zsh,fish}".
std::vector<std::string> choices_in(const std::string& type) {
    std::vector<std::string> found;
    const auto open = type.find('{');
    if (open == std::string::npos) return found;
    std::istringstream list{type.substr(open + 1, type.find('}') - open - 1)};
    for (std::string each; std::getline(list, each, ',');)
        found.push_back(each);
    return found;
}

option_entry entry_of(const CLI::Option& option, const known_choices& choices) {
    option_entry entry;
    entry.name = option.nonpositional() ? "--" + option.get_lnames().front() : option.get_name(true);
    if (!option.get_snames().empty()) entry.short_name = "-" + option.get_snames().front();
    entry.text = option.get_description();
    entry.is_required = option.get_required();
    entry.repeats = option.get_expected_max() > 1;
    if (option.get_items_expected_max() == 0) return entry;
    const auto type = option.get_type_name();
    entry.value = type.substr(0, type.find(':'));
    entry.choices = choices_in(type);
    if (const auto known = choices.find(entry.name); known != choices.end()) entry.choices = known->second;
    return entry;
}

/// Adds options and arguments, except hidden ones.
void add_options(const CLI::App& app, const known_choices& choices, std::vector<option_entry>& options,
                 std::vector<option_entry>* arguments) {
    for (const auto* option : app.get_options()) {
        if (option->get_group().empty()) continue;
        auto entry = entry_of(*option, choices);
        (option->nonpositional() || !arguments ? options : *arguments).push_back(std::move(entry));
    }
}

} // namespace

command_table table_of(const CLI::App& app, const known_choices& choices) {
    command_table table{app.get_description(), app.get_footer(), {}, {}};
    add_options(app, choices, table.options, nullptr);
    for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        command_entry entry{command->get_name(), command->get_description(), {}, {}};
        add_options(*command, choices, entry.options, &entry.arguments);
        table.commands.push_back(std::move(entry));
    }
    return table;
}

} // namespace program
