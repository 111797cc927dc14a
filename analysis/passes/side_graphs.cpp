#include "analysis/passes/side_graphs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/names/module_stacks.h"
#include "analysis/names/program_places.h"

namespace tidemark {

namespace {

// A call of a function of the program: where it was called, and its name and file.
using Call = std::tuple<uint32_t, uint32_t, uint32_t>;

class Search {
 public:
  Search(const Dictionary& names, const AllocationHistory& model)
      : model_(model), all_(model.allocations), places_(names), in_module_(module_stacks(names)) {
    for (uint32_t stack = 1; stack < in_module_.size(); ++stack) {
      if (in_module_[stack]) calls_model_.insert(call_of(stack));
    }
  }

  // Those of the steps that call this backward pass. `next`: the event at which the one after it
  // begins.
  void look_at(const BackwardPass& pass, uint32_t next, std::vector<SideGraph>& out) const {
    const BirthRange rows = births_within(model_, pass.forward_first, pass.first);
    std::map<Call, std::vector<uint32_t>> by_call;
    size_t used = 0;  // activations of modules
    size_t left = 0;  // the model's results are, which variables hold
    bool in_model = false;
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (all_.seeded(i)) continue;
      const uint32_t stack = all_.stack(i);
      if (stack < in_module_.size() && in_module_[stack]) {
        in_model = true;
        if (all_.release(i) < pass.first || all_.block_bytes(i) <= kSmallBytes) continue;
        ++(all_.release(i) < pass.end ? used : left);
      } else if (in_model) {
        const Call call = call_of(stack);
        if (std::get<1>(call) != 0 && !calls_model_.contains(call)) {
          by_call[call].push_back(static_cast<uint32_t>(i));
        }
      }
    }
    if (used <= left) return;  // graphs that are retained
    for (const auto& [call, of_call] : by_call) add(pass, next, of_call, out);
  }

 private:
  static constexpr uint32_t kFreedTogether = 64;  // events
  static constexpr size_t kLeastBlocks = 2;       // one may be in a variable

  // The innermost line outside PyTorch and modules.
  Call call_of(uint32_t stack) const {
    uint32_t place = places_.of(stack);
    while (place != 0 && places_[place].inside) place = places_[place].caller;
    if (place == 0) return {};
    return {places_[place].caller, places_[place].function, places_[place].file};
  }

  void add(const BackwardPass& pass, uint32_t next, const std::vector<uint32_t>& of_call,
           std::vector<SideGraph>& out) const {
    SideGraph graph;
    graph.pass = pass;
    for (const uint32_t row : of_call) {
      if (all_.block_bytes(row) <= kSmallBytes) continue;
      // Something else was computed since: autograd frees some of its own after its last result.
      const uint32_t release = all_.release(row);
      const bool outlives =
          release > pass.last && release < next && any_birth(pass.last + 1, release);
      (outlives ? graph.rows : graph.temporaries).push_back(row);
      (outlives ? graph.bytes : graph.temporary_bytes) += all_.block_bytes(row);
    }
    if (graph.rows.size() < kLeastBlocks || !is_freed_as_graph(graph.rows)) return;
    if (has_small_result(of_call, graph.rows)) out.push_back(std::move(graph));
  }

  bool is_freed_as_graph(const std::vector<uint32_t>& rows) const {
    const uint32_t first = all_.release(rows.back());
    const uint32_t last = all_.release(rows.front());
    if (first >= last || last - first > kFreedTogether) return false;
    for (const uint32_t row : rows) {
      if (all_.release(row) < first || all_.release(row) > last) return false;
    }
    return !any_birth(first, last);
  }

  bool any_birth(uint32_t first, uint32_t last) const {
    const BirthRange births = births_within(model_, first, last);
    return births.begin != births.end;
  }

  // What keeps the graph goes with it: a tensor lets go of its graph first, then of its memory.
  bool has_small_result(const std::vector<uint32_t>& of_call,
                        const std::vector<uint32_t>& rows) const {
    const uint32_t first = all_.release(rows.back());
    const uint32_t last = all_.release(rows.front());
    return std::any_of(of_call.begin(), of_call.end(), [&](uint32_t row) {
      const uint32_t release = all_.release(row);
      return row > rows.back() && all_.block_bytes(row) <= kSmallBytes && release < last &&
             release + kFreedTogether >= first &&
             !any_birth(std::min(release, first), std::max(release, first));
    });
  }

  const AllocationHistory& model_;
  const AllocationColumns& all_;
  const Places places_;
  const std::vector<bool> in_module_;  // by stack
  std::set<Call> calls_model_;
};

}  // namespace

std::vector<SideGraph> find_side_graphs(const Dictionary& names, const AllocationHistory& model,
                                        std::span<const BackwardPass> passes) {
  std::vector<SideGraph> found;
  if (passes.empty()) return found;
  const Search search(names, model);
  for (size_t i = 0; i < passes.size(); ++i) {
    search.look_at(passes[i], i + 1 < passes.size() ? passes[i + 1].first : kNever, found);
  }
  return found;
}

}  // namespace tidemark
