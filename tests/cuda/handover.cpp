#include "optpipe/execution/handover.hpp"

#include "cuda/streamed.hpp"
#include "execution/check_handovers.hpp"
#include "execution/handovers.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/threads/control_channel.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;

TEST_CASE("random handovers on streams, with the control channel of threads") {
    constexpr std::size_t ranks = 3;
    constexpr std::size_t wanted = 30;
    const auto plans = handovers::plans(ranks);
    optpipe::cuda::cluster cluster{ranks, {.patience = 60s}};
    optpipe::threads::failure failed;
    optpipe::threads::control_board control{ranks, 60s, failed};
    std::vector<handovers::record> seen(ranks);
    std::vector<std::string> said(ranks);
    std::vector<std::jthread> hosts;
    for (const rank r : optpipe::index_range<rank>{ranks})
        hosts.emplace_back([&, r] {
            try {
                streamed::model model{ranks};
                seen[r.position()] = handovers::run_rank(cluster[r], control[r], model, plans, wanted, 5);
                said[r.position()] = model.complaint();
            } catch (const optpipe::error& e) {
                said[r.position()] = e.what();
            }
        });
    hosts.clear();
    for (const auto& text : said)
        CHECK(text == "");
    handovers::check(seen, wanted);
}

} // namespace
