#include "analysis/plan/planned_run.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/names/stack_lines.h"
#include "analysis/passes/first_step.h"
#include "analysis/plan/checkpointing.h"
#include "analysis/plan/layer_passes.h"
#include "analysis/plan/planned_sizes.h"
#include "analysis/plan/request_edits.h"

namespace tidemark {

namespace {

// FSDP2 gathers and reduces on streams of its own, whose memory is apart.
constexpr uint64_t kGatherStream = 0xfd01;
constexpr uint64_t kReduceStream = 0xfd02;
constexpr uint64_t kScalarBytes = 8;  // a counter of steps

class RunPlanner {
 public:
  RunPlanner(const RecordedProgram& program, const RequestLog& log, const PlanChange& change,
             std::vector<uint64_t> sizes, Estimate estimate)
      : p_(program),
        log_(log),
        change_(change),
        estimate_(estimate),
        places_(program, log),
        edits_(log) {
    sizes_ = std::move(sizes);
  }

  Result<PlannedRun> run(const std::vector<uint32_t>& earlier) {
    for (const uint32_t row : earlier) {
      if (places_.made(row) != kNever) edits_.move(places_.made(row), first_step());
    }
    if (change_.checkpoint) {
      const Layers layers(p_, change_.checkpoint_modules);
      if (layers.empty()) return no_layers("--checkpoint");
      const std::vector<LayerPass> passes = layer_passes(p_, layers, places_);
      if (!checkpoint_layers(p_, log_, places_, passes, sizes_, edits_)) {
        const bool again = std::any_of(passes.begin(), passes.end(),
                                       [](const LayerPass& pass) { return pass.recomputes; });
        return Error{again ? "--checkpoint: the recorded program computes these layers again in "
                             "its backward passes already"
                           : "--checkpoint: no backward pass of these layers was recorded, so that "
                             "there is nothing to compute again in one"};
      }
    }
    if (estimate_ != Estimate::kLow && adds_autocast(p_, change_)) add_weight_copies();
    if (change_.optimizer != PlanOptimizer::kRecorded) {
      if (Status ok = add_optimizer(); !ok) return ok.error();
    }
    if (change_.ranks > 1 && change_.shard != PlanShard::kNone) {
      if (change_.shard == PlanShard::kZero3) {
        const Layers layers(p_);
        if (layers.empty()) return no_layers("--shard zero3");
        shard_fully(layers, layer_passes(p_, layers, places_));
      } else {
        add_buckets();
      }
    }
    return finish();
  }

 private:
  Error no_layers(const std::string& option) const {
    if (!p_.knows_modules() && !calls_modules()) {
      return Error{option +
                   " needs layers, and no call of an nn.Module was found in this recording"};
    }
    if (!p_.knows_modules()) {
      return Error{option +
                   " needs the nn.Modules of the program, which this recording does not have: "
                   "record it with tidemark run"};
    }
    if (!change_.checkpoint_modules.empty() && option == "--checkpoint") {
      return Error{"--checkpoint: none of these nn.Modules is in the recording"};
    }
    return Error{option + ": no repeated layers were found; name them with --checkpoint MODULES"};
  }

  // Whether stacks go through calls of modules, or there are no stacks of Python to tell.
  bool calls_modules() const {
    const Dictionary& names = p_.process().names;
    bool has_python = false;
    for (uint32_t id = 1; id < names.frame_count(); ++id) {
      const std::string frame = names.frame_text(id);
      if (!is_python_line(frame)) continue;
      if (frame.find("torch/nn/modules/module.py:") != frame.npos) return true;
      has_python = true;
    }
    return !has_python;
  }

  // States per weight that the wanted optimizer has beyond those of the recorded one, and whether
  // its step allocates memory that the recorded one does not.
  struct Additions {
    uint64_t states = 0;
    bool temporaries = false;
  };

