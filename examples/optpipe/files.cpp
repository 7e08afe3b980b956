#include "files.hpp"

#include "changes.hpp"
#include "commands.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/json_layers.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_schedule.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace program {
namespace {

namespace fs = std::filesystem;

bool is_stream(const std::string& path) { return path == "-"; }

std::string described(const named_file& file) {
    return file.option + " " + (is_stream(file.path) ? "-" : "'" + optpipe::printable(file.path, 400) + "'");
}

/// A path that identifies the file however it is spelled. None for devices, pipes and streams, which can be shared.
std::optional<fs::path> identity_of(const std::string& path) {
    if (path.empty() || is_stream(path)) return std::nullopt;
    std::error_code failure;
    const auto canonical = fs::weakly_canonical(fs::absolute(optpipe::detail::follow_links(path), failure), failure);
    if (failure) return std::nullopt;
    if (fs::exists(canonical, failure) && !fs::is_regular_file(canonical, failure)) return std::nullopt;
    return canonical;
}

bool are_same(const named_file& a, const named_file& b) {
    const auto one = identity_of(a.path);
    return one && one == identity_of(b.path);
}

[[noreturn]] void refuse(const std::string& why) { throw optpipe::error{why}; }

void refuse_shared_streams(const std::vector<named_file>& files, const std::string& stream) {
    const auto is = [](const named_file& file) { return is_stream(file.path); };
    const auto first = std::find_if(files.begin(), files.end(), is);
    if (first == files.end()) return;
    const auto second = std::find_if(first + 1, files.end(), is);
    if (second != files.end()) refuse(first->option + " and " + second->option + " can't both be " + stream);
}

void refuse_same_files(const std::vector<named_file>& inputs, const std::vector<named_file>& files) {
    for (std::size_t i = 0; i < files.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j)
            if (are_same(files[i], files[j]))
                refuse(described(files[i]) + " is the same file as " + described(files[j]));
        for (const auto& input : inputs)
            if (are_same(files[i], input)) refuse(described(files[i]) + " would replace the input " + described(input));
    }
}

/// The format that a file has, and the place where it belongs.
struct file_use {
    std::string_view format;
    std::string_view use;
};
constexpr file_use file_uses[]{
    {"optpipe.problem/", "a problem is named before its plan, which optpipe plan makes"},
    {"optpipe.schedule/", "a plan is named after its problem"},
    {"optpipe.layers/", "optpipe partition divides layers among stages and plans them"},
    {"optpipe.profile/", "optpipe profile reads profiles, after the problem"},
};

/// The error. If the file has another format of ours, it also says where such files belong.
optpipe::input_error explained(const optpipe::input_error& e, const std::string& source) {
    auto violations = e.violations();
    for (auto& v : violations)
        for (const auto& [format, use] : file_uses)
            if (v.place == "format" && v.reason.starts_with("is \"" + std::string{format}))
                v.reason += "; " + std::string{use};
    return {source, std::move(violations)};
}

/// Reads a file with changes by `parse(text, name)`.
template <class Parse> auto read_changed(const problem_file& file, const Parse& parse) {
    auto text = read_input(file.path, optpipe::detail::most_problem_bytes);
    const auto name = name_of(file.path);
    std::string changes;
    for (const auto& change : file.changes)
        changes += " --set " + optpipe::printable(change, 60);
    if (!changes.empty()) text = with_changes(text, name, file.changes);
    try {
        return parse(text, name);
    } catch (const optpipe::input_error& e) {
        throw explained(e, e.source() + (changes.empty() ? "" : " with" + changes));
    }
}

} // namespace

std::string name_of(const std::string& path) {
    return is_stream(path) ? "standard input" : optpipe::printable(path, 400);
}

std::string read_input(const std::string& path, std::size_t max_bytes) {
    return is_stream(path) ? optpipe::detail::read_all(stdin, name_of(path), max_bytes)
                           : optpipe::read_file(path, max_bytes);
}

optpipe::problem read_problem(const problem_file& file) {
    return read_changed(
        file, [](const std::string& text, const std::string& name) { return optpipe::parse_problem(text, name); });
}

optpipe::partition_problem read_layers(const problem_file& file) {
    return read_changed(
        file, [](const std::string& text, const std::string& name) { return optpipe::parse_layers(text, name); });
}

optpipe::schedule_document read_schedule(const std::string& path) {
    try {
        return optpipe::parse_schedule(read_input(path, optpipe::detail::most_schedule_bytes), name_of(path));
    } catch (const optpipe::input_error& e) {
        throw explained(e, e.source());
    }
}

outputs::outputs(const std::vector<named_file>& inputs, std::vector<named_file> files, bool json)
    : inputs_{inputs}, files_{std::move(files)} {
    std::erase_if(files_, [](const named_file& file) { return file.path.empty(); });
    auto streams = files_;
    if (json) streams.push_back({"--json", "-"});
    refuse_shared_streams(inputs, "standard input");
    refuse_shared_streams(streams, "standard output");
    refuse_same_files(inputs, files_);
    for (const auto& file : files_)
        if (!is_stream(file.path)) optpipe::probe_file(file.path);
    takes_stdout_ = std::any_of(streams.begin(), streams.end(), [](const auto& file) { return is_stream(file.path); });
}

bool outputs::has(std::string_view option) const {
    return std::any_of(files_.begin(), files_.end(), [&](const named_file& file) { return file.option == option; });
}

void outputs::write(std::string_view option, const std::function<std::string()>& content) {
    for (const auto& file : files_) {
        if (file.option != option) continue;
        if (is_stream(file.path)) {
            std::cout << content() << std::flush;
            continue;
        }
        try_to_write(file.path, content);
    }
}

void outputs::write_further(const named_file& file, const std::function<std::string()>& content) {
    auto others = inputs_;
    others.insert(others.end(), files_.begin(), files_.end());
    refuse_same_files(others, {file});
    try_to_write(file.path, content);
}

void outputs::try_to_write(const std::string& path, const std::function<std::string()>& content) {
    try {
        optpipe::write_file(path, content());
    } catch (const optpipe::file_error& e) {
        std::cerr << "optpipe: " << e.what() << '\n';
        has_failed_ = true;
    }
}

std::ostream& outputs::text() const { return takes_stdout_ ? std::cerr : std::cout; }

int outputs::status(int status) const { return has_failed_ ? bad_input : status; }

} // namespace program
