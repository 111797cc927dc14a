#include "analysis/plan/checkpointing.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tidemark {

namespace {

class Checkpointing {
 public:
  Checkpointing(const RecordedProgram& program, const RequestLog& log, const RequestPlaces& places,
                const std::vector<LayerPass>& passes, const std::vector<uint64_t>& sizes,
                RequestEdits& edits)
      : p_(program),
        log_(log),
        places_(places),
        passes_(passes),
        sizes_(sizes),
        edits_(edits),
        saved_(passes.empty() ? 0 : most_layer() + 1),
        runs_(saved_.size(), 0) {
    for (const LayerPass& pass : passes_) {
      ++runs_[pass.layer];
      if (pass.has_backward()) add_alive(pass, pass.back_begin, saved_[pass.layer]);
    }
  }

  // Without gradients nothing is kept, and the results of an operation are freed once the next
  // but one has its own. The backward pass of the layer begins by running it again.
  bool run() {
    bool changes = false;
    uint64_t last_output = 0;
    std::vector<bool> ran(saved_.size(), false);  // in this run of the model
    bool keeps = false;
    for (size_t i = 0; i < passes_.size(); ++i) {
      const LayerPass& pass = passes_[i];
      if (ran[pass.layer]) {
        ran.assign(ran.size(), false);
        last_output = 0;
        keeps = false;
      }
      ran[pass.layer] = true;
      // No layer follows the last one, which tells by what it leaves: it is as those before it.
      const bool last = i + 1 == passes_.size() || ran[passes_[i + 1].layer];
      keeps = pass.has_backward() || keeps_graph(i) || (last && keeps);
      if (!keeps) continue;
      std::vector<uint32_t> kept;
      for (const uint32_t row : pass.rows) {
        const uint32_t freed = places_.freed(row);
        const bool stays = freed == kNever && pass.has_backward();
        if (freed >= pass.end && !stays && sizes_[row] != 0 &&
            p_.category(row) != Category::kKvCache) {
          kept.push_back(row);
        }
      }
      const uint32_t output = output_of(kept, last_output);
      if (output != kNever) last_output = p_.bytes(output);
      std::erase(kept, output);
      uint64_t inside = 0;
      for (const uint32_t row : kept) inside += p_.bytes(row);
      // Nothing is kept but the result, because it is checkpointed already.
      if (kept.empty() || (pass.recomputes && inside <= last_output)) continue;
      changes = true;
      for (size_t k = 0; k < kept.size(); ++k) {
        const uint32_t at = k + 2 < kept.size() ? places_.made(kept[k + 2]) : pass.end;
        edits_.insert(at, {kept[k], RequestKind::kFree});
      }
      if (pass.has_backward()) run_again(pass, output);
    }
    return changes;
  }

 private:
  using Places = std::set<std::pair<uint32_t, uint32_t>>;  // nn.Modules and innermost frames

  uint32_t most_layer() const {
    return std::max_element(
               passes_.begin(), passes_.end(),
               [](const LayerPass& a, const LayerPass& b) { return a.layer < b.layer; })
        ->layer;
  }

  // Where the blocks were made that a run leaves until a request.
  void add_alive(const LayerPass& pass, uint32_t until, Places& places) const {
    const AllocationColumns& all = p_.model().allocations;
    for (const uint32_t row : pass.rows) {
      if (places_.freed(row) < until || p_.category(row) == Category::kKvCache) continue;
      places.emplace(all.nn_module(row), p_.process().names.stack(all.stack(row)).frame);
    }
  }

  // Whether a run without a backward pass leaves, when the next layer has run, what others leave
  // for theirs.
  bool keeps_graph(size_t number) const {
    constexpr size_t kSeveral = 3;
    const LayerPass& pass = passes_[number];
    const uint32_t until = number + 1 < passes_.size() ? passes_[number + 1].end : edits_.end();
    Places alive;
    add_alive(pass, until, alive);
    const Places& others = saved_[pass.layer];
    if (others.empty()) {  // in the first call of a model, which failed
      return p_.passes().empty() && !p_.model().failures.empty() && runs_[pass.layer] == 1 &&
             alive.size() >= kSeveral;
    }
    const auto known = std::count_if(alive.begin(), alive.end(),
                                     [&](const auto& place) { return others.contains(place); });
    return 2 * static_cast<size_t>(known) >= others.size();
  }

