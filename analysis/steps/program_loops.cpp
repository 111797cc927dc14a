#include "analysis/steps/program_loops.h"

#include <algorithm>
#include <set>

namespace tidemark {

ProgramLoops::ProgramLoops(const Dictionary& names, const AllocationHistory& model,
                           const StackRoles& roles)
    : model_(model), places_(names) {
  count_placed(roles);
  if (!are_known()) return;
  find_lines();
  find_turns();
  find_loops();
  collect_rounds();
}

uint32_t ProgramLoops::Function::turn_count() const {
  uint32_t all = 0;
  for (const auto& [lines, count] : turns) all += count;
  return all;
}

// By place: the number of its outermost function, of which each thread has one.
std::vector<uint32_t> ProgramLoops::threads_of_places() const {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
  std::vector<uint32_t> threads(places_.count());
  for (uint32_t place = 1; place < places_.count(); ++place) {
    const Place& outermost = places_[places_[place].outermost];
    const auto next = static_cast<uint32_t>(numbers.size());
    threads[place] = numbers.try_emplace({outermost.function, outermost.file}, next).first->second;
  }
  return threads;
}

// Calls use(allocation, passage) for each one whose thread allocated before.
template <typename Use>
void ProgramLoops::for_each_passage(Use&& use) {
  const std::vector<uint32_t> thread_of = threads_of_places();
  std::vector<uint32_t> last(places_.count());  // by thread
  // By place: where the program went from there the last time, and mostly goes again.
  std::vector<std::pair<uint32_t, Passage*>> usual(places_.count());
  for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
    if (model_.allocations.seeded(a)) continue;
    const uint32_t place = places_.of(model_.allocations.stack(a));
    if (place == 0) continue;
    uint32_t& before = last[thread_of[place]];
    if (before != place) {
      auto& [to, passage] = usual[before];
      if (passage == nullptr || to != place) {
        const auto [it, unseen] = passages_.try_emplace((uint64_t{before} << 32) | place);
        if (unseen) it->second = passage_of(before, place);
        to = place;
        passage = &it->second;
      }
      use(a, *passage);
    }
    before = place;
  }
}

uint32_t ProgramLoops::function_of(uint32_t place) {
  const Place& p = places_[place];
  const auto [it, fresh] = numbers_.try_emplace({p.caller, p.function, p.file},
                                                static_cast<uint32_t>(functions_.size()));
  if (fresh) {
    functions_.push_back({p.depth, p.inside, p.generates, p.calls, INT64_MAX, 0, {}, 0});
  }
  return it->second;
}

ProgramLoops::Passage ProgramLoops::passage_of(uint32_t from, uint32_t to) {
  Passage passage;
  uint32_t a = from;
  uint32_t b = to;
  uint32_t a_below = 0;  // of the places below the common caller, the outermost
  uint32_t b_below = 0;
  const auto up = [&](uint32_t& place, uint32_t& below) {
    below = place;
    place = places_[place].caller;
  };
  while (places_[a].depth > places_[b].depth) up(a, a_below);
  while (a != b) {
    if (b_below != 0) passage.entered.push_back(function_of(b_below));
    if (places_[a].depth == places_[b].depth) up(a, a_below);
    up(b, b_below);
  }
  if (b_below == 0) return passage;
  if (a_below != 0 && places_.same_function(a_below, b_below)) {
    if (places_[b_below].line < places_[a_below].line) {
      passage.back_in = function_of(b_below);
      passage.back_from = places_[a_below].line;
      passage.back_to = places_[b_below].line;
    } else {
      passage.on_in = function_of(b_below);
      passage.on_from = places_[a_below].line;
      passage.on_to = places_[b_below].line;
    }
  } else {
    passage.entered.push_back(function_of(b_below));
  }
  return passage;
}

void ProgramLoops::count_placed(const StackRoles& roles) {
  for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
    const uint32_t stack = model_.allocations.stack(a);
    if (model_.allocations.seeded(a) || roles.of(stack) == StackRole::kBackward) continue;
    ++(places_.of(stack) != 0 ? placed_ : unplaced_);
  }
}

