#include "help.hpp"

#include "command_table.hpp"
#include "commands.hpp"
#include "completion.hpp"
#include "files.hpp"
#include "manual.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/suggestion.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

namespace program {
namespace {

std::vector<std::string> names_of_commands(const CLI::App& app) {
    std::vector<std::string> names;
    for (const auto* command : app.get_subcommands({}))
        names.push_back(command->get_name());
    return names;
}

std::vector<std::string> words_of(const std::string& list) {
    std::vector<std::string> words;
    std::istringstream rest{list};
    for (std::string word; std::getline(rest >> std::ws, word, ',');)
        words.push_back(word);
    return words;
}

command_table own_table(const CLI::App& app) {
    return table_of(app, {{"--method", words_of("best, " + method_names())},
                          {"--methods", words_of("all, plan, " + method_names())},
                          {"--model", words_of(model_names())},
                          {"--placement", {"linear", "loop", "v"}},
                          {"COMMAND", names_of_commands(app)}});
}

void add_own_text(CLI::App& command, own_text& o, std::function<int()>& chosen, std::function<std::string()> text) {
    command.add_option("--out", o.out, "Where it goes (default: standard output)");
    command.callback([&o, &chosen, text] {
        chosen = [&o, text] {
            outputs files{{}, {{"--out", o.out}}};
            files.write("--out", text);
            return files.status(success);
        };
    });
}

std::vector<std::string> names_of_options(const CLI::App& command) {
    std::vector<std::string> names;
    for (const auto* option : command.get_options())
        for (const auto& name : option->get_lnames())
            names.push_back("--" + name);
    return names;
}

/// For example "there is no option --tiem-limit; did you mean --time-limit?"; empty if all arguments with a dash are
/// options.
std::string unknown_option(const CLI::App& command) {
    for (const auto& argument : command.remaining()) {
        if (argument.size() < 2 || argument.front() != '-') continue;
        const auto name = argument.substr(0, argument.find('='));
        const auto dashes = name.starts_with("--") ? "" : "-";
        return "there is no option " + name + optpipe::suggestion(dashes + name, names_of_options(command));
    }
    return "";
}

} // namespace

void add_help(CLI::App& app, std::string& name, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("help", "Print the help of a command");
    command->add_option("COMMAND", name, "Name of a command; without one, all commands are listed");
    command->callback([&] {
        chosen = [&] {
            const auto names = names_of_commands(app);
            if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
                throw optpipe::error{"there is no command " + optpipe::printable(name, 60) +
                                     optpipe::suggestion(name, names)};
            const auto* what = name.empty() ? &app : app.get_subcommand(name);
            const auto before = name.empty() ? app.get_name() : app.get_name() + " " + name;
            std::cout << app.get_formatter()->make_help(what, before, CLI::AppFormatMode::Normal);
            return success;
        };
    });
}

void add_completion(CLI::App& app, own_text& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("completion", "Write the script that completes this command line in a shell");
    command->add_option("SHELL", o.shell, "The shell")->required()->check(CLI::IsMember(shell_names));
    add_own_text(*command, o, chosen, [&] { return completion_script(own_table(app), o.shell); });
}

void add_man_page(CLI::App& app, own_text& o, std::function<int()>& chosen) {
    auto* command = app.add_subcommand("man-page", "Write the manual page of this program, for man");
    add_own_text(*command, o, chosen, [&] { return manual_page(own_table(app)); });
}

std::string usage_message(const CLI::App* app, const CLI::Error& e) {
    const auto chosen = app->get_subcommands();
    const auto& command = chosen.empty() ? *app : *chosen.front();
    const auto rest = app->remaining();
    auto reason = unknown_option(command);
    if (reason.empty() && chosen.empty() && !rest.empty())
        reason = "there is no command " + rest.front() + optpipe::suggestion(rest.front(), names_of_commands(*app));
    if (reason.empty()) reason = e.what();
    return "optpipe: " + optpipe::printable(reason, 400) + "; see optpipe " +
           (chosen.empty() ? "" : command.get_name() + " ") + "--help\n";
}

} // namespace program
