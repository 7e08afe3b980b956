#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "optpipe/io/json_layers.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/model_shapes.hpp"

#include <string>

using namespace program;

namespace {

bool is_close(double a, double b) { return a == doctest::Approx(b).epsilon(1e-9); }

} // namespace

TEST_CASE("new: every published model gives the problem that its shape gives in C++") {
    const workplace place;
    constexpr std::size_t ranks = 4, microbatches = 16;
    for (const auto& [name, shape] : optpipe::model_shapes::all) {
        CAPTURE(name);
        const auto result =
            run({"new", "--model", std::string{name}, "--ranks", "4", "--memory", "20000", "--out", place / "p.json"});
        REQUIRE_MESSAGE(result.status == 0, result);
        const auto p = optpipe::read_problem(place / "p.json");
        auto model = shape;
        model.compute_rate = 400.0;
        model.host_link_rate = 20.0;
        model.rank_link_rate = 50.0;
        namespace storage = optpipe::storage;
        const auto same = optpipe::to_problem(make_problem(
            optpipe::to_any_graph(optpipe::graph<ranks, microbatches>{}), model, optpipe::memory_size{20000},
            storage::keep | storage::offload | storage::selective | storage::full));
        CHECK(p.graph == same.graph);
        for (const auto s : p.graph.all_stages()) {
            CHECK(is_close(p.costs[s].forward.value(), same.costs[s].forward.value()));
            CHECK(is_close(p.costs[s].backward_input.value(), same.costs[s].backward_input.value()));
            CHECK(is_close(p.costs[s].backward_weight.value(), same.costs[s].backward_weight.value()));
            CHECK(is_close(p.costs[s].activation.value(), same.costs[s].activation.value()));
            CHECK(is_close(p.costs[s].weight_stash.value(), same.costs[s].weight_stash.value()));
            REQUIRE(p.storage[s].size() == same.storage[s].size());
            for (std::size_t i = 0; i < p.storage[s].size(); ++i) {
                CHECK(p.storage[s][i].name == same.storage[s][i].name);
                CHECK(is_close(p.storage[s][i].held.value(), same.storage[s][i].held.value()));
            }
            const auto r = p.rank_of(s);
            CHECK(is_close(p.memory_limit[r].value(), 20000.0 - model.static_memory(s, ranks).value()));
        }
        CHECK(is_close(p.p2p(optpipe::rank{0}, optpipe::rank{1}).value(), model.p2p().value()));
    }
}

TEST_CASE("new: a config.json, other placements, and layers") {
    const workplace place;
    const auto config = place.write("config.json", R"({"hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "strange": 1})");
    const auto result = run({"new", "--config", config, "--ranks", "4", "--memory", "80", "--placement", "v",
                             "--sequence", "8192", "--out", place / "p.json"});
    CHECK_MESSAGE(result.status == 0, result);
    CHECK(result.err.find("fields not used: strange") != std::string::npos);
    const auto p = optpipe::read_problem(place / "p.json");
    CHECK(p.graph.stages() == 8);
    CHECK(place / "config.json" == (fs::temp_directory_path() / p.name / "config.json").string()); // the folder's
    const auto layers = run({"new", "--model", "llama3-8b", "--ranks", "4", "--memory", "80", "--layers"});
    CHECK_MESSAGE(layers.status == 0, layers);
    CHECK(optpipe::parse_layers(layers.out, "l").layers.size() == 32);
}

TEST_CASE("new: what can't be is refused in one line") {
    const auto refused = [](std::vector<std::string> more, const std::string& reason) {
        std::vector<std::string> arguments{"new", "--ranks", "4", "--memory", "80"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const auto result = run(arguments);
        CHECK(result.status == 2);
        CHECK_MESSAGE(result.err.find(reason) != std::string::npos, result);
        CHECK(result.out.empty());
    };
    refused({}, "--model or --config");
    refused({"--model", "llama3-8"}, "did you mean llama3-8b?");
    refused({"--model", "llama3-70b"}, "weights, gradients and the optimizer's state take");
    refused({"--model", "llama3-8b", "--placement", "zigzag"}, "--placement: must be linear, loop or v");
    for (const std::string option : {"--compute-rate", "--microbatches", "--sequence", "--expert-parallel"})
        refused({"--model", "llama3-8b", option, "0"}, option + ": must be finite and more than 0, is 0");
    refused({"--model", "llama3-8b", "--microbatches", "100000000"}, "--microbatches: 100000000 times 4 stages");
    refused({"--model", "llama3-8b", "--microbatches", "200000", "--layers"}, "--microbatches: 200000 times 8 stages");
    refused({"--model", "llama3-8b", "--tensor-parallel", "3"}, "--tensor-parallel: must divide the 32 heads");
    refused({"--model", "llama3-8b", "--tensor-parallel", "64"}, "--tensor-parallel: must divide the 32 heads");
    refused({"--model", "llama3-8b", "--expert-parallel", "2"}, "--expert-parallel: the model has no experts");
    refused({"--model", "mixtral-8x7b", "--expert-parallel", "16"}, "--expert-parallel: must divide the 8 experts");
    refused({"--model", "llama3-8b", "--memory", "nan"}, "--memory");
    refused({"--config", "missing.json"}, "missing.json");
}

#endif