// The lines of each function that it, or what it calls, allocates at.
void ProgramLoops::find_lines() {
  std::vector<bool> seen(places_.count());
  seen[0] = true;
  for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
    if (model_.allocations.seeded(a)) continue;
    uint32_t place = places_.of(model_.allocations.stack(a));
    for (; !seen[place]; place = places_[place].caller) {
      seen[place] = true;
      Function& function = functions_[function_of(place)];
      function.first_line = std::min(function.first_line, places_[place].line);
      function.last_line = std::max(function.last_line, places_[place].line);
    }
  }
}

void ProgramLoops::find_turns() {
  for_each_passage([](uint32_t, Passage& passage) { ++passage.count; });
  for (const auto& [key, passage] : passages_) {
    for (const uint32_t function : passage.entered) functions_[function].entries += passage.count;
    if (passage.back_in == UINT32_MAX) continue;
    functions_[passage.back_in].turns[{passage.back_to, passage.back_from}] += passage.count;
  }
}

void ProgramLoops::find_loops() {
  loops_in_.resize(functions_.size());
  for (uint32_t i = 0; i < functions_.size(); ++i) {
    const Function& function = functions_[i];
    const uint32_t turns = function.turn_count();
    if (turns + 1 < kLeastRounds) {
      const bool alone = function.calls || (!function.inside && !function.generates);
      if (alone && function.entries >= kLeastRounds) {
        const LoopUse use = function.calls ? LoopUse::kPart : LoopUse::kCalled;
        add_loop(i, function.first_line, function.last_line, use);
      }
      continue;
    }
    if (function.calls) {
      // A module that is called again goes back from its last line to its first.
      add_loop(i, function.first_line, function.last_line, LoopUse::kInference);
    }
    if (function.inside) continue;
    std::map<int64_t, uint32_t> to;
    for (const auto& [lines, count] : function.turns) to[lines.first] += count;
    // Rounds begin at the first line that the function often goes back to. A call that spans
    // several lines also goes back a little. Micro-batches and tokens go back more often than the
    // steps and requests around them.
    constexpr uint32_t kMostParts = 16;
    for (const auto& [line, count] : to) {
      const bool often = count * 4 >= turns;
      if (often || (count + 1 >= kLeastRounds && count * kMostParts >= turns)) {
        add_loops(i, line, function.generates ? LoopUse::kTraining : LoopUse::kAny);
      } else if (count + 1 >= kLeastRounds) {
        add_loops(i, line, LoopUse::kAround);
      }
      if (!often) continue;
      add_loop_within(i, line);
      break;
    }
  }
}

void ProgramLoops::add_loops(uint32_t function, int64_t first_line, LoopUse use) {
  constexpr size_t kMostEnds = 8;
  std::set<int64_t> ends;
  for (const auto& [lines, count] : functions_[function].turns) {
    if (lines.first <= first_line) ends.insert(lines.second);
  }
  while (ends.size() > kMostEnds) ends.erase(ends.begin());
  for (const int64_t end : ends) add_loop(function, first_line, end, use);
}

void ProgramLoops::add_loop(uint32_t function, int64_t first_line, int64_t last_line, LoopUse use) {
  loops_in_[function].push_back(static_cast<uint32_t>(loops_.size()));
  const uint32_t depth = functions_[function].depth;
  loops_.push_back({function, depth, first_line, last_line, use, {}, {}});
}

// That goes back from the same line as a loop, but mostly to a later one than its first.
void ProgramLoops::add_loop_within(uint32_t function, int64_t first_line) {
  const auto& turns = functions_[function].turns;
  int64_t end = 0;
  uint32_t most = 0;
  for (const auto& [lines, count] : turns) {
    if (lines.first != first_line || count <= most) continue;
    end = lines.second;
    most = count;
  }
  int64_t later = 0;
  for (const auto& [lines, count] : turns) {
    if (lines.second != end || lines.first <= first_line || count <= most) continue;
    later = lines.first;
    most = count;
  }
  if (later != 0) add_loop(function, later, end, LoopUse::kWithin);
}