  // AdamW keeps two states for each weight, SGD with momentum one. AdamW's foreach implementation
  // also allocates the square roots of one of them in each step.
  Additions optimizer_additions(uint64_t gradient_bytes) const {
    const PlanOptimizer wanted = change_.optimizer;
    const bool adamw = wanted == PlanOptimizer::kAdamW || wanted == PlanOptimizer::kAdamW8bit;
    const uint64_t states = adamw ? 2 : wanted == PlanOptimizer::kSgdMomentum ? 1 : 0;
    uint64_t recorded = 0;
    uint64_t temporary = 0;  // of all steps
    for (size_t i = 0; i < p_.rows(); ++i) {
      const uint64_t bytes = p_.bytes(i) > kScalarBytes ? p_.bytes(i) : 0;
      if (p_.category(i) == Category::kOptimizerState) {
        recorded += bytes;
      } else if (p_.role(i) == StackRole::kOptimizer && p_.category(i) != Category::kParameter &&
                 p_.category(i) != Category::kGradient) {
        temporary += bytes;
      }
    }
    const uint64_t per_weight = (recorded + gradient_bytes / 2) / gradient_bytes;
    return {states - std::min(states, per_weight),
            wanted == PlanOptimizer::kAdamW && temporary < gradient_bytes / 2};
  }

  Status add_optimizer() {
    if (!p_.has_optimizer() && p_.passes().empty()) {
      return Error{"--optimizer: the recorded program has no optimizer and no backward pass"};
    }
    const std::vector<uint32_t> gradients = p_.gradients();
    uint64_t bytes = 0;
    for (const uint32_t row : gradients) bytes += p_.bytes(row);
    if (bytes == 0) {
      if (change_.optimizer == PlanOptimizer::kFused || change_.optimizer == PlanOptimizer::kSgd) {
        return {};
      }
      return Error{
          "--optimizer: no gradients were found in this recording, so the states of another "
          "optimizer cannot be planned"};
    }
    const Additions add = optimizer_additions(bytes);
    add_states(gradients, add.states);
    if (add.temporaries) add_temporaries(gradients);
    return {};
  }

  // Autocast copies each weight of a product once in a forward pass, and the graph keeps the copy
  // until the backward pass has used it. Without one, copies stay to the end of autocast.
  void add_weight_copies() {
    const uint32_t first = p_.first_forward();
    if (first == kNever) return;
    if (p_.passes().empty()) {
      add_weight_copies(first, places_.after_birth(p_.last_forward()) + 1);
    }
    for (const BackwardPass& pass : p_.passes()) {
      add_weight_copies(pass.forward_first, places_.after_birth(pass.last) + 1);
    }
  }
  void add_weight_copies(uint32_t event, uint32_t until) {
    const uint32_t at = places_.after_birth(event);
    std::multiset<uint64_t> tables = sizes_of_tables();
    const AllocationColumns& all = p_.model().allocations;
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.category(i) != Category::kParameter || all.birth(i) > event ||
          all.release(i) <= event || sizes_[i] == 0)
        continue;
      if (const auto table = tables.find(p_.bytes(i)); table != tables.end()) {
        tables.erase(table);
        continue;
      }
      free_block(until, add_block(at, (sizes_[i] + 1) / 2, Category::kTemporary));
    }
  }

  // Of embeddings, which are looked up and not multiplied.
  std::multiset<uint64_t> sizes_of_tables() const {
    std::multiset<uint64_t> sizes;
    for (const uint32_t row : p_.gradients()) {
      const std::string_view node = p_.operation(row);
      if (node.find("mbedding") != node.npos) sizes.insert(p_.bytes(row));
    }
    return sizes;
  }

  bool is_first_step() const {
    return ends_with_first_step(p_.model(), p_.categories(), p_.passes());
  }

  // Where the first pass begins.
  uint32_t first_step() const {
    const uint32_t forward = p_.first_forward();
    return places_.after_birth(forward == kNever ? p_.passes().front().forward_first : forward);
  }

