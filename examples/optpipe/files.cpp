#include "files.hpp"

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

} // namespace

std::string name_of(const std::string& path) {
    return is_stream(path) ? "standard input" : optpipe::printable(path, 400);
}

std::string read_input(const std::string& path, std::size_t max_bytes) {
    return is_stream(path) ? optpipe::detail::read_all(stdin, name_of(path), max_bytes)
                           : optpipe::read_file(path, max_bytes);
}

optpipe::problem read_problem(const std::string& path) {
    return optpipe::parse_problem(read_input(path, optpipe::detail::most_problem_bytes), name_of(path));
}

optpipe::partition_problem read_layers(const std::string& path) {
    return optpipe::parse_layers(read_input(path, optpipe::detail::most_problem_bytes), name_of(path));
}

optpipe::schedule_document read_schedule(const std::string& path) {
    return optpipe::parse_schedule(read_input(path, optpipe::detail::most_schedule_bytes), name_of(path));
}

outputs::outputs(const std::vector<named_file>& inputs, std::vector<named_file> files, bool json)
    : files_{std::move(files)} {
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
        try {
            optpipe::write_file(file.path, content());
        } catch (const optpipe::file_error& e) {
            std::cerr << "optpipe: " << e.what() << '\n';
            has_failed_ = true;
        }
    }
}

std::ostream& outputs::text() const { return takes_stdout_ ? std::cerr : std::cout; }

int outputs::status(int status) const { return has_failed_ ? bad_input : status; }

} // namespace program
