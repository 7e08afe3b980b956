#include "optpipe/io/suggestion.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace optpipe;

TEST_CASE("the distance counts letters that are changed, added, left out, or exchanged") {
    CHECK(detail::edit_distance("", "") == 0);
    CHECK(detail::edit_distance("rank", "rank") == 0);
    CHECK(detail::edit_distance("Rank", "rANK") == 0);
    CHECK(detail::edit_distance("", "rank") == 4);
    CHECK(detail::edit_distance("ranks", "rank") == 1);
    CHECK(detail::edit_distance("tank", "rank") == 1);
    CHECK(detail::edit_distance("arnk", "rank") == 1);
    CHECK(detail::edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest name is suggested, if one is near") {
    const std::vector<std::string> names{"rank", "ranks", "memory_limit", "host_memory_limit", "p2p"};
    CHECK(nearest_name("rnaks", names) == "ranks");
    CHECK(nearest_name("memorylimits", names) == "memory_limit");
    CHECK(nearest_name("host_mem_limit", names) == "host_memory_limit");
    CHECK(nearest_name("q2p", names) == "p2p");
    CHECK_FALSE(nearest_name("", names));
    CHECK_FALSE(nearest_name("a", names));
    CHECK_FALSE(nearest_name("temperature", names));
    CHECK_FALSE(nearest_name(std::string(1000000, 'r'), names));
    CHECK_FALSE(nearest_name("rank", std::vector<std::string>{}));
    CHECK(suggestion("rnak", names) == "; did you mean rank?");
    CHECK(suggestion("temperature", names).empty());
}
