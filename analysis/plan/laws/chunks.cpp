#include "analysis/plan/laws/chunks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "analysis/plan/program/layers.h"

namespace tidemark {

namespace {

using Line = std::pair<uint32_t, uint32_t>;  // stack, nn.Module

// Chunks of one line, one after another without a call of the model in between.
struct ChunkLoop {
  Line line;
  std::vector<uint32_t> whole;  // rows, of one size
  uint32_t last = kNever;       // the row of a smaller one at the end
  uint32_t begin = 0;           // events
  uint32_t end = 0;
};

class ChunkSearch {
 public:
  ChunkSearch(const RecordedProgram& program, SizeLaws& laws)
      : p_(program), all_(program.model().allocations), laws_(laws), layers_(program) {}

  void run() {
    if (!p_.knows_modules()) return;  // repeated layers would look the same
    find_loops();
    decide();
    for (const ChunkLoop& loop : loops_) {
      if (!grow_.contains(loop.line)) set_laws(loop);
    }
    for (uint32_t i = 0; i < p_.rows(); ++i) {
      const Line line = line_of(i);
      if (sure_.contains(line) && is_candidate(i) && laws_[i].chunk == 0) set_single(i, line);
    }
  }

 private:
  Line line_of(uint32_t row) const { return {all_.stack(row), all_.nn_module(row)}; }
  bool may_be(uint32_t row) const {
    const SizeLaw& law = laws_[row];
    return law.scaled == p_.bytes(row) && law.batch == 1 && law.most == 0 && !all_.seeded(row);
  }
  bool is_candidate(uint32_t row) const {
    const StackRole role = p_.role(row);
    // What checkpointing runs again is called by the engine, and not by the module it belongs to.
    const bool again = role == StackRole::kUser && !p_.module_path(row).empty();
    return (role == StackRole::kForward || again) && p_.bytes(row) > kSmallBytes && may_be(row) &&
           layers_.of(row) == Layers::kNoLayer;
  }

  void find_loops() {
    std::map<std::pair<Line, uint64_t>, std::vector<uint32_t>> blocks;  // by line and size
    std::map<Line, std::vector<uint32_t>> of_line;
    for (uint32_t i = 0; i < p_.rows(); ++i) {
      if (!is_candidate(i)) continue;
      blocks[{line_of(i), p_.bytes(i)}].push_back(i);
      of_line[line_of(i)].push_back(i);
    }
    for (const auto& [key, rows] : blocks) {
      if (rows.size() < 2) continue;
      ChunkLoop loop{key.first, {rows.front()}, kNever, 0, 0};
      for (size_t k = 1; k <= rows.size(); ++k) {
        if (k < rows.size() && follow(rows[k - 1], rows[k])) {
          loop.whole.push_back(rows[k]);
          continue;
        }
        if (loop.whole.size() > 1) add(loop, of_line.at(key.first));
        if (k < rows.size()) loop.whole = {rows[k]};
      }
    }
  }
  // `rows`: all of the line.
  void add(ChunkLoop loop, const std::vector<uint32_t>& rows) {
    const uint32_t last = loop.whole.back();
    loop.last = kNever;
    const auto next = std::upper_bound(rows.begin(), rows.end(), last);
    for (auto at = next; at != rows.end() && follow(last, *at); ++at) {
      if (p_.bytes(*at) >= p_.bytes(last)) continue;
      const bool is_whole = std::any_of(rows.begin(), next, [&](uint32_t row) {
        return row >= loop.whole.front() && p_.bytes(row) == p_.bytes(*at);
      });
      if (is_whole) continue;  // of another size that the line makes
      loop.last = *at;
      break;
    }
    loop.begin = all_.birth(loop.whole.front());
    loop.end = all_.release(loop.last == kNever ? last : loop.last);
    loops_.push_back(std::move(loop));
  }

  // Whether the second is the same of the next chunk: the first is gone, no layer ran, and all that
  // stays of what was made meanwhile is small, such as a sum. Steps of a recurrent layer leave
  // their results, and what they need more grows with the batch.
  bool follow(uint32_t a, uint32_t b) const {
    const uint32_t birth = all_.birth(b);
    if (all_.release(a) > birth || has_call_between(all_.birth(a), birth)) return false;
    uint64_t left = 0;
    for (uint32_t i = a + 1; i < b; ++i) {
      if (layers_.of(i) != Layers::kNoLayer || p_.role(i) == StackRole::kOptimizer) return false;
      const bool of_weight =
          p_.is_parameter_size(p_.bytes(i)) || p_.is_parameter_size(2 * p_.bytes(i));
      if (all_.release(i) > birth && laws_[i].scaled != 0 && !of_weight) left += p_.bytes(i);
    }
    return left <= p_.bytes(a) / 4;
  }
  bool has_call_between(uint32_t begin, uint32_t end) const {
    return lies_between(p_.call_events(), begin, end) ||
           lies_between(p_.steps().boundaries, begin, end);
  }
  static bool lies_between(const std::vector<uint32_t>& events, uint32_t begin, uint32_t end) {
    const auto next = std::upper_bound(events.begin(), events.end(), begin);
    return next != events.end() && *next <= end;
  }

