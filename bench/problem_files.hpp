#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

/// Common parts of the benchmarks on problems: files, known objectives, and the command line.
namespace bench {

inline constexpr std::string_view test_problems = OPTPIPE_SOURCE_DIR "/tests/data/problems";
inline constexpr std::string_view known_objectives = OPTPIPE_SOURCE_DIR "/tests/data/reference_objectives.csv";

/// All problems of folders, and single files; only those whose names contain one of the texts, if there are any.
inline std::vector<std::filesystem::path> problem_files(const std::vector<std::string>& places,
                                                        const std::vector<std::string>& only = {}) {
    std::vector<std::filesystem::path> files;
    for (const auto& place : places) {
        if (!std::filesystem::is_directory(place)) {
            files.emplace_back(place);
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator{place})
            if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::erase_if(files, [&](const auto& file) {
        const auto name = file.filename().string();
        const auto holds = [&](const std::string& text) { return name.find(text) != std::string::npos; };
        return !only.empty() && std::none_of(only.begin(), only.end(), holds);
    });
    return files;
}

/// The known objectives of a problem: the best published schedule, and the best of all.
struct known_objective {
    std::string method{};
    double published = 0.0;
    std::optional<double> best{};
};

/// A table with the columns problem, busy, published method, published, best known; by problem.
inline std::map<std::string, known_objective> read_known_objectives(const std::string& path) {
    std::map<std::string, known_objective> known;
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields{line};
        std::string name, busy, method, published, best;
        for (auto* field : {&name, &busy, &method, &published, &best})
            std::getline(fields, *field, ',');
        auto& entry = known[name];
        entry = {method, std::stod(published), {}};
        if (!best.empty()) entry.best = std::stod(best);
    }
    return known;
}

/// Calls the function of each option on the command line with the word after it, and returns the words that aren't
/// options. Ends the program if an option is unknown or lacks its value.
inline std::vector<std::string>
read_options(int count, char** arguments, std::string_view program,
             const std::map<std::string, std::function<void(const std::string&)>>& options,
             const std::map<std::string, std::function<void()>>& flags = {}) {
    const auto refuse = [&](const std::string& what) {
        std::cerr << "bench_" << program << ": " << what << "; see the head of bench/" << program << ".cpp\n";
        std::exit(2);
    };
    std::vector<std::string> places;
    for (int i = 1; i < count; ++i) {
        const std::string word = arguments[i];
        const auto option = options.find(word);
        if (const auto flag = flags.find(word); flag != flags.end()) {
            flag->second();
        } else if (option == options.end()) {
            if (word.starts_with('-')) refuse("there is no option " + word);
            places.push_back(word);
        } else if (++i == count) {
            refuse(word + " needs a value");
        } else {
            option->second(arguments[i]);
        }
    }
    return places;
}

} // namespace bench