  // The first step of the optimizer follows the first backward pass. With gradients from before the
  // history, there were steps before it; where it is the only one, later ones are planned.
  void add_states(const std::vector<uint32_t>& gradients, uint64_t states) {
    const bool older = p_.model().allocations.seeded(gradients.front());
    const uint32_t at = older             ? 0
                        : is_first_step() ? first_step()
                                          : optimizer_step_after(p_.passes().front());
    for (const uint32_t row : gradients) {
      uint64_t bytes = sizes_[row];
      if (change_.optimizer == PlanOptimizer::kAdamW8bit) {
        bytes = state_bytes_8bit(bytes, planned_weight_bytes(p_, change_));
      }
      bytes = optimizer_share(bytes);
      for (uint64_t i = 0; i < states; ++i) add_block(at, bytes, Category::kOptimizerState);
    }
  }

  void add_temporaries(const std::vector<uint32_t>& gradients) {
    for (const BackwardPass& pass : p_.passes()) {
      const uint32_t at = optimizer_step_after(pass);
      std::vector<uint32_t> blocks;
      for (const uint32_t row : gradients) {
        blocks.push_back(add_block(at, optimizer_share(sizes_[row]), Category::kTemporary));
      }
      for (const uint32_t block : blocks) free_block(at, block);
    }
  }

  // Where a backward pass has freed what it used, the recorded optimizer has allocated its memory,
  // and the gradients are still there.
  uint32_t optimizer_step_after(const BackwardPass& pass) const {
    uint32_t at = places_.after_birth(pass.last) + 1;
    for (; at < edits_.end(); ++at) {
      const auto [subject, kind] = log_.requests[at];
      if (subject >= p_.rows()) break;
      const bool frees = kind == RequestKind::kFree || kind == RequestKind::kRelease;
      const bool optimizes = p_.role(subject) == StackRole::kOptimizer ||
                             p_.role(subject) == StackRole::kOptimizerInit;
      if (frees ? p_.category(subject) == Category::kGradient : !optimizes) break;
    }
    return at;
  }

  uint64_t share(uint64_t bytes) const { return (bytes + change_.ranks - 1) / change_.ranks; }
  // Of a gradient's size, which is that of a shard already with ZeRO-2.
  uint64_t optimizer_share(uint64_t bytes) const {
    const bool whole = change_.shard == PlanShard::kZero1 || change_.shard == PlanShard::kZero3;
    return change_.ranks > 1 && whole ? share(bytes) : bytes;
  }

  // Returns the id of the block.
  uint32_t add_block(uint32_t at, uint64_t bytes, Category category, uint64_t stream = 0) {
    const auto id = static_cast<uint32_t>(log_.blocks.size() + added_.size());
    added_.push_back({bytes, stream == 0 ? main_stream() : stream, 0});
    added_category_.push_back(category);
    edits_.insert(at, {id, RequestKind::kAllocate});
    return id;
  }
  void free_block(uint32_t at, uint32_t id) { edits_.insert(at, {id, RequestKind::kFree}); }
  uint64_t main_stream() const { return log_.blocks.empty() ? 0 : log_.blocks.front().stream; }

  // DistributedDataParallel copies gradients into buckets of 25 MiB, the first of 1 MiB.
  void add_buckets() {
    constexpr uint64_t kBucketBytes = uint64_t{25} << 20;
    constexpr uint64_t kFirstBytes = uint64_t{1} << 20;
    const std::vector<uint32_t> gradients = p_.gradients();
    if (gradients.empty()) return;
    const uint32_t at =
        p_.passes().empty() ? 0 : places_.after_birth(p_.passes().front().forward_first);
    uint64_t bucket = 0;
    uint64_t cap = kFirstBytes;
    for (const uint32_t row : gradients) {
      bucket += sizes_[row] * (change_.shard == PlanShard::kZero2 ? change_.ranks : 1);
      if (bucket < cap) continue;
      add_block(at, bucket, Category::kCommunication);
      bucket = 0;
      cap = kBucketBytes;
    }
    if (bucket != 0) add_block(at, bucket, Category::kCommunication);
  }

