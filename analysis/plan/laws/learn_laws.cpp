#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "analysis/plan/laws/matched_rows.h"
#include "analysis/plan/laws/older_blocks.h"
#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

namespace {

// How much larger or smaller the blocks of one recording are in the other one.
class GrowthWeights {
 public:
  void add(uint64_t from, uint64_t to) {
    const double ratio = static_cast<double>(to) / static_cast<double>(from);
    const auto bytes = static_cast<double>(std::max(from, to));
    Weight& weight = weights_[std::llround(kBins * std::log(ratio))];
    weight.bytes += bytes;
    weight.ratio = ratio;
    all_ += bytes;
  }
  bool empty() const { return weights_.empty(); }

  // The ratio of most bytes; or its root, where other blocks grow with that: attention matrices
  // can have most of the bytes, and grow with the square of the length.
  double main_ratio() const {
    const auto most = heaviest(weights_.begin(), weights_.end());
    const int64_t root = most->first / 2;
    const auto close =
        heaviest(weights_.lower_bound(root - kClose), weights_.upper_bound(root + kClose));
    const bool squares = std::abs(most->first) > 2 * kClose && close != weights_.end() &&
                         close->second.bytes > all_ / 1000;
    return squares ? close->second.ratio : most->second.ratio;
  }

 private:
  static constexpr double kBins = 1000;  // of a tenth of a percent
  static constexpr int64_t kClose = 8;   // inputs can have a token more than what they lead to
  struct Weight {
    double bytes = 0;
    double ratio = 1;
  };
  using Weights = std::map<int64_t, Weight>;

  Weights::const_iterator heaviest(Weights::const_iterator begin,
                                   Weights::const_iterator end) const {
    const auto found = std::max_element(
        begin, end, [](auto& a, auto& b) { return a.second.bytes < b.second.bytes; });
    return found == end ? weights_.end() : found;
  }

  Weights weights_;
  double all_ = 0;
};

// Inputs tell it best; where none are known, whatever grows.
double ratio_of(const RecordedProgram& program, const RecordedProgram& other,
                const std::vector<RowPair>& pairs) {
  for (const bool inputs : {true, false}) {
    GrowthWeights weights;
    for (const RowPair& pair : pairs) {
      const uint64_t a = program.bytes(pair.row);
      const uint64_t b = other.bytes(pair.other);
      if (a == b || a <= 512 || b <= 512) continue;
      if (inputs && program.category(pair.row) != Category::kInput) continue;
      weights.add(a, b);
    }
    if (!weights.empty()) return weights.main_ratio();
  }
  return 1;
}

bool is_close(double found, double expected) {
  return std::abs(found - expected) <= std::max(0.005 * expected, 512.0);
}

// Whether attention matrices grow with the square of the ratio: those of another batch do not.
bool follows_lengths(const RecordedProgram& program, const RecordedProgram& other,
                     const std::vector<RowPair>& pairs, double ratio, const SizeLaws& laws) {
  double linear = 0;
  double square = 0;
  for (const RowPair& pair : pairs) {
    const auto a = static_cast<double>(program.bytes(pair.row));
    const auto b = static_cast<double>(other.bytes(pair.other));
    if (laws[pair.row].seq != 2 || a == b) continue;
    if (is_close(b, a * ratio)) linear += a;
    if (is_close(b, a * ratio * ratio)) square += a;
  }
  return square > linear;
}

// Sizes of `sa` in one recording and `sb` in the other.
SizeLaw law_of(uint64_t sa, uint64_t sb, double ratio, Dimension dimension,
               const SizeLaw& inferred) {
  if (inferred.most != 0) return inferred;
  if (sa == sb) return {sa, 0, 0, 0, true};
  const auto a = static_cast<double>(sa);
  const auto b = static_cast<double>(sb);
  const auto close = [&](double expected) { return is_close(b, expected); };
  SizeLaw law{0, sa, inferred.batch, inferred.seq, true};
  if (inferred.scaled == 0) law.batch = law.seq = 1;
  if (dimension == Dimension::kBatch && inferred.sequence_open()) {
    law.sure = false;
    law.other_seq = inferred.other_seq;
  }
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
  if (law.other_seq != 0) law.other_batch = law.batch;
  return law;
}

// How much of what grows in the other recording is like something of the program.
void count_other(const RecordedProgram& other, const std::vector<RowPair>& pairs,
                 LearntLaws& learnt) {
  const AllocationColumns& all = other.model().allocations;
  const auto kind = [&](uint32_t row) { return std::pair(all.kind(row), other.bytes(row)); };
  std::set<std::pair<uint32_t, uint64_t>> matched;
  for (const RowPair& pair : pairs) matched.insert(kind(pair.other));
  const SizeLaws laws = infer_laws(other);
  for (uint32_t i = 0; i < other.rows(); ++i) {
    if (all.seeded(i)) continue;  // those of the program may have no place in it
    if (laws[i].scaled == 0 && other.category(i) != Category::kInput) continue;
    learnt.all_other_bytes += other.bytes(i);
    if (matched.contains(kind(i))) learnt.matched_other_bytes += other.bytes(i);
  }
}

}  // namespace

