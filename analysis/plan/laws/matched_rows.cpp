#include "analysis/plan/laws/matched_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>

namespace tidemark {

namespace {

bool is_of_python_itself(std::string_view file) {
  if (file.starts_with("<frozen ")) return true;
  return file.find("lib/python3") != file.npos && file.find("-packages/") == file.npos;
}

// The same in every recording of a program.
class PlaceKeys {
 public:
  explicit PlaceKeys(const RecordedProgram& program) : p_(program), names_(p_.process().names) {}

  uint64_t of(size_t row) {
    const uint64_t stack = of_stack(p_.model().allocations.stack(row));
    return mixed(stack, std::hash<std::string_view>{}(p_.module_path(row)));
  }

 private:
  static uint64_t mixed(uint64_t a, uint64_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0x100000001b3;
  }
  uint64_t of_stack(uint32_t stack) {
    if (stack == 0 || stack >= names_.stack_count()) return 1;
    const auto known = by_stack_.find(stack);
    if (known != by_stack_.end()) return known->second;
    by_stack_[stack] = 1;  // a damaged trace may have a circle
    const uint64_t callers = of_stack(names_.stack(stack).parent);
    return by_stack_[stack] = of_frame(names_.frame(names_.stack(stack).frame), callers);
  }
  uint64_t of_frame(const Frame& frame, uint64_t callers) const {
    const std::string_view function = names_.string(frame.function);
    const std::string_view file = names_.string(frame.file);
    const bool native = frame.kind == FrameKind::kNative;
    // The frames of the interpreter are those of its version.
    if (native && function.find("::") == function.npos) return callers;
    uint64_t key = std::hash<std::string_view>{}(function);
    if (!native) {
      key = mixed(key, std::hash<std::string_view>{}(file.substr(file.rfind('/') + 1)));
      key = mixed(key, is_of_python_itself(file) ? 0 : static_cast<uint64_t>(frame.line));
    }
    return mixed(key, callers);
  }

  const RecordedProgram& p_;
  const Dictionary& names_;
  std::unordered_map<uint32_t, uint64_t> by_stack_;
};

using RowsByPlace = std::map<uint64_t, std::vector<uint32_t>>;

RowsByPlace rows_by_place(const RecordedProgram& program, BirthRange range) {
  RowsByPlace rows;
  PlaceKeys keys(program);
  for (size_t i = range.begin; i < range.end; ++i) {
    if (!program.model().allocations.seeded(i)) {
      rows[keys.of(i)].push_back(static_cast<uint32_t>(i));
    }
  }
  return rows;
}

}  // namespace

std::vector<RowPair> matched_rows(const RecordedProgram& program, BirthRange rows,
                                  const RecordedProgram& other, BirthRange others) {
  const RowsByPlace of_others = rows_by_place(other, others);
  std::vector<RowPair> pairs;
  for (const auto& [place, mine] : rows_by_place(program, rows)) {
    const auto theirs = of_others.find(place);
    if (theirs == of_others.end()) continue;
    const size_t count = std::min(mine.size(), theirs->second.size());
    for (size_t i = 0; i < count; ++i) pairs.push_back({mine[i], theirs->second[i]});
  }
  return pairs;
}

}  // namespace tidemark