  // The recorded order of the layer's requests; what was freed before the backward pass is again.
  void run_again(const LayerPass& pass, uint32_t output) {
    const auto repeats = [&](uint32_t row) {
      return row != output && row < p_.rows() && places_.made(row) >= pass.begin &&
             places_.made(row) < pass.end && places_.freed(row) != kNever;
    };
    for (uint32_t at = pass.begin; at < pass.end; ++at) {
      const auto [subject, kind] = log_.requests[at];
      if (kind == RequestKind::kAllocate && repeats(subject)) {
        edits_.insert(pass.back_begin, {subject, kind});
      } else if ((kind == RequestKind::kFree || kind == RequestKind::kRelease) &&
                 repeats(subject)) {
        edits_.insert(pass.back_begin, {subject, RequestKind::kFree});
      }
    }
    for (const uint32_t row : pass.rows) {
      const uint32_t freed = places_.freed(row);
      if (repeats(row) && freed >= pass.end && freed < pass.back_begin) {
        edits_.insert(pass.back_begin, {row, RequestKind::kFree});
      }
    }
  }

  // The result is what the next layer begins with: the last block that is not smaller than what
  // the layer before gave to this one. Statistics of a normalization are none.
  uint32_t output_of(const std::vector<uint32_t>& kept, uint64_t input_bytes) const {
    constexpr uint64_t kOfLargest = 16;
    uint64_t largest = 0;
    for (const uint32_t row : kept) largest = std::max(largest, p_.bytes(row));
    uint32_t last = kNever;
    for (auto row = kept.rbegin(); row != kept.rend(); ++row) {
      if (p_.bytes(*row) < largest / kOfLargest) continue;
      if (p_.bytes(*row) >= input_bytes) return *row;
      if (last == kNever) last = *row;
    }
    return last;
  }

  const RecordedProgram& p_;
  const RequestLog& log_;
  const RequestPlaces& places_;
  const std::vector<LayerPass>& passes_;
  const std::vector<uint64_t>& sizes_;
  RequestEdits& edits_;
  std::vector<Places> saved_;   // by layer: for its backward pass
  std::vector<uint32_t> runs_;  // by layer
};

// Allocations and frees alone, whatever the allocator did with them.
RequestLog requests_of(const AllocationHistory& model) {
  RequestLog log;
  log.blocks.resize(model.allocations.size());
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    const Change change = model.change[e];
    if (change == Change::kBirth)
      log.requests.push_back({model.subject[e], RequestKind::kAllocate});
    if (change == Change::kRelease) log.requests.push_back({model.subject[e], RequestKind::kFree});
  }
  return log;
}

uint64_t peak_of(const AllocationHistory& model, const std::vector<Request>& requests) {
  std::vector<bool> live(model.allocations.size(), false);
  uint64_t now = 0;
  uint64_t peak = 0;
  for (const Request& r : requests) {
    const bool allocates = r.kind == RequestKind::kAllocate;
    if (live[r.subject] == allocates) continue;
    live[r.subject] = allocates;
    const uint64_t bytes = model.allocations[r.subject].block_bytes;
    now = allocates ? now + bytes : now - bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace

bool checkpoint_layers(const RecordedProgram& program, const RequestLog& log,
                       const RequestPlaces& places, const std::vector<LayerPass>& passes,
                       const std::vector<uint64_t>& sizes, RequestEdits& edits) {
  return Checkpointing(program, log, places, passes, sizes, edits).run();
}

std::optional<CheckpointSaving> checkpoint_saving(const RecordedProgram& program) {
  const Layers layers(program);
  if (layers.empty()) return std::nullopt;
  const RequestLog log = requests_of(program.model());
  const RequestPlaces places(program, log);
  RequestEdits edits(log);
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < program.rows(); ++i) sizes.push_back(program.bytes(i));
  const std::vector<LayerPass> passes = layer_passes(program, layers, places);
  checkpoint_layers(program, log, places, passes, sizes, edits);
  std::set<uint32_t> began;
  for (const LayerPass& pass : passes) began.insert(pass.layer);
  std::vector<Request> requests;
  std::vector<int64_t> times;
  std::move(edits).take(places, requests, times);
  const uint64_t before = peak_of(program.model(), log.requests);
  const uint64_t after = peak_of(program.model(), requests);
  return CheckpointSaving{layers.paths().size(), before - std::min(before, after), began.size()};
}

}  // namespace tidemark
