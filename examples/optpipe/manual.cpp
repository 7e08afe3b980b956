#include "manual.hpp"

#include <optpipe/version.hpp>

#include <string>
#include <string_view>

namespace program {
namespace {

/// Text as roff prints it: no character is a command, and a dash can be copied.
std::string plain(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        const bool starts_line = safe.empty() || safe.back() == '\n';
        if (starts_line && (c == '.' || c == '\'')) safe += "\\&";
        if (c == '\\')
            safe += "\\e";
        else if (c == '-')
            safe += "\\-";
        else
            safe += c;
    }
    return safe;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

std::string paragraph_of(const option_entry& entry) {
    std::string names = entry.short_name.empty() ? "" : bold(entry.short_name) + ", ";
    names += entry.name.starts_with('-') ? bold(entry.name) : italic(entry.name);
    if (entry.name.starts_with('-') && !entry.value.empty()) names += " " + italic(entry.value);
    return ".TP\n" + names + "\n" + plain(entry.text) + "\n";
}

std::string section_of(const command_entry& command) {
    std::string text = ".SS \"optpipe " + plain(command.name) + " [OPTIONS]";
    for (const auto& argument : command.arguments) {
        const auto name = plain(argument.name) + (argument.repeats ? "..." : "");
        text += argument.is_required ? " " + name : " [" + name + "]";
    }
    text += "\"\n" + plain(command.text) + ".\n";
    for (const auto& argument : command.arguments)
        text += paragraph_of(argument);
    for (const auto& option : command.options)
        text += paragraph_of(option);
    return text;
}

/// The lines after the heading, as they are.
std::string lines_after_heading(const std::string& footer) {
    return ".nf\n" + plain(footer.substr(footer.find('\n') + 1)) + "\n.fi\n";
}

} // namespace

std::string manual_page(const command_table& table) {
    std::string text = ".\\\" Made by `optpipe man-page`.\n.TH OPTPIPE 1 \"\" \"optpipe ";
    text += std::string{optpipe::version_string} + "\" \"User Commands\"\n";
    text += ".SH NAME\noptpipe \\- plan pipeline\\-parallel training within a memory limit\n";
    text += ".SH SYNOPSIS\n.B optpipe\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIPROBLEM\\fR] [\\fIPLAN\\fR]\n";
    text += ".SH DESCRIPTION\n" + plain(table.text) + "\n";
    text += ".SH OPTIONS\n";
    for (const auto& option : table.options)
        text += paragraph_of(option);
    text += ".SH COMMANDS\n";
    for (const auto& command : table.commands)
        text += section_of(command);
    return text + ".SH EXIT STATUS\n" + lines_after_heading(table.footer);
}

} // namespace program