  // FSDP2: a layer's parameters are gathered before it runs and freed after it, in both passes; its
  // gradients are reduced to shards at the end of its backward pass. What belongs to no layer is
  // the root's: gathered in the forward pass and kept until the backward pass has ended.
  void shard_fully(const Layers& layers, const std::vector<LayerPass>& passes) {
    std::vector<std::vector<uint64_t>> parameters(layers.paths().size() + 1);
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.category(i) != Category::kParameter || sizes_[i] == 0) continue;
      const size_t group = std::min<size_t>(layers.of(i), layers.paths().size());
      parameters[group].push_back(sizes_[i] * change_.ranks);
    }
    const auto flat_of = [&](uint32_t at, size_t group) {
      uint64_t all = 0;
      for (const uint64_t bytes : parameters[group]) all += bytes;
      return all == 0 ? kNever : add_block(at, all, Category::kCommunication, kGatherStream);
    };
    const auto unshard = [&](uint32_t at, size_t group, uint32_t until) {
      for (const uint64_t bytes : parameters[group]) {
        free_block(until, add_block(at, bytes, Category::kCommunication));
      }
    };
    gather_forward(passes, layers.paths().size(), flat_of, unshard);
    std::vector<LayerPass> backward = passes;
    std::erase_if(backward, [](const LayerPass& pass) { return !pass.has_backward(); });
    std::sort(backward.begin(), backward.end(),
              [](const LayerPass& a, const LayerPass& b) { return a.back_begin < b.back_begin; });
    // While a layer runs, the next one is gathered.
    uint32_t flat = kNever;
    for (size_t i = 0; i < backward.size(); ++i) {
      const LayerPass& pass = backward[i];
      if (flat == kNever) flat = flat_of(pass.back_begin, pass.layer);
      unshard(pass.back_begin, pass.layer, pass.back_end);
      if (flat != kNever) free_block(pass.back_begin, flat);
      const bool more = i + 1 < backward.size() && backward[i + 1].begin < pass.begin;
      flat = more ? flat_of(pass.back_begin, backward[i + 1].layer) : kNever;
    }
    reduce_gradients(layers, backward);
  }

  // In the forward pass the buffer of a gather is kept until the next one has its own.
  template <typename Flat, typename Unshard>
  void gather_forward(const std::vector<LayerPass>& passes, size_t root, const Flat& flat_of,
                      const Unshard& unshard) {
    uint32_t last = kNever;
    const auto gather = [&](uint32_t at, size_t group, uint32_t until) {
      const uint32_t flat = flat_of(at, group);
      if (last != kNever) free_block(at, last);
      last = flat;
      unshard(at, group, until);
    };
    auto next = passes.begin();
    const auto gather_until = [&](uint32_t at) {
      for (; next != passes.end() && next->begin < at; ++next) {
        gather(next->begin, next->layer, next->end);
      }
    };
    for (const BackwardPass& whole : p_.passes()) {
      const uint32_t begin = places_.after_birth(whole.forward_first);
      const uint32_t turn = places_.after_birth(whole.first);
      gather_until(begin);
      gather(begin, root, places_.after_birth(whole.last) + 1);
      gather_until(turn);
      if (last != kNever) free_block(turn, last);
      last = kNever;
    }
    gather_until(edits_.end());
  }

  // The recorded gradients become temporaries: a shard stays as long as they did.
  void reduce_gradients(const Layers& layers, const std::vector<LayerPass>& backward) {
    uint32_t input = kNever;  // of the last reduction: freed by the next one
    const auto reduce = [&](uint32_t at, const std::vector<uint32_t>& rows) {
      uint64_t all = 0;
      uint32_t until = 0;
      for (const uint32_t row : rows) {
        all += sizes_[row];
        until = std::max(until, std::min(places_.freed(row), edits_.end()));
      }
      if (all == 0) return;
      if (input != kNever) free_block(at, input);
      input = add_block(at, all, Category::kCommunication);
      const uint32_t kept = add_block(at, share(all), Category::kGradient, kReduceStream);
      if (until < edits_.end()) free_block(until, kept);
      for (const uint32_t row : rows) free_block(at, row);
    };
    std::vector<bool> done(p_.rows(), false);
    for (const LayerPass& pass : backward) {
      std::vector<uint32_t> rows;
      for (uint32_t i = pass.rows.back(); i < p_.rows(); ++i) {
        const uint32_t made = places_.made(i);
        if (made != kNever && made > pass.back_end) break;
        if (p_.category(i) == Category::kGradient && layers.of(i) == pass.layer && !done[i]) {
          rows.push_back(i);
          done[i] = true;
        }
      }
      reduce(pass.back_end, rows);
    }
    for (const BackwardPass& pass : p_.passes()) {
      std::vector<uint32_t> rows;
      const BirthRange range = births_within(p_.model(), pass.first, pass.end);
      for (size_t i = range.begin; i < range.end; ++i) {
        if (p_.category(i) == Category::kGradient && !done[i]) {
          rows.push_back(static_cast<uint32_t>(i));
        }
      }
      const uint32_t at = places_.after_birth(pass.last) + 1;
      reduce(at, rows);
      if (input != kNever) free_block(at, input);
      input = kNever;
    }
  }

  // The block that the same operation got for this request when it last succeeded.
  uint32_t row_like_failure(size_t number) const {
    const AllocationHistory& model = p_.model();
    if (number >= model.failures.size() || model.failures[number].stack == 0) return kNever;
    const FailedAllocation& failure = model.failures[number];
    const auto end = static_cast<uint32_t>(births_within(model, 0, failure.event + 1).end);
    const auto follows = [&](uint32_t row) {
      return row != 0 && model.allocations.stack(row) == model.allocations.stack(row - 1) &&
             model.allocations.nn_module(row) == model.allocations.nn_module(row - 1);
    };
    uint32_t place = 0;  // of the request within its operation
    if (end != 0 && model.allocations.stack(end - 1) == failure.stack) {
      for (uint32_t row = end - 1; follows(row); --row) ++place;
      ++place;
    }
    uint32_t like = kNever;
    uint32_t at = 0;
    for (uint32_t row = 0; row < end; ++row) {
      at = follows(row) ? at + 1 : 0;
      if (at == place && model.allocations.stack(row) == failure.stack && p_.bytes(row) != 0) {
        like = row;
      }
    }
    return like;
  }

  static uint64_t in_ratio(uint64_t bytes, uint64_t planned, uint64_t recorded) {
    const double grown =
        static_cast<double>(bytes) * static_cast<double>(planned) / static_cast<double>(recorded);
    return static_cast<uint64_t>(std::clamp(std::ceil(grown - 1e-6), 1.0, kMostPlannedBytes));
  }

  Result<PlannedRun> finish() {
    PlannedRun out;
    out.blocks = log_.blocks;
    for (size_t i = 0; i < p_.rows(); ++i) {
      out.blocks[i].bytes = sizes_[i];
      out.category.push_back(p_.category(i));
    }
    out.category.resize(log_.blocks.size(), Category::kUnknown);
    for (size_t i = p_.rows(); i < out.blocks.size(); ++i) {
      const uint64_t asked = out.blocks[i].bytes;
      const uint32_t like = row_like_failure(i - p_.rows());
      // Requests that failed are part of a forward or backward pass, mostly.
      out.blocks[i].bytes = like == kNever
                                ? SizeLaw{0, asked, 1, 1}.bytes(change_.batch, change_.seq)
                                : in_ratio(asked, sizes_[like], p_.bytes(like));
    }
    out.blocks.insert(out.blocks.end(), added_.begin(), added_.end());
    out.category.insert(out.category.end(), added_category_.begin(), added_category_.end());
    std::move(edits_).take(places_, out.requests, out.time_ns);
    return out;
  }

  const RecordedProgram& p_;
  const RequestLog& log_;
  const PlanChange& change_;
  Estimate estimate_;
  RequestPlaces places_;
  RequestEdits edits_;
  std::vector<uint64_t> sizes_;
  std::vector<RequestedBlock> added_;
  std::vector<Category> added_category_;
};

}  // namespace

Result<PlannedRun> planned_run(const RecordedProgram& program, const RequestLog& log,
                               const PlanChange& change, std::vector<uint64_t> sizes,
                               Estimate estimate, const std::vector<uint32_t>& earlier) {
  return RunPlanner(program, log, change, std::move(sizes), estimate).run(earlier);
}

}  // namespace tidemark
