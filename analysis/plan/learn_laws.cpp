#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>

#include "analysis/plan/program.h"
#include "analysis/plan/size_law.h"

namespace tidemark {

namespace {

// The same in every recording of a program: functions and lines of the stack, and the nn.Module.
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
    const Frame& frame = names_.frame(names_.stack(stack).frame);
    const std::string_view file = names_.string(frame.file);
    uint64_t key = std::hash<std::string_view>{}(names_.string(frame.function));
    key = mixed(key, std::hash<std::string_view>{}(file.substr(file.rfind('/') + 1)));
    key = mixed(key, static_cast<uint64_t>(frame.line));
    key = mixed(key, of_stack(names_.stack(stack).parent));
    return by_stack_[stack] = key;
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
    if (!program.model().allocations.seeded(i))
      rows[keys.of(i)].push_back(static_cast<uint32_t>(i));
  }
  return rows;
}

struct Pair {
  uint32_t row;
  uint32_t other;
};

std::vector<Pair> matched(const RowsByPlace& rows, const RowsByPlace& others) {
  std::vector<Pair> pairs;
  for (const auto& [place, mine] : rows) {
    const auto theirs = others.find(place);
    if (theirs == others.end()) continue;
    const size_t count = std::min(mine.size(), theirs->second.size());
    for (size_t i = 0; i < count; ++i) pairs.push_back({mine[i], theirs->second[i]});
  }
  return pairs;
}

// The ratio of most bytes; inputs tell it best, because attention matrices grow with its square.
double ratio_of(const RecordedProgram& program, const RecordedProgram& other,
                const std::vector<Pair>& pairs) {
  for (const bool inputs : {true, false}) {
    std::map<int64_t, double> weight;  // by ratio, in thousandths
    for (const Pair& pair : pairs) {
      const uint64_t a = program.bytes(pair.row);
      const uint64_t b = other.bytes(pair.other);
      if (a == b || a <= 512 || b <= 512) continue;
      if (inputs && program.category(pair.row) != Category::kInput) continue;
      weight[std::llround(1000.0 * static_cast<double>(b) / static_cast<double>(a))] +=
          static_cast<double>(a);
    }
    if (weight.empty()) continue;
    const auto most = std::max_element(weight.begin(), weight.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return static_cast<double>(most->first) / 1000.0;
  }
  return 1;
}

// Sizes of `sa` in one recording and `sb` in the other.
SizeLaw law_of(uint64_t sa, uint64_t sb, double ratio, Dimension dimension,
               const SizeLaw& inferred) {
  if (inferred.most != 0) return inferred;
  if (sa == sb) return {sa, 0, 0, 0, true};
  const auto a = static_cast<double>(sa);
  const auto b = static_cast<double>(sb);
  const auto close = [&](double expected) {
    return std::abs(b - expected) <= std::max(0.005 * expected, 512.0);
  };
  SizeLaw law{0, sa, inferred.batch, inferred.seq, true};
  if (inferred.scaled == 0) law.batch = law.seq = 1;
  if (dimension == Dimension::kBatch) law.other_seq = inferred.other_seq;
  uint8_t& power = dimension == Dimension::kBatch ? law.batch : law.seq;
  if (close(a * ratio)) {
    power = 1;
  } else if (close(a * ratio * ratio)) {
    power = 2;
  } else {
    power = 1;
    const double per_unit = (b - a) / (ratio - 1);
    if (per_unit <= 0 || per_unit > a) {  // neither a line nor a square: another algorithm
      law.sure = false;
    } else {
      law.scaled = static_cast<uint64_t>(per_unit);
      law.fixed = sa - law.scaled;
    }
  }
  return law;
}

}  // namespace

