#pragma once

#include "fuzz/iterations.hpp"
#include "oracle/random_problem.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// Mutates texts at random, reproducibly on every platform. Needs no fuzzing engine.
namespace fuzz {

inline std::string content_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream{path}.rdbuf();
    return std::move(text).str();
}

/// Every problem of the sources.
inline std::vector<std::string> problem_texts() {
    std::vector<std::filesystem::path> paths;
    for (const auto* folder : {OPTPIPE_SOURCE_DIR "/examples/data", OPTPIPE_SOURCE_DIR "/tests/data"})
        for (const auto& entry : std::filesystem::directory_iterator{folder})
            if (entry.path().extension() == ".json" && entry.path().stem().extension() != ".layers")
                paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> texts;
    for (const auto& path : paths)
        texts.push_back(content_of(path));
    return texts;
}

class mutator {
public:
    using json = nlohmann::json;
    using random_numbers = oracle::random_numbers;

    explicit mutator(std::uint64_t seed) : random_{seed} {}

    /// Makes one to three changes, most of them to the tree, so that many results are JSON of almost the right form.
    std::string mutate(std::string text) {
        for (auto changes = random_.chance(60) ? 1 : random_.between(2, 3); changes > 0; --changes)
            text = random_.chance(65) ? change_tree(text) : change_text(std::move(text));
        return text;
    }

    random_numbers& random() { return random_; }

private:
    template <class List> const auto& one_of(const List& list) { return list[random_.below(std::size(list))]; }

    static constexpr const char* numbers_[] = {"-1",         "0",
                                               "-0.0",       "1e308",
                                               "-1e308",     "1e-308",
                                               "5e-324",     "1e999",
                                               "1e-999",     "4294967295",
                                               "4294967296", "18446744073709551616",
                                               "1e15",       "1.5",
                                               "2147483648", "1e-7",
                                               "NaN",        "-Infinity",
                                               "010",        "1e",
                                               "0x10",       "123456789012345678901234567890",
                                               "3",          "16777217"};
    static constexpr double extremes_[] = {-1.0,   0.0,    1e308,  1.7976931348623157e308,
                                           -1e308, 1e-308, 5e-324, 1e15,
                                           1e-7,   1e7,    0.5,    1.5,
                                           2.0,    3.0,    4.0,    8.0,
                                           1e100,  1e-100, 1e12,   1e5};

    // The text, as bytes.

    std::string change_text(std::string text) {
        if (text.empty()) return "{";
        const auto at = random_.below(text.size());
        const auto length = std::min(text.size() - at, random_.between(1, random_.chance(80) ? 8 : 400));
        switch (random_.below(7)) {
        case 0: text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << random_.below(8))); break;
        case 1: text[at] = static_cast<char>(random_.below(256)); break;
        case 2: text.erase(at, length); break;
        case 3: text.insert(random_.below(text.size()), text.substr(at, length)); break;
        case 4: text.resize(at); break;
        default: replace_number(text, at); break;
        }
        return text;
    }
    void replace_number(std::string& text, std::size_t from) {
        constexpr auto digits = "0123456789";
        const auto start = text.find_first_of(digits, from);
        if (start == std::string::npos) return;
        const auto end = text.find_first_not_of("0123456789.eE+-", start);
        text.replace(start, (end == std::string::npos ? text.size() : end) - start, one_of(numbers_));
    }

    // The tree.

    std::string change_tree(const std::string& text) {
        auto root = json::parse(text, nullptr, false);
        if (root.is_discarded()) return change_text(text);
        std::vector<json*> nodes;
        collect(root, nodes);
        change(*one_of(nodes), root);
        return root.dump(1);
    }
    static void collect(json& node, std::vector<json*>& nodes) {
        nodes.push_back(&node);
        if (node.is_structured())
            for (auto& child : node)
                collect(child, nodes);
    }
    void change(json& node, const json& root) {
        if (node.is_structured() && !node.empty() && random_.chance(70)) return change_children(node);
        if (node.is_number() && random_.chance(75)) return change_number(node);
        node = another_type(root);
    }
    void change_number(json& node) {
        switch (random_.below(4)) {
        case 0: node = extremes_[random_.below(std::size(extremes_))] * node.get<double>(); break;
        case 1: node = static_cast<std::int64_t>(random_.below(9)) - 1; break;
        default: node = extremes_[random_.below(std::size(extremes_))]; break;
        }
    }
    void change_children(json& node) {
        auto child = node.begin();
        std::advance(child, static_cast<std::ptrdiff_t>(random_.below(node.size())));
        if (node.is_array()) {
            auto copy = *child;
            switch (random_.below(3)) {
            case 0: node.erase(child); break;
            case 1: node.push_back(std::move(copy)); break;
            default: std::swap(*child, node.front()); break;
            }
        } else if (random_.chance(60)) {
            node.erase(child);
        } else {
            auto copy = *child;
            node[random_.chance(50) ? "more" : node.begin().key()] = std::move(copy);
        }
    }
    json another_type(const json& root) {
        switch (random_.below(9)) {
        case 0: return nullptr;
        case 1: return true;
        case 2: return "";
        case 3: return "text \xc3\xa4 \n";
        case 4: return json::array();
        case 5: return json::object();
        case 6: return json::array({json::array({1, 2}), nullptr});
        case 7: return root.size() < 40 ? root : json{};
        default: return extremes_[random_.below(std::size(extremes_))];
        }
    }

    random_numbers random_;
};

} // namespace fuzz
