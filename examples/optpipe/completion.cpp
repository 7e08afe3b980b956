#include "completion.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace program {
namespace {

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const auto& word : words)
        text += (text.empty() ? "" : " ") + word;
    return text;
}

/// The text with a backslash before each of these characters.
std::string escaped(std::string_view text, std::string_view characters) {
    std::string safe;
    for (const char c : text) {
        if (characters.find(c) != std::string_view::npos) safe += '\\';
        safe += c;
    }
    return safe;
}

/// The text as one word of bash and zsh.
std::string shell_quoted(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text)
        quoted += c == '\'' ? std::string{"'\\''"} : std::string{c};
    return quoted + "'";
}

std::vector<std::string> names_of(const std::vector<option_entry>& options) {
    std::vector<std::string> names;
    for (const auto& option : options)
        names.push_back(option.name);
    return names;
}

std::vector<std::string> names_of(const std::vector<command_entry>& commands) {
    std::vector<std::string> names;
    for (const auto& command : commands)
        names.push_back(command.name);
    return names;
}

/// A case of bash that sets `words`.
std::string bash_case(const std::string& pattern, const std::vector<std::string>& words) {
    return words.empty() ? "" : "    " + pattern + ") words=" + shell_quoted(joined(words)) + " ;;\n";
}

/// Values without words of their own are completed with file names.
std::string bash_script(const command_table& table) {
    auto first = names_of(table.commands);
    for (const auto& name : names_of(table.options))
        first.push_back(name);
    std::string values;
    std::string options;
    std::string arguments;
    for (const auto& command : table.commands) {
        for (const auto& option : command.options)
            values += bash_case(command.name + ":" + option.name, option.choices);
        options += bash_case(command.name, names_of(command.options));
        if (!command.arguments.empty()) arguments += bash_case(command.name, command.arguments.front().choices);
    }
    return "# bash completion of optpipe, made by `optpipe completion bash`.\n"
           "_optpipe() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
           "    local previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    [[ $current == = ]] && current=\n"
           "    [[ $previous == = ]] && previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "    COMPREPLY=()\n"
           "    case $command:$previous in\n" +
           values +
           "    esac\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        words=" +
           shell_quoted(joined(first)) +
           "\n"
           "    elif [[ -z $words && $current == -* ]]; then\n"
           "    case $command in\n" +
           options +
           "    esac\n"
           "    elif [[ -z $words ]]; then\n"
           "    case $command in\n" +
           arguments +
           "    esac\n"
           "    fi\n"
           "    if [[ -n $words ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "    fi\n"
           "}\n"
           "complete -o bashdefault -o default -F _optpipe optpipe\n";
}

/// The completion of a value in zsh: its choices, file names, or nothing.
std::string zsh_action(const option_entry& option) {
    if (!option.choices.empty()) return "(" + escaped(joined(option.choices), ":") + ")";
    return option.takes_file() ? "_files" : " ";
}

std::string zsh_option(const option_entry& option) {
    auto spec = option.name;
    const bool is_flag = option.value.empty();
    if (!is_flag) spec += "=";
    spec += "[" + escaped(option.text, "\\[]:") + "]";
    if (!is_flag) spec += ":" + escaped(option.value, "\\:") + ":" + zsh_action(option);
    return shell_quoted((option.repeats ? "*" : "") + spec);
}

std::string zsh_script(const command_table& table) {
    std::string commands;
    std::string cases;
    for (const auto& command : table.commands) {
        commands += "        " + shell_quoted(escaped(command.name, ":") + ":" + escaped(command.text, "\\:")) + "\n";
        cases += "    " + command.name + ")\n        _arguments";
        for (const auto& option : command.options)
            cases += " \\\n            " + zsh_option(option);
        if (!command.arguments.empty())
            cases += " \\\n            " +
                     shell_quoted("*:" + command.arguments.front().name + ":" + zsh_action(command.arguments.front()));
        cases += "\n        ;;\n";
    }
    return "#compdef optpipe\n"
           "# zsh completion of optpipe, made by `optpipe completion zsh`.\n"
           "_optpipe() {\n"
           "    local -a commands\n"
           "    commands=(\n" +
           commands +
           "    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe -t commands 'command of optpipe' commands\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $words[1] in\n" +
           cases +
           "    esac\n"
           "}\n"
           "if [[ $funcstack[1] == _optpipe ]]; then\n"
           "    _optpipe \"$@\"\n"
           "else\n"
           "    compdef _optpipe optpipe\n"
           "fi\n";
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "\\'") + "'"; }

/// The part of a line that says how to complete a value.
std::string fish_value(const option_entry& option) {
    if (option.value.empty()) return " -f";
    if (!option.choices.empty()) return " -x -a " + fish_quoted(joined(option.choices));
    return option.takes_file() ? " -r -F" : " -x";
}

std::string fish_script(const command_table& table) {
    std::string text = "# fish completion of optpipe, made by `optpipe completion fish`.\n";
    for (const auto& command : table.commands)
        text += "complete -c optpipe -n __fish_use_subcommand -f -a " + command.name + " -d " +
                fish_quoted(command.text) + "\n";
    for (const auto& command : table.commands) {
        const auto line = "complete -c optpipe -n '__fish_seen_subcommand_from " + command.name + "'";
        for (const auto& option : command.options)
            text +=
                line + " -l " + option.name.substr(2) + fish_value(option) + " -d " + fish_quoted(option.text) + "\n";
        if (!command.arguments.empty() && !command.arguments.front().choices.empty())
            text += line + " -f -a " + fish_quoted(joined(command.arguments.front().choices)) + "\n";
    }
    return text;
}

} // namespace

std::string completion_script(const command_table& table, const std::string& shell) {
    if (shell == "zsh") return zsh_script(table);
    if (shell == "fish") return fish_script(table);
    return bash_script(table);
}

} // namespace program
