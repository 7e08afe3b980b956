#include "optpipe/io/file.hpp"

#include "io/sample.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

using namespace optpipe;
namespace fs = std::filesystem;

namespace {

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

    [[nodiscard]] std::string operator/(const char* name) const { return (path_ / name).string(); }
    [[nodiscard]] std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator{path_}, fs::directory_iterator{}));
    }

private:
    fs::path path_;
};

std::string content_of(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

template <class Action> std::string failure_of(Action action) {
    try {
        action();
    } catch (const file_error& failure) {
        return failure.what();
    }
    return "no failure";
}

/// Limits the size of files, as on a full disk.
class size_limit {
public:
    explicit size_limit(rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
    }
    size_limit(const size_limit&) = delete;
    size_limit& operator=(const size_limit&) = delete;
    ~size_limit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

private:
    rlimit before_{};
    void (*handler_)(int) = nullptr;
};

} // namespace

TEST_CASE("what is written is read") {
    const workplace here;
    const std::string bytes("line\n\0\xff end", 11);
    for (const auto& content : {std::string{}, bytes, std::string(300'000, 'x')}) {
        write_file(here / "a", content);
        CHECK(content_of(here / "a") == content);
        CHECK(read_file(here / "a") == content);
        CHECK(here.entries() == 1);
    }
}

TEST_CASE("a file that can't be read says why") {
    const workplace here;
    CHECK(failure_of([&] { (void)read_file(here / "none"); }) ==
          "cannot read '" + (here / "none") + "': No such file or directory");
    CHECK(sample::contains(failure_of([&] { (void)read_file(here / "."); }), "Is a directory"));
    write_file(here / "a", "12345");
    CHECK(read_file(here / "a", 5) == "12345");
    CHECK(sample::contains(failure_of([&] { (void)read_file(here / "a", 4); }), "larger than 4 bytes"));
    CHECK(sample::contains(failure_of([&] { (void)read_file("/dev/zero", std::size_t{1} << 20U); }),
                           "larger than 1 MiB"));
}

TEST_CASE("a file that can't be written says why, and leaves nothing behind") {
    const workplace here;
    CHECK(sample::contains(failure_of([&] { write_file(here / "none/a", "x"); }), "none/a': no file can be created"));
    CHECK(sample::contains(failure_of([&] { write_file(here / ".", "x"); }), "Is a directory"));
    CHECK(sample::contains(failure_of([&] { write_file("", "x"); }), "no name of a file"));
    CHECK(sample::contains(failure_of([&] { write_file(here / "b/", "x"); }), "no name of a file"));
    CHECK(sample::contains(failure_of([&] { write_file("/dev/full", "x"); }), "'/dev/full': No space left"));
    CHECK(sample::contains(failure_of([&] { write_file(here / "\n", std::string{}), write_file(here / "\n/a", "x"); }),
                           "\\x0a/a': Not a directory"));
    CHECK(here.entries() == 1);
}

TEST_CASE("a probe says what writing would say, and changes nothing") {
    const workplace here;
    write_file(here / "a", "before");
    fs::create_directory(here / "d");
    for (const auto& path : {here / "none/a", here / ".", std::string{}, here / "b/", here / "a/b", here / "d",
                             here / std::string(300, 'x').c_str()}) {
        const auto probed = failure_of([&] { probe_file(path); });
        CHECK(probed == failure_of([&] { write_file(path, "x"); }));
        CHECK(probed != "no failure");
    }
    probe_file(here / "a");
    probe_file(here / "new");
    probe_file("/dev/null");
    CHECK(content_of(here / "a") == "before");
    CHECK(here.entries() == 2);
    REQUIRE(::mkfifo((here / "pipe").c_str(), 0600) == 0);
    probe_file(here / "pipe"); // if it were opened, it would wait for a reader
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    probe_file("/dev/fd/" + std::to_string(ends[1]));
    CHECK(sample::contains(failure_of([&] { probe_file("/dev/fd/" + std::to_string(ends[0])); }), "Bad file"));
    ::close(ends[0]);
    ::close(ends[1]);
    CHECK(sample::contains(failure_of([&] { probe_file("/dev/fd/999999"); }), "cannot write"));
    if (::geteuid() == 0) return; // root may write everything
    fs::permissions(here / "a", fs::perms::owner_read);
    CHECK(sample::contains(failure_of([&] { probe_file(here / "a"); }), "Permission denied"));
}

TEST_CASE("an existing file stays as it was where writing fails") {
    const workplace here;
    write_file(here / "a", "before");
    {
        const size_limit full{1000};
        CHECK(sample::contains(failure_of([&] { write_file(here / "a", std::string(5000, 'x')); }), "File too large"));
        CHECK(sample::contains(failure_of([&] { write_file(here / "b", std::string(5000, 'x')); }), "File too large"));
    }
    CHECK(content_of(here / "a") == "before");
    CHECK(here.entries() == 1);
}

TEST_CASE("what may not be written is not replaced") {
    if (::geteuid() == 0) return; // root may
    const workplace here;
    write_file(here / "a", "before");
    fs::permissions(here / "a", fs::perms::owner_read);
    CHECK(sample::contains(failure_of([&] { write_file(here / "a", "x"); }), "Permission denied"));
    fs::create_directory(here / "d");
    fs::permissions(here / "d", fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(sample::contains(failure_of([&] { write_file(here / "d/a", "x"); }), "Permission denied"));
    CHECK(content_of(here / "a") == "before");
}

TEST_CASE("a file keeps its permissions, a new one has those of the process") {
    const workplace here;
    const auto mode = [&](const char* name) {
        struct stat status {};
        REQUIRE(::stat((here / name).c_str(), &status) == 0);
        return status.st_mode & 0777U;
    };
    const auto before = ::umask(027);
    write_file(here / "a", "x");
    ::umask(before);
    CHECK(mode("a") == 0640);
    ::chmod((here / "a").c_str(), 0604);
    write_file(here / "a", "y");
    CHECK(mode("a") == 0604);
}

TEST_CASE("symbolic links are followed") {
    const workplace here;
    fs::create_directory(here / "d");
    fs::create_symlink("d/real", here / "link");
    fs::create_symlink(here / "link", here / "second");
    for (const char* text : {"new", "again"}) {
        write_file(here / "second", text);
        CHECK(fs::is_symlink(here / "second"));
        CHECK(fs::is_symlink(here / "link"));
        CHECK(content_of(here / "d/real") == text);
    }
    fs::create_symlink("loop", here / "loop");
    CHECK(sample::contains(failure_of([&] { write_file(here / "loop", "x"); }), "Too many levels"));
}

TEST_CASE("pipes and inherited descriptors are written, not replaced") {
    const workplace here;
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const auto name = std::to_string(ends[1]);
    write_file("/dev/fd/" + name, "one ");
    write_file("/proc/self/fd/" + name, "two");
    fs::create_symlink("/proc/self/fd/" + name, here / "out");
    write_file(here / "out", " three");
    ::close(ends[1]);
    CHECK(read_file("/dev/fd/" + std::to_string(ends[0])) == "one two three");
    ::close(ends[0]);
    CHECK(here.entries() == 1);
}

TEST_CASE("a redirected output goes on where it stands") {
    const workplace here;
    const int redirected = ::open((here / "log").c_str(), O_WRONLY | O_CREAT, 0666);
    REQUIRE(::write(redirected, "one ", 4) == 4);
    write_file("/dev/fd/" + std::to_string(redirected), "two ");
    REQUIRE(::write(redirected, "three", 5) == 5);
    ::close(redirected);
    CHECK(content_of(here / "log") == "one two three");
}

TEST_CASE("what killed processes have left in a folder goes with the next file that is written there") {
    const workplace here;
    const auto dead = [] {
        const auto child = ::fork();
        if (child == 0) ::_exit(0);
        ::waitpid(child, nullptr, 0);
        return std::to_string(child);
    }();
    const auto left = ".optpipe-" + dead + "-0.tmp";
    const auto alive = ".optpipe-" + std::to_string(::getppid()) + "-0.tmp";
    for (const auto& name : {left, alive, std::string{".optpipe-" + dead + "-0.txt"}, std::string{".optpipe--0.tmp"}})
        std::ofstream{here / name.c_str()} << "half";
    write_file(here / "a", "x");
    CHECK_FALSE(fs::exists(here / left.c_str()));
    CHECK(fs::exists(here / alive.c_str()));
    CHECK(here.entries() == 4);
    // A temporary file of another machine looks abandoned from here, but its writer holds the lock.
    std::ofstream{here / left.c_str()} << "half";
    const int held = ::open((here / left.c_str()).c_str(), O_WRONLY);
    REQUIRE(::flock(held, LOCK_EX) == 0);
    write_file(here / "a", "y");
    CHECK(fs::exists(here / left.c_str()));
    ::close(held);
    write_file(here / "a", "z");
    CHECK_FALSE(fs::exists(here / left.c_str()));
}
