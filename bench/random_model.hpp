// Problems of published models, with random ranks, memory and links. The problem files have no such problems.
#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/pipeline/decoder.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/pipeline/model_shapes.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/pipeline/storage_policy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace bench {

using namespace optpipe;

/// A model of `model_shapes` on 4 to 16 ranks with one stage each or, one in three, two in a v. It has two to four
/// times as many microbatches as ranks, and all usual storage options. The memory is 0.2 to 0.8 of that of one
/// microbatch on all ranks, which the first rank holds under 1F1B. Every host link belongs to one rank or is shared by
/// two, with one or two copy engines.
class random_model {
public:
    explicit random_model(std::uint64_t seed) : random_{seed}, seed_{seed} {}

    problem make() {
        static constexpr std::array<std::pair<const char*, decoder>, 8> models{{
            {"llama2-7b", model_shapes::llama2_7b},
            {"llama2-13b", model_shapes::llama2_13b},
            {"llama3-8b", model_shapes::llama3_8b},
            {"llama3-70b", model_shapes::llama3_70b},
            {"qwen3-32b", model_shapes::qwen3_32b},
            {"qwen3-235b", model_shapes::qwen3_235b_a22b},
            {"mixtral-8x7b", model_shapes::mixtral_8x7b},
            {"deepseek-v3", model_shapes::deepseek_v3},
        }};
        const auto& [name, shape] = models[random_.below(models.size())];
        auto model = shape;
        const bool is_v = random_.below(3) == 0;
        auto ranks = one_of<std::size_t>({4, 8, 8, 16});
        while (model.layers < ranks * (is_v ? 2 : 1))
            ranks /= 2;
        const auto microbatches = ranks * random_.between(2, 4);
        model.sequence = one_of<std::size_t>({4096, 8192, 16384});
        model.tensor_parallel = one_of<std::size_t>({1, 4, 8});
        model.compute_rate = one_of({200.0, 400.0});
        model.host_link_rate = one_of({10.0, 20.0, 20.0, 40.0});
        model.rank_link_rate = one_of({20.0, 100.0});
        model.expert_link_rate = 100.0;
        const auto percent = one_of<std::size_t>({20, 30, 40, 60, 80});
        const auto limit = static_cast<double>(percent) / 100.0 * model.costs(stage{0}, 1).activation;

        auto p = is_v ? with(graph<dynamic, dynamic, placement::v>{ranks, microbatches}, model, limit)
                      : with(graph<dynamic, dynamic>{ranks, microbatches}, model, limit);
        if (random_.chance(50))
            for (std::uint32_t r = 1; r < ranks; r += 2)
                p.transfer.share_link(rank{r - 1}, rank{r});
        p.transfer.engines = random_.chance(50) ? 2 : 1;
        p.name = std::string{name} + "-" + std::to_string(seed_) + "-p" + std::to_string(ranks) + (is_v ? "-v" : "") +
                 "-m" + std::to_string(microbatches) + "-mem" + std::to_string(percent);
        return p;
    }

private:
    template <class T, std::size_t N> T one_of(const T (&from)[N]) { return from[random_.below(N)]; }

    template <class Graph> static problem with(const Graph& g, const decoder& model, memory_size limit) {
        return to_problem(
            make_problem(g, model, limit, storage::keep | storage::offload | storage::selective | storage::full));
    }

    random_numbers random_;
    std::uint64_t seed_;
};

} // namespace bench
