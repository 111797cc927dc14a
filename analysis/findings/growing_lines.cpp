#include "analysis/findings/growing_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kMost = 3;  // that are named

using Frames = std::vector<std::string>;

struct GrowingLine {
  std::string place;
  double bytes_per_step = 0;
  std::vector<Frames> stacks;
};

void add_once(std::vector<std::string>& list, std::string text) {
  if (text.empty() || std::find(list.begin(), list.end(), text) != list.end()) return;
  list.push_back(std::move(text));
}

std::vector<GrowingLine> lines_of(const DeviceEvidence& d) {
  std::vector<GrowingLine> lines;
  for (const StackGrowth& g : d.steps.growing) {
    Frames frames = d.process->names.stack_text(g.stack);
    std::string place = frames.empty() ? "" : place_of(frames);
    if (place.empty()) continue;
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const GrowingLine& l) { return l.place == place; });
    if (line == lines.end()) line = lines.insert(line, {std::move(place), 0, {}});
    line->bytes_per_step += g.bytes_per_step;
    line->stacks.push_back(std::move(frames));
  }
  // Blocks that are larger than what was asked for make a level rise a little that stays as it is.
  constexpr double kNextToNothing = 0.02;
  double most = 0;
  for (const GrowingLine& line : lines) most = std::max(most, line.bytes_per_step);
  std::erase_if(
      lines, [&](const GrowingLine& line) { return line.bytes_per_step < kNextToNothing * most; });
  return lines;
}

// "a", "a and b", "a, b and c", "a, b, c and 2 other lines".
std::string listed(const std::vector<std::string>& names, std::string_view what) {
  std::string text = names.front();
  for (size_t i = 1; i < std::min(kMost, names.size()); ++i) {
    text += fmt::format("{}{}", i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  if (names.size() > kMost) text += fmt::format(" and {}", counted(names.size() - kMost, what));
  return text;
}

std::string text_of(const GrowingLine& line) {
  std::vector<std::string> callees;
  std::vector<std::string> callers;
  for (const Frames& frames : line.stacks) {
    add_once(callees, function_called_at(frames));
    for (const Frames& other : line.stacks) {
      const std::string caller = caller_unlike(frames, other);
      add_once(callers, caller.substr(0, caller.find(' ')));
    }
  }
  if (callees.size() > 1) {
    return fmt::format("{} ({})", line.place, listed(callees, "other function"));
  }
  if (callers.size() > 1) {
    return fmt::format("{} (called by {})", line.place, listed(callers, "other function"));
  }
  return line.place;
}

}  // namespace

std::string places_of_growth(const DeviceEvidence& d) {
  std::vector<std::string> places;
  for (const GrowingLine& line : lines_of(d)) places.push_back(text_of(line));
  return places.empty() ? "every step" : listed(places, "other line");
}

}  // namespace tidemark
