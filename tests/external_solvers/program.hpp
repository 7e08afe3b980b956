#pragma once

#include "optpipe/core/error.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

extern "C" char** environ; // NOLINT(readability-redundant-declaration): not every <unistd.h> declares it

/// Runs other solvers as programs.
namespace optpipe::milp::external {

/// The path of a program in one of the folders of PATH; empty if none has it.
[[nodiscard]] inline std::optional<std::string> find_program(std::string_view name) {
    const char* path = std::getenv("PATH");
    std::istringstream folders{path ? path : ""};
    for (std::string folder; std::getline(folders, folder, ':');) {
        auto candidate = (folder.empty() ? "." : folder) + '/' + std::string{name};
        if (::access(candidate.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(candidate)) return candidate;
    }
    return std::nullopt;
}

/// A new temporary folder; the destructor removes it with its contents.
class scratch_folder {
public:
    scratch_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "optpipe-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr)
            throw file_error{"cannot create a folder for temporary files: " + std::generic_category().message(errno)};
        path_ = name;
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] std::string operator/(std::string_view name) const { return (path_ / name).string(); }
    void write(std::string_view name, std::string_view content) const {
        std::ofstream file{*this / name, std::ios::binary};
        if (!(file << content << std::flush)) throw file_error{"cannot write '" + *this / name + "'"};
    }
    /// Empty if there is no such file.
    [[nodiscard]] std::string read(std::string_view name) const {
        std::ostringstream text;
        text << std::ifstream{*this / name, std::ios::binary}.rdbuf();
        return std::move(text).str();
    }

private:
    std::filesystem::path path_;
};

/// A running program; the destructor kills it.
class child_process {
public:
    /// Starts the program, whose path is the first argument. Its output goes to a file.
    child_process(std::vector<std::string> arguments, const std::string& output) {
        std::vector<char*> pointers;
        for (auto& argument : arguments)
            pointers.push_back(argument.data());
        pointers.push_back(nullptr);
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC) != 0) throw error{"cannot make a pipe: " + std::generic_category().message(errno)};
        life_ = ends[0];
        const int failed = spawn(pointers, output, ends[1]);
        ::close(ends[1]);
        if (failed == 0) return;
        ::close(life_);
        throw error{"cannot run '" + arguments.front() + "': " + std::generic_category().message(failed)};
    }
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;
    ~child_process() {
        if (is_running_) {
            ::kill(id_, SIGKILL);
            ::waitpid(id_, nullptr, 0);
        }
        ::close(life_);
    }

    /// Waits for the program to end. Returns false at the limit, or on a stop request.
    bool wait(std::chrono::duration<double> limit, const std::stop_token& stop) {
        using clock = std::chrono::steady_clock;
        constexpr int look_every_ms = 50; // between checks for a stop request
        const auto start = clock::now();
        for (pollfd life{life_, POLLIN, 0}; ::poll(&life, 1, look_every_ms) <= 0;)
            if (clock::now() - start >= limit || stop.stop_requested()) return false;
        ::waitpid(id_, nullptr, 0);
        is_running_ = false;
        return true;
    }

private:
    /// The child holds one end of a pipe, which is closed when the child ends.
    int spawn(std::vector<char*>& arguments, const std::string& output, int life) {
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        constexpr mode_t owner_only = 0600;
        constexpr int first_free = 3;
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                           owner_only);
        ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, life, first_free);
        const int failed = ::posix_spawn(&id_, arguments.front(), &actions, nullptr, arguments.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        return failed;
    }

    pid_t id_ = 0;
    int life_ = -1;
    bool is_running_ = true;
};

} // namespace optpipe::milp::external
