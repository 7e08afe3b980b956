#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" char** environ; // NOLINT(readability-redundant-declaration): not every <unistd.h> declares it

/// The program from its users' point of view: a child process, its two streams, its exit status, and its files.
namespace program {

namespace fs = std::filesystem;

inline std::string content_of(const fs::path& path) {
    std::ifstream in{path, std::ios::binary};
    std::ostringstream text;
    text << in.rdbuf();
    return std::move(text).str();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The words of the first line that begins with `name` and a space, without the name; none if there is no such line.
inline std::vector<std::string> words_after(const std::string& name, const std::string& text) {
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(name + " ")) continue;
        std::istringstream words{line.substr(name.size())};
        return {std::istream_iterator<std::string>{words}, {}};
    }
    return {};
}

/// A separate directory, removed at the end.
class workplace {
public:
    workplace() {
        std::string name = (fs::temp_directory_path() / "optpipe-test-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    workplace(const workplace&) = delete;
    workplace& operator=(const workplace&) = delete;
    ~workplace() { fs::remove_all(path_); }

    [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream{path_ / name, std::ios::binary} << content;
        return *this / name;
    }
    [[nodiscard]] std::string read(const std::string& name) const { return content_of(path_ / name); }
    [[nodiscard]] bool has(const std::string& name) const { return fs::exists(path_ / name); }
    /// Names and contents of all its files.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const {
        std::vector<std::pair<std::string, std::string>> found;
        for (const auto& entry : fs::directory_iterator{path_})
            found.emplace_back(entry.path().filename(), entry.is_regular_file() ? content_of(entry.path()) : "");
        std::sort(found.begin(), found.end());
        return found;
    }

private:
    fs::path path_;
};

struct finished {
    /// The exit status; 128 plus the signal for a child that a signal ended.
    int status = 0;
    std::string out;
    std::string err;

    /// Whether it was refused with one line that contains all of these.
    [[nodiscard]] bool says(const std::vector<std::string>& parts) const {
        const bool one_line = !err.empty() && std::count(err.begin(), err.end(), '\n') == 1 && err.back() == '\n';
        const auto is_there = [&](const std::string& part) { return contains(err, part); };
        return one_line && err.starts_with("optpipe: ") && std::all_of(parts.begin(), parts.end(), is_there);
    }
};

inline std::ostream& operator<<(std::ostream& out, const finished& result) {
    return out << "exit status " << result.status << "\n--- out\n" << result.out << "--- err\n" << result.err;
}

inline std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (auto& text : texts)
        pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

/// `out`: the path of its standard output; a file of `run` if empty. `in`: the path of its standard input.
inline finished run(std::vector<std::string> arguments, const std::string& out = "",
                    const std::string& in = "/dev/null") {
    const workplace streams;
    const auto out_path = out.empty() ? streams / "out" : out;
    const auto err_path = streams / "err";
    arguments.insert(arguments.begin(), OPTPIPE_PROGRAM);
    auto pointers = pointers_to(arguments);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path.c_str(), flags, 0600);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_path.c_str(), flags, 0600);
    pid_t child = 0;
    const int spawned = ::posix_spawn(&child, OPTPIPE_PROGRAM, &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(spawned == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            out.empty() ? streams.read("out") : std::string{}, streams.read("err")};
}

/// A problem from the sources.
inline std::string example(const std::string& name) { return OPTPIPE_SOURCE_DIR "/examples/data/" + name; }
inline std::string data(const std::string& name) { return OPTPIPE_SOURCE_DIR "/tests/data/" + name; }

} // namespace program