  // Loops of other lengths tell: with the same sizes, chunks are fixed, and with others, their
  // number is. The first and the last may be parts of loops. What a line makes in its largest size
  // counts: others may be of weights.
  void decide() {
    std::map<Line, std::vector<const ChunkLoop*>> of_line;
    for (const ChunkLoop& loop : loops_) of_line[loop.line].push_back(&loop);
    for (auto& [line, loops] : of_line) {
      uint64_t largest = 0;
      for (const ChunkLoop* loop : loops) largest = std::max(largest, chunk_bytes(*loop));
      if (varies(loops)) {
        grow_.insert(line);
        continue;
      }
      std::erase_if(loops, [&](const ChunkLoop* loop) { return chunk_bytes(*loop) != largest; });
      std::sort(loops.begin(), loops.end(),
                [](const ChunkLoop* a, const ChunkLoop* b) { return a->begin < b->begin; });
      std::set<uint64_t> totals;
      for (size_t k = 1; k + 1 < loops.size(); ++k) totals.insert(total_bytes(*loops[k]));
      if (totals.size() > 1) sure_[line] = largest;
    }
  }
  // Whether the loops of one step have none of the sizes of another.
  bool varies(const std::vector<const ChunkLoop*>& loops) const {
    std::map<uint64_t, std::set<uint64_t>> steps;  // with each size
    std::set<uint64_t> all;
    for (const ChunkLoop* loop : loops) {
      const uint64_t step = p_.steps().before_event(loop->begin);
      steps[chunk_bytes(*loop)].insert(step);
      all.insert(step);
    }
    return std::none_of(steps.begin(), steps.end(),
                        [&](const auto& size) { return size.second == all; });
  }
  uint64_t chunk_bytes(const ChunkLoop& loop) const { return p_.bytes(loop.whole.front()); }
  uint64_t total_bytes(const ChunkLoop& loop) const {
    return chunk_bytes(loop) * loop.whole.size() + (loop.last == kNever ? 0 : p_.bytes(loop.last));
  }

  void set_laws(const ChunkLoop& loop) {
    const uint64_t chunk = chunk_bytes(loop);
    const bool sure = sure_.contains(loop.line);
    const uint64_t last = loop.last == kNever ? 0 : p_.bytes(loop.last);
    const uint64_t total = total_bytes(loop);
    for (const uint32_t row : loop.whole) set(row, total, chunk, sure);
    if (last != 0) set(loop.last, last, chunk, sure);
    const BirthRange meanwhile = births_within(p_.model(), loop.begin, loop.end);
    for (size_t i = meanwhile.begin; i < meanwhile.end; ++i) {
      const auto row = static_cast<uint32_t>(i);
      if (p_.role(row) != StackRole::kBackward || !may_be(row) || laws_[row].chunk != 0) continue;
      if (p_.bytes(row) == chunk) set(row, total, chunk, sure);
      if (last != 0 && p_.bytes(row) == last) set(row, last, chunk, sure);
    }
  }
  void set(uint32_t row, uint64_t scaled, uint64_t chunk, bool sure) {
    laws_[row] = {0, scaled, 1, 1, sure, 0, 1, 1, chunk};
  }
  // In a step that has one chunk only.
  void set_single(uint32_t row, const Line& line) {
    const uint64_t chunk = sure_.at(line);
    if (p_.bytes(row) <= chunk) set(row, p_.bytes(row), chunk, true);
  }

  const RecordedProgram& p_;
  const AllocationColumns& all_;
  SizeLaws& laws_;
  Layers layers_;
  std::vector<ChunkLoop> loops_;
  std::map<Line, uint64_t> sure_;  // with the size of a chunk
  std::set<Line> grow_;
};

}  // namespace

void find_chunks(const RecordedProgram& program, SizeLaws& laws) {
  ChunkSearch(program, laws).run();
}

}  // namespace tidemark
