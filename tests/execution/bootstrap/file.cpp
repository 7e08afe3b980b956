#include "optpipe/execution/bootstrap/file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace bootstrap = optpipe::bootstrap;

namespace {

std::filesystem::path fresh_path(const std::string& name) {
    const auto path = std::filesystem::temp_directory_path() / ("optpipe-" + name + std::to_string(getpid()));
    std::filesystem::remove(path);
    return path;
}

} // namespace

TEST_CASE("what rank 0 has, all ranks get, whoever comes first") {
    const auto path = fresh_path("share");
    std::vector<std::array<std::byte, 128>> seen(4);
    seen[0].fill(std::byte{42});
    std::vector<std::jthread> ranks;
    for (int r = 3; r >= 0; --r)
        ranks.emplace_back([&, r] { bootstrap::share_by_file(seen[static_cast<std::size_t>(r)], path, r, 20s); });
    ranks.clear();
    for (const auto& bytes : seen)
        CHECK(bytes == seen[0]);
    std::filesystem::remove(path);
}

TEST_CASE("a rank that waits in vain says for what") {
    std::array<std::byte, 8> bytes{};
    const auto path = fresh_path("never");
    try {
        bootstrap::share_by_file(bytes, path, 3, 20ms);
        FAIL("nobody wrote it");
    } catch (const optpipe::file_error& e) {
        CHECK(std::string{e.what()}.find("rank 3 waited 20 ms for rank 0") != std::string::npos);
    }
}

TEST_CASE("a place that can't be written is refused, and nothing is left there") {
    std::array<std::byte, 8> bytes{};
    CHECK_THROWS_AS(bootstrap::share_by_file(bytes, "/no/such/folder/id", 0, 1s), optpipe::file_error);
}
