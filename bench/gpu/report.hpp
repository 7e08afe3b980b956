#pragma once

#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gpu_bench {

/// Text or a number; an empty text for a missing value.
using cell = std::variant<std::string, double>;

/// Tables, written twice: PREFIX.md, and PREFIX.jsonl with an object per row. Each row is in the files when `row`
/// returns, so a later failure doesn't lose it.
class report {
public:
    explicit report(const std::string& prefix) : markdown_{prefix + ".md"}, json_{prefix + ".jsonl"} {
        if (!markdown_ || !json_) throw optpipe::error{"can't write " + prefix + ".md and .jsonl"};
    }

    void table(std::string name, std::vector<std::string> columns) {
        name_ = std::move(name);
        columns_ = std::move(columns);
        line("\n**" + name_ + "**\n");
        std::string titles = "|", rule = "|";
        for (const auto& column : columns_) {
            titles += " " + column + " |";
            rule += " --- |";
        }
        line(titles);
        line(rule);
    }
    void row(const std::vector<cell>& cells) {
        std::string object = "{\"table\": " + optpipe::json_quoted(name_);
        std::string text = "|";
        for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
            object += ", " + optpipe::json_quoted(columns_[i]) + ": " + json(cells[i]);
            text += " " + plain(cells[i]) + " |";
        }
        json_ << object << "}" << std::endl;
        line(text);
    }
    /// A sentence between tables.
    void note(const std::string& sentence) {
        json_ << "{\"note\": " << optpipe::json_quoted(sentence) << "}" << std::endl;
        line("\n" + sentence);
    }

private:
    void line(const std::string& text) {
        markdown_ << text << std::endl;
        std::cout << text << std::endl;
    }
    static std::string json(const cell& c) {
        const auto* number = std::get_if<double>(&c);
        if (!number) return optpipe::json_quoted(std::get<std::string>(c));
        return std::isfinite(*number) ? optpipe::exact_number(*number) : "null";
    }
    static std::string plain(const cell& c) {
        if (const auto* number = std::get_if<double>(&c)) return optpipe::format_number(*number, 4);
        std::string text = std::get<std::string>(c);
        for (char& each : text)
            if (each == '|' || each == '\n') each = ' ';
        return text;
    }

    std::ofstream markdown_, json_;
    std::string name_;
    std::vector<std::string> columns_;
};

} // namespace gpu_bench
