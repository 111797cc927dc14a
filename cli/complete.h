// What may stand next on a command line, for the shells' completion (packaging/completions).
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

namespace tidemark::cli {

// `words` are the words after "tidemark", the last one being typed (perhaps ""). Prints a candidate
// per line, with a tab and a description where there is one; nothing where a path may stand.
void print_completions(const CLI::App& app, std::span<const std::string_view> words);

}  // namespace tidemark::cli
