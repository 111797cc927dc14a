#include "analysis/findings/growth/growing_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/findings/growth/growth.h"
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

// "a, b, c and 2 other lines".
std::string first_of(std::vector<std::string> names, std::string_view what) {
  if (names.size() > kMost) {
    const size_t others = names.size() - kMost;
    names.resize(kMost);
    names.push_back(counted(others, what));
  }
  return listed(names);
}

std::string text_of(const GrowingLine& line) {
  std::vector<std::string> callees;
  std::vector<std::string> callers;  // functions
  std::vector<std::string> places;   // of calls
  for (const Frames& frames : line.stacks) {
    add_once(callees, function_called_at(frames));
    for (const Frames& other : line.stacks) {
      const std::string caller = caller_unlike(frames, other);
      add_once(callers, caller.substr(0, caller.find(' ')));
      if (!caller.empty()) add_once(places, place_of({caller}));
    }
  }
  if (callees.size() > 1) {
    return fmt::format("{} ({})", line.place, first_of(callees, "other function"));
  }
  if (callers.size() > 1) {
    return fmt::format("{} (called by {})", line.place, first_of(callers, "other function"));
  }
  if (places.size() > 1) {
    return fmt::format("{} (called at {})", line.place, first_of(places, "other line"));
  }
  return line.place;
}

// "score api.py" of "score api.py:89".
std::string function_of(const std::string& frame) {
  return frame.substr(0, frame.rfind(':'));
}

// Whether a line grows in a function that also called another one that grows: a result has left
// the inner function by the time the outer one goes on, so that variables of both are alive only
// together, in a traceback.
bool grow_within_each_other(const std::vector<Frames>& stacks) {
  for (const Frames& outer : stacks) {
    const std::string function = function_of(headline_of(outer));
    for (const Frames& frames : stacks) {
      const std::string headline = headline_of(frames);
      if (function_of(headline) == function) continue;
      const auto at = std::find(frames.begin(), frames.end(), headline);
      if (at == frames.end()) continue;
      if (std::any_of(at, frames.end(),
                      [&](const std::string& frame) { return function_of(frame) == function; })) {
        return true;
      }
    }
  }
  return false;
}

// Whether a function that the program calls makes large blocks there without a backward pass, which
// may be buffers of one call that a part outlives. What a constructor makes is its object's.
bool is_from_function(const DeviceEvidence& d, uint32_t stack) {
  constexpr uint64_t kLarge = uint64_t{16} << 20;
  if (d.model == nullptr || d.categories.has_backward) return false;
  if (d.roles->of(stack) != StackRole::kUser) return false;
  const AllocationColumns& all = d.model->allocations;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.stack(i) != stack) continue;
    ++blocks;
    bytes += all.block_bytes(i);
  }
  if (blocks == 0 || bytes / blocks < kLarge) return false;
  const Frames frames = d.process->names.stack_text(stack);
  const std::string function = function_of(headline_of(frames));
  const std::string name = function.substr(0, function.find(' '));
  if (name == "<module>" || name == "main" || name.ends_with("__init__")) return false;
  return !callers_of(frames, 1).empty();
}

}  // namespace

std::string slice_text(const DeviceEvidence& d, uint32_t stack) {
  if (d.roles == nullptr) return "";
  const bool of_model = d.roles->of(stack) == StackRole::kForward;
  if (!of_model && !is_from_function(d, stack)) return "";
  return "; if only a slice of it is kept, clone() the slice: a view keeps the whole tensor";
}

std::string traceback_text(const std::vector<Frames>& stacks) {
  if (!grow_within_each_other(stacks)) return "";
  return "; if these are variables of functions that raised an exception, its traceback keeps them "
         "while the exception is stored: store its text instead";
}

std::string how_it_is_kept(const DeviceEvidence& d) {
  if (d.steps.growing.empty()) return "";
  constexpr double kNotAll = 0.8;  // of the steps
  std::vector<Frames> stacks;
  for (const GrowingLine& line : lines_of(d)) stacks.push_back(line.stacks.front());
  if (const std::string text = traceback_text(stacks); !text.empty() && stairs_of(d, kNotAll))
    return text;
  return slice_text(d, d.steps.growing.front().stack);
}

std::string places_of_growth(const DeviceEvidence& d) {
  std::vector<std::string> places;
  for (const GrowingLine& line : lines_of(d)) places.push_back(text_of(line));
  return places.empty() ? "every step" : first_of(places, "other line");
}

}  // namespace tidemark
