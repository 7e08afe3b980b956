#pragma once

#include "commands.hpp"
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

/// The name of the file in messages.
std::string name_of(const std::string& path);

/// Reads the file, and changes its fields as requested.
optpipe::problem read_problem(const problem_file& file);
optpipe::partition_problem read_layers(const problem_file& file);
optpipe::schedule_document read_schedule(const std::string& path);
std::string read_input(const std::string& path, std::size_t max_bytes);

/// The file named by an option or an argument; none if its path is empty.
struct named_file {
    std::string option;
    std::string path;
};

/// The output files of a command. The files are checked before the command starts, so that no work is lost: each must
/// be writable, no two may be the same file, and none may be an input. Throws `optpipe::error` otherwise.
class outputs {
public:
    /// `json` tells whether the command itself prints JSON on standard output.
    outputs(const std::vector<named_file>& inputs, std::vector<named_file> files, bool json = false);

    [[nodiscard]] bool has(std::string_view option) const;
    /// Writes `content()` if the option was given. A failure is reported on standard error, and later files are still
    /// written.
    void write(std::string_view option, const std::function<std::string()>& content);
    /// Writes a further file of an option that names several, such as one per step. The file isn't checked before the
    /// command starts, but here: an input or another output is not replaced.
    void write_further(const named_file& file, const std::function<std::string()>& content);
    /// The stream for messages: standard output, or standard error if a file goes to standard output.
    [[nodiscard]] std::ostream& text() const;
    /// `status`, or the status for bad input if a file couldn't be written.
    [[nodiscard]] int status(int status) const;

private:
    void try_to_write(const std::string& path, const std::function<std::string()>& content);

    std::vector<named_file> inputs_;
    std::vector<named_file> files_;
    bool takes_stdout_ = false;
    bool has_failed_ = false;
};

} // namespace program
