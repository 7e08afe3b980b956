#pragma once

#include <optpipe/io/schedule_document.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

/// The files of a command, where "-" is standard input or standard output.
namespace program {

/// As messages name it.
std::string name_of(const std::string& path);

optpipe::problem read_problem(const std::string& path);
optpipe::partition_problem read_layers(const std::string& path);
optpipe::schedule_document read_schedule(const std::string& path);
std::string read_input(const std::string& path, std::size_t max_bytes);

/// The file that an option, or an argument, names; none if its path is empty.
struct named_file {
    std::string option;
    std::string path;
};

/// What a command writes. All of it is checked before the command begins, so that no work is lost: each can be written,
/// no two are the same file, and none is an input. Throws `optpipe::error` where that isn't so.
class outputs {
public:
    /// `json`: whether the command itself prints JSON on standard output.
    outputs(const std::vector<named_file>& inputs, std::vector<named_file> files, bool json = false);

    [[nodiscard]] bool has(std::string_view option) const;
    /// Writes what `content()` gives, if the option was given. A failure is told on standard error, and the next file
    /// is written all the same.
    void write(std::string_view option, const std::function<std::string()>& content);
    /// Where sentences go: standard output, or standard error if a file goes to standard output.
    [[nodiscard]] std::ostream& text() const;
    /// The status of a command that would end with `status`: bad input if a file couldn't be written.
    [[nodiscard]] int status(int status) const;

private:
    std::vector<named_file> files_;
    bool takes_stdout_ = false;
    bool has_failed_ = false;
};

} // namespace program
