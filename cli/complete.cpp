#include "cli/complete.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/rules.h"

namespace tidemark::cli {

namespace {

const CLI::App* command_named(const CLI::App& app, std::string_view name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// The words between the braces of "TEXT:{csv,sqlite}", as CLI::IsMember describes itself.
void print_choices(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return;
  for (const std::string& choice :
       CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',')) {
    fmt::print("{}\n", choice);
  }
}

// A list with commas: what is there stays.
void print_findings(std::string_view typed) {
  const std::string_view listed = typed.substr(0, typed.rfind(',') + 1);
  fmt::print("{}any\n", listed);
  for (const std::string& id : finding_ids()) fmt::print("{}{}\n", listed, id);
}

}  // namespace

void print_completions(const CLI::App& app, std::span<const std::string_view> words) {
  if (words.size() < 2) {
    for (const CLI::App* command : app.get_subcommands({})) {
      fmt::print("{}\t{}\n", command->get_name(), command->get_description());
    }
    return;
  }
  const CLI::App* command = command_named(app, words.front());
  // After -- stand the words of the recorded program.
  const auto typed = words.first(words.size() - 1);
  if (command == nullptr || std::ranges::find(typed, "--") != typed.end()) return;
  const std::string before(typed.back());
  if (before == "--fail-on") return print_findings(words.back());
  for (const CLI::Option* option : command->get_options()) {
    if (option->check_name(before) && option->get_items_expected() > 0) {
      return print_choices(option->get_type_name());
    }
  }
  if (!words.back().starts_with('-')) return;  // the shell completes paths
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      fmt::print("--{}\t{}\n", name, option->get_description());
    }
  }
}

}  // namespace tidemark::cli