LearntLaws learn_laws(const RecordedProgram& program, const RecordedProgram& other,
                      Dimension dimension, SizeLaws& laws) {
  LearntLaws learnt;
  const std::vector<Pair> pairs =
      matched(rows_by_place(program, {0, program.rows()}), rows_by_place(other, {0, other.rows()}));
  learnt.ratio = ratio_of(program, other, pairs);
  if (learnt.ratio == 1) return learnt;
  // Later steps repeat the allocations of earlier ones.
  std::map<std::pair<uint32_t, uint64_t>, SizeLaw> by_kind;
  const auto kind = [&](uint32_t row) {
    return std::pair(program.model().allocations.kind(row), program.bytes(row));
  };
  std::vector<bool> known(program.rows(), false);
  for (const Pair& pair : pairs) {
    const SizeLaw law = law_of(program.bytes(pair.row), other.bytes(pair.other), learnt.ratio,
                               dimension, laws[pair.row]);
    laws[pair.row] = law;
    known[pair.row] = true;
    by_kind[kind(pair.row)] = law;
  }
  for (uint32_t i = 0; i < program.rows(); ++i) {
    if (!known[i]) {
      const auto same = by_kind.find(kind(i));
      if (same != by_kind.end()) {
        laws[i] = same->second;
        known[i] = true;
      }
    }
    if (laws[i].scaled == 0 && program.category(i) != Category::kInput) continue;
    learnt.all_bytes += program.bytes(i);
    if (known[i]) learnt.matched_bytes += program.bytes(i);
  }
  return learnt;
}

namespace {

uint64_t input_bytes(const RecordedProgram& program, BirthRange range) {
  uint64_t bytes = 0;
  for (size_t i = range.begin; i < range.end; ++i) {
    if (program.category(i) == Category::kInput) bytes += program.bytes(i);
  }
  return bytes;
}

void set_power(SizeLaw& law, uint8_t seq) {
  law.seq = seq;
  law.other_seq = 0;
}

// The steps with the least and with the most input bytes.
struct StepExtremes {
  BirthRange least{};
  BirthRange most{};
  uint64_t least_bytes = UINT64_MAX;
  uint64_t most_bytes = 0;

  bool differ() const { return most_bytes != 0 && most_bytes >= least_bytes + least_bytes / 20; }
  double ratio() const {
    return static_cast<double>(least_bytes) / static_cast<double>(most_bytes);
  }
};

bool fails_within(const AllocationHistory& model, uint32_t begin, uint32_t end) {
  return std::any_of(model.failures.begin(), model.failures.end(),
                     [&](const FailedAllocation& f) { return f.event >= begin && f.event < end; });
}

StepExtremes extremes_of_steps(const RecordedProgram& program, bool whole_only) {
  const std::vector<uint32_t>& at = program.steps().boundaries;
  StepExtremes found;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    if (whole_only && fails_within(program.model(), at[i], at[i + 1])) continue;
    const BirthRange step = births_within(program.model(), at[i], at[i + 1]);
    const uint64_t bytes = input_bytes(program, step);
    if (bytes == 0) continue;
    if (bytes < found.least_bytes)
      std::tie(found.least, found.least_bytes) = std::pair(step, bytes);
    if (bytes > found.most_bytes) std::tie(found.most, found.most_bytes) = std::pair(step, bytes);
  }
  return found;
}

constexpr uint8_t kUnclear = 9;
using PowerOfStack = std::unordered_map<uint32_t, uint8_t>;

PowerOfStack powers_between(const RecordedProgram& program, const StepExtremes& steps,
                            SizeLaws& laws) {
  PowerOfStack powers;
  for (const auto& [row, other] :
       matched(rows_by_place(program, steps.most), rows_by_place(program, steps.least))) {
    if (laws[row].scaled == 0 || laws[row].most != 0) continue;
    const SizeLaw law = law_of(program.bytes(row), program.bytes(other), steps.ratio(),
                               Dimension::kSequence, laws[row]);
    const bool clear = law.sure && (law.fixed == 0 || law.scaled == 0);
    const uint8_t power = !clear ? kUnclear : law.scaled == 0 ? uint8_t{0} : law.seq;
    const auto [known, fresh] = powers.try_emplace(program.model().allocations.stack(row), power);
    if (!fresh && known->second != power) known->second = kUnclear;
    if (clear) set_power(laws[row], power);
  }
  return powers;
}

}  // namespace

bool learn_from_steps(const RecordedProgram& program, SizeLaws& laws) {
  PowerOfStack powers;
  bool differ = false;
  // A step that failed tells nothing of what would have followed.
  for (const bool whole_only : {true, false}) {
    const StepExtremes steps = extremes_of_steps(program, whole_only);
    if (!steps.differ()) continue;
    differ = true;
    powers.merge(powers_between(program, steps, laws));  // keeps those that are known
  }
  for (uint32_t i = 0; i < program.rows(); ++i) {
    const auto known = powers.find(program.model().allocations.stack(i));
    if (laws[i].scaled != 0 && known != powers.end() && known->second != kUnclear) {
      set_power(laws[i], known->second);
    }
  }
  return differ;
}

}  // namespace tidemark