LearntLaws learn_laws(const RecordedProgram& program, const RecordedProgram& other,
                      Dimension dimension, SizeLaws& laws) {
  LearntLaws learnt;
  const std::vector<RowPair> pairs =
      matched_rows(program, {0, program.rows()}, other, {0, other.rows()});
  learnt.ratio = ratio_of(program, other, pairs);
  if (learnt.ratio == 1) return learnt;
  learnt.other_dimension =
      dimension == Dimension::kBatch && follows_lengths(program, other, pairs, learnt.ratio, laws);
  if (learnt.other_dimension) return learnt;
  // Later steps repeat the allocations of earlier ones.
  std::map<std::pair<uint32_t, uint64_t>, SizeLaw> by_kind;
  const auto kind = [&](uint32_t row) {
    return std::pair(program.model().allocations.kind(row), program.bytes(row));
  };
  std::vector<bool> known(program.rows(), false);
  for (const RowPair& pair : pairs) {
    const SizeLaw law = law_of(program.bytes(pair.row), other.bytes(pair.other), learnt.ratio,
                               dimension, laws[pair.row]);
    laws[pair.row] = law;
    known[pair.row] = true;
    by_kind[kind(pair.row)] = law;
  }
  for (uint32_t i = 0; i < program.rows(); ++i) {
    if (known[i]) continue;
    const auto same = by_kind.find(kind(i));
    if (same == by_kind.end()) continue;
    laws[i] = same->second;
    known[i] = true;
  }
  set_laws_of_older(program, known, laws);
  for (uint32_t i = 0; i < program.rows(); ++i) {
    if (laws[i].scaled == 0 && program.category(i) != Category::kInput) continue;
    learnt.all_bytes += program.bytes(i);
    if (known[i]) learnt.matched_bytes += program.bytes(i);
  }
  count_other(other, pairs, learnt);
  return learnt;
}

namespace {

void set_power(SizeLaw& law, uint8_t seq) {
  if (law.sequence_open()) law.sure = true;
  law.seq = law.other_seq = seq;
}

// What the program does with one batch.
struct Turn {
  BirthRange rows{};
  uint64_t input_bytes = 0;
  uint32_t kind = 0;  // the line of its last forward operation
  bool whole = true;
};

bool fails_within(const AllocationHistory& model, uint32_t begin, uint32_t end) {
  return std::any_of(model.failures.begin(), model.failures.end(),
                     [&](const FailedAllocation& f) { return f.event >= begin && f.event < end; });
}

// Without a backward pass, the steps.
std::vector<Turn> turns_of_steps(const RecordedProgram& program) {
  const std::vector<uint32_t>& at = program.steps().boundaries;
  std::vector<Turn> turns;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    Turn turn{births_within(program.model(), at[i], at[i + 1])};
    for (size_t row = turn.rows.begin; row < turn.rows.end; ++row) {
      if (program.category(row) == Category::kInput) turn.input_bytes += program.bytes(row);
    }
    turn.whole = !fails_within(program.model(), at[i], at[i + 1]);
    turns.push_back(turn);
  }
  return turns;
}

// The rows of [begin, end); inputs are those that are still there when the backward pass begins,
// which those of a validation before it are not.
Turn turn_with_backward(const RecordedProgram& program, uint32_t begin, uint32_t backward,
                        uint32_t end) {
  const AllocationColumns& all = program.model().allocations;
  Turn turn{births_within(program.model(), begin, end)};
  for (size_t row = turn.rows.begin; row < turn.rows.end && all.birth(row) < backward; ++row) {
    if (program.category(row) == Category::kInput && all.release(row) > backward) {
      turn.input_bytes += program.bytes(row);
    }
    if (program.role(row) == StackRole::kForward) turn.kind = all.stack(row);
  }
  return turn;
}