// Two loops of a function, one after the other, as for warming up and for measuring: the first
// round of the second one begins where the function goes on to it, once in each of its calls.
void ProgramLoops::find_next_loops() {
  std::vector<uint64_t> counts(loops_.size());
  const auto for_each_next = [&](auto&& use) {
    for (auto& [places, passage] : passages_) {
      if (passage.on_in == UINT32_MAX) continue;
      for (const uint32_t i : loops_in_[passage.on_in]) {
        const Loop& loop = loops_[i];
        if (passage.on_to == loop.first_line && passage.on_from >= loop.last_line) use(i, passage);
      }
    }
  };
  for_each_next([&](uint32_t i, const Passage& passage) { counts[i] += passage.count; });
  for_each_next([&](uint32_t i, Passage& passage) {
    if (counts[i] <= std::max(functions_[loops_[i].function].entries, 1U)) {
      passage.turned.push_back(i);
    }
  });
}

void ProgramLoops::collect_rounds() {
  find_next_loops();
  std::vector<std::pair<size_t, size_t>> counts(loops_.size());  // by loop: rounds, entries
  for (auto& [places, passage] : passages_) {
    for (const uint32_t function : passage.entered) {
      for (const uint32_t i : loops_in_[function]) {
        counts[i].first += passage.count;
        counts[i].second += passage.count;
      }
    }
    if (passage.back_in == UINT32_MAX) continue;
    for (const uint32_t i : loops_in_[passage.back_in]) {
      const Loop& loop = loops_[i];
      if (passage.back_to <= loop.first_line && passage.back_from >= loop.last_line) {
        passage.turned.push_back(i);
        counts[i].first += passage.count;
      }
    }
  }
  for (size_t i = 0; i < loops_.size(); ++i) {
    loops_[i].rounds.reserve(counts[i].first);
    loops_[i].entries.reserve(counts[i].second);
  }
  for_each_passage([&](uint32_t a, const Passage& passage) {
    for (const uint32_t i : passage.turned) loops_[i].rounds.push_back(a);
    for (const uint32_t function : passage.entered) {
      for (const uint32_t i : loops_in_[function]) {
        loops_[i].rounds.push_back(a);
        loops_[i].entries.push_back(a);
      }
    }
  });
}

LineOfAllocation ProgramLoops::lines_in(uint32_t function) {
  std::vector<int64_t> lines(places_.count());  // callers precede the places they call
  for (uint32_t place = 1; place < places_.count(); ++place) {
    const bool own = function_of(place) == function;
    lines[place] = own ? places_[place].line : lines[places_[place].caller];
  }
  return {model_.allocations, places_, std::move(lines)};
}

int64_t ProgramLoops::called_from(uint32_t function, uint32_t outer) {
  const auto self = std::find_if(numbers_.begin(), numbers_.end(),
                                 [&](const auto& entry) { return entry.second == function; });
  uint32_t place = self == numbers_.end() ? 0 : std::get<0>(self->first);
  while (place != 0 && function_of(place) != outer) place = places_[place].caller;
  return places_[place].line;
}

uint32_t ProgramLoops::end_of(const Loop& loop) {
  std::vector<bool> within(places_.count());  // callers precede the places they call
  for (uint32_t place = 1; place < places_.count(); ++place) {
    if (function_of(place) != loop.function) continue;
    uint32_t line = places_[place].caller;  // of the program, which calls it
    while (places_[line].inside) line = places_[line].caller;
    within[place] = true;
    if (line != 0) within[line] = true;
  }
  for (uint32_t place = 1; place < places_.count(); ++place) {
    within[place] = within[place] || within[places_[place].caller];
  }
  for (uint32_t a = loop.rounds.back(); a < model_.allocations.size(); ++a) {
    const uint32_t place = places_.of(model_.allocations.stack(a));
    if (place != 0 && !within[place]) return model_.allocations.birth(a);
  }
  return kNever;
}

}  // namespace tidemark