// The backward passes of the kind in which the peak lies, and a pass that failed.
std::vector<Turn> turns_of_passes(const RecordedProgram& program) {
  const AllocationHistory& model = program.model();
  std::vector<Turn> turns;
  uint32_t kind = 0;
  for (const BackwardPass& pass : program.passes()) {
    turns.push_back(turn_with_backward(program, pass.forward_first, pass.first, pass.end));
    if (kind == 0 || pass.forward_first <= model.allocated_peak.event) kind = turns.back().kind;
  }
  std::erase_if(turns, [&](const Turn& turn) { return turn.kind != kind; });
  const uint32_t end = program.passes().back().end;
  if (!model.failures.empty() && model.failures.back().event >= end) {
    const uint32_t failed = model.failures.back().event;
    turns.push_back(turn_with_backward(program, end, failed, failed));
    turns.back().whole = false;
  }
  return turns;
}

// Those with the least and with the most input bytes.
struct TurnExtremes {
  const Turn* least = nullptr;
  const Turn* most = nullptr;

  bool differ() const {
    return most != nullptr && most->input_bytes >= least->input_bytes + least->input_bytes / 20;
  }
};

TurnExtremes extremes_of(const std::vector<Turn>& turns, bool whole_only) {
  TurnExtremes found;
  for (const Turn& turn : turns) {
    if (turn.input_bytes == 0 || (whole_only && !turn.whole)) continue;
    if (found.least == nullptr || turn.input_bytes < found.least->input_bytes) found.least = &turn;
    if (found.most == nullptr || turn.input_bytes > found.most->input_bytes) found.most = &turn;
  }
  return found;
}

// The ratio of the inputs, which may have a token more than what is computed from them: that of
// most bytes close to it.
double ratio_of_turns(const RecordedProgram& program, const TurnExtremes& turns,
                      const std::vector<RowPair>& pairs) {
  const double inputs =
      static_cast<double>(turns.least->input_bytes) / static_cast<double>(turns.most->input_bytes);
  std::map<int64_t, std::pair<double, double>> weights;  // by ratio, in thousandths: and exact
  for (const RowPair& pair : pairs) {
    const auto a = static_cast<double>(program.bytes(pair.row));
    const double ratio = static_cast<double>(program.bytes(pair.other)) / a;
    if (a <= 512 || std::abs(ratio - inputs) > inputs / 20) continue;
    auto& [weight, exact] = weights[std::llround(1000 * ratio)];
    weight += a;
    exact = ratio;
  }
  const auto most = std::max_element(weights.begin(), weights.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most == weights.end() ? inputs : most->second.second;
}

constexpr uint8_t kUnclear = 9;

// What two turns tell of each stack.
struct Powers {
  std::unordered_map<uint32_t, uint8_t> of_stack;
  std::vector<std::pair<uint32_t, uint8_t>> of_row;
  uint64_t bytes[3] = {};         // that follow each power
  uint64_t linear_attention = 0;  // of matrices that should follow the square
  uint64_t square_attention = 0;

  // Batches vary in length: something follows the square or, per sample, nothing. Where the batch
  // varies, attention matrices follow it linearly.
  bool of_lengths() const {
    const uint64_t all = bytes[0] + bytes[1] + bytes[2];
    return bytes[1] + bytes[2] > all / 10 && linear_attention <= square_attention &&
           (bytes[2] > all / 1000 || bytes[0] > all / 20);
  }
  bool varies() const { return bytes[1] + bytes[2] > (bytes[0] + bytes[1] + bytes[2]) / 10; }
};

std::unordered_map<uint32_t, size_t> blocks_by_stack(const RecordedProgram& program,
                                                     BirthRange rows) {
  std::unordered_map<uint32_t, size_t> blocks;
  for (size_t i = rows.begin; i < rows.end; ++i) ++blocks[program.model().allocations.stack(i)];
  return blocks;
}

// Lines that run once for each position make more blocks of the same size: together, these grow as
// one block does that has all positions.
void note_lines_of_positions(const RecordedProgram& program, const TurnExtremes& turns,
                             double ratio, Powers& powers) {
  constexpr size_t kLeastBlocks = 8;
  const auto in_most = blocks_by_stack(program, turns.most->rows);
  const auto in_least = blocks_by_stack(program, turns.least->rows);
  for (auto& [stack, power] : powers.of_stack) {
    const auto most = in_most.find(stack);
    const auto least = in_least.find(stack);
    if (power != 0 || most == in_most.end() || least == in_least.end()) continue;
    const double blocks = static_cast<double>(least->second) / static_cast<double>(most->second);
    if (most->second >= kLeastBlocks && std::abs(blocks - ratio) < ratio / 10) power = 1;
  }
}

Powers powers_between(const RecordedProgram& program, const TurnExtremes& turns,
                      const SizeLaws& laws) {
  Powers powers;
  const std::vector<RowPair> pairs =
      matched_rows(program, turns.most->rows, program, turns.least->rows);
  const double ratio = ratio_of_turns(program, turns, pairs);
  for (const auto& [row, other] : pairs) {
    if (laws[row].scaled == 0 || laws[row].most != 0 || laws[row].chunk != 0) continue;
    const SizeLaw law =
        law_of(program.bytes(row), program.bytes(other), ratio, Dimension::kSequence, laws[row]);
    const bool clear = law.sure && (law.fixed == 0 || law.scaled == 0);
    const uint8_t power = !clear ? kUnclear : law.scaled == 0 ? uint8_t{0} : law.seq;
    const auto [known, fresh] =
        powers.of_stack.try_emplace(program.model().allocations.stack(row), power);
    if (!fresh && known->second != power) known->second = kUnclear;
    if (!clear) continue;
    powers.of_row.emplace_back(row, power);
    powers.bytes[power] += program.bytes(row);
    if (laws[row].seq == 2 && power == 1) powers.linear_attention += program.bytes(row);
    if (laws[row].seq == 2 && power == 2) powers.square_attention += program.bytes(row);
  }
  note_lines_of_positions(program, turns, ratio, powers);
  return powers;
}

// Stacks whose blocks are still there in the next backward pass.
std::unordered_set<uint32_t> stacks_kept_over_passes(const RecordedProgram& program) {
  const std::vector<BackwardPass>& passes = program.passes();
  const AllocationColumns& all = program.model().allocations;
  std::unordered_set<uint32_t> kept;
  size_t next = 0;  // the first pass that ends after the block was made
  for (size_t row = 0; row < program.rows(); ++row) {
    while (next < passes.size() && passes[next].end <= all.birth(row)) ++next;
    if (next + 1 >= passes.size()) break;
    if (all.release(row) > passes[next + 1].first) kept.insert(all.stack(row));
  }
  return kept;
}

}  // namespace

StepVariety learn_from_steps(const RecordedProgram& program, SizeLaws& laws) {
  const std::vector<Turn> turns =
      program.passes().empty() ? turns_of_steps(program) : turns_of_passes(program);
  std::unordered_map<uint32_t, uint8_t> powers;
  StepVariety variety = StepVariety::kNone;
  // A step that failed tells nothing of what would have followed.
  for (const bool whole_only : {true, false}) {
    const TurnExtremes extremes = extremes_of(turns, whole_only);
    if (!extremes.differ()) continue;
    Powers found = powers_between(program, extremes, laws);
    if (found.of_lengths()) {
      variety = StepVariety::kLengths;
      for (const auto& [row, power] : found.of_row) {
        if (found.of_stack.at(program.model().allocations.stack(row)) == kUnclear) {
          set_power(laws[row], power);
        }
      }
      powers.merge(found.of_stack);  // keeps those that are known
    } else if (found.varies() && variety == StepVariety::kNone) {
      variety = StepVariety::kUnknown;
    }
  }
  if (powers.empty()) return variety;
  const std::unordered_set<uint32_t> kept = stacks_kept_over_passes(program);
  for (uint32_t i = 0; i < program.rows(); ++i) {
    const uint32_t stack = program.model().allocations.stack(i);
    const auto known = powers.find(stack);
    if (known == powers.end() || known->second == kUnclear || laws[i].chunk != 0) continue;
    const bool is_table = known->second == 2 && laws[i].seq != 2;
    // Of positions, such as a mask: one that is kept serves every batch, others may have one.
    if (is_table && (laws[i].scaled != 0 || !laws[i].sure)) {
      const uint8_t batch = kept.contains(stack) ? 0 : 1;
      laws[i] = {0, program.bytes(i), batch, 2, false, 0, static_cast<uint8_t>(1 - batch), 2};
    } else if (laws[i].scaled != 0) {
      set_power(laws[i], known->second);
    }
  }
  return variety;
}

}  // namespace tidemark
