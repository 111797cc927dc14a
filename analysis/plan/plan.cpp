#include "analysis/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/insight/card/limit.h"
#include "analysis/names/stack_lines.h"
#include "analysis/passes/first_step.h"
#include "analysis/whatif/context_size.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// The bytes of each block when most are allocated; 0: it is not. Sizes are rounded as blocks are.
// Requests that failed in the recording count only in a plan, which lets them succeed for a moment.
std::vector<uint64_t> bytes_at_peak(const PlannedRun& run, const AllocatorRules& rules,
                                    bool with_failed) {
  std::vector<bool> live(run.blocks.size(), false);
  uint64_t now = 0;
  uint64_t most = 0;
  size_t peak = 0;
  const auto apply = [&](const Request& r) {
    const bool allocates = r.kind == RequestKind::kAllocate;
    const bool frees = r.kind == RequestKind::kFree || r.kind == RequestKind::kRelease;
    if ((!allocates && !frees) || live[r.subject] == allocates) return;
    if (run.blocks[r.subject].bytes == 0) return;
    live[r.subject] = allocates;
    const uint64_t bytes = rules.round(run.blocks[r.subject].bytes);
    now = allocates ? now + bytes : now - bytes;
  };
  const auto failed_bytes = [&](const Request& r) {
    return with_failed && r.kind == RequestKind::kFail ? rules.round(run.blocks[r.subject].bytes)
                                                       : uint64_t{0};
  };
  for (size_t i = 0; i < run.requests.size(); ++i) {
    apply(run.requests[i]);
    const uint64_t total = now + failed_bytes(run.requests[i]);
    if (total > most) {
      most = total;
      peak = i;
    }
  }
  live.assign(live.size(), false);
  now = 0;
  for (size_t i = 0; i <= peak && i < run.requests.size(); ++i) apply(run.requests[i]);
  std::vector<uint64_t> bytes(live.size(), 0);
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i]) bytes[i] = rules.round(run.blocks[i].bytes);
  }
  if (peak < run.requests.size()) {
    const Request& last = run.requests[peak];
    if (const uint64_t failed = failed_bytes(last)) bytes[last.subject] = failed;
  }
  return bytes;
}

// Collects a curve in spans of equally many events of the recording. By time, the seconds in which
// a program starts would leave no room for its steps.
class CurveWatch {
 public:
  CurveWatch(uint32_t events, uint32_t points) : span_(points == 0 ? 0 : events / points + 1) {}

  void add(uint32_t event, const MemoryTotals& totals) {
    if (span_ == 0) return;
    const uint32_t begin = event / span_ * span_;
    if (points_.empty() || begin > points_.back().begin) points_.push_back({begin, begin + span_});
    PlanPoint& p = points_.back();
    p.allocated = std::max(p.allocated, totals.allocated);
    p.reserved = std::max(p.reserved, totals.reserved);
  }
  std::vector<PlanPoint> take() { return std::move(points_); }

 private:
  uint32_t span_;
  std::vector<PlanPoint> points_;
};

bool is_of_weights(Category category) {
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState;
}

// "layers.2" before "layers.10".
struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    size_t i = 0;
    size_t k = 0;
    while (i < a.size() && k < b.size()) {
      const size_t digits_a = std::min(a.find_first_not_of("0123456789", i), a.size()) - i;
      const size_t digits_b = std::min(b.find_first_not_of("0123456789", k), b.size()) - k;
      if (digits_a != 0 && digits_b != 0 && digits_a != digits_b) return digits_a < digits_b;
      if (a[i] != b[k]) return a[i] < b[k];
      ++i;
      ++k;
    }
    return a.size() - i < b.size() - k;
  }
};

// Whether two recordings have the same weights, by their sizes and number. What follows the length
// of sequences, such as a table of positions, can be among them.
bool have_equal_weights(const RecordedProgram& program, const RecordedProgram& other) {
  constexpr double kLeastShare = 0.9;
  constexpr size_t kLeastWeights = 4;
  size_t weights = 0;
  size_t other_weights = 0;
  std::map<uint64_t, std::pair<size_t, size_t>> counts;  // by size, in either
  for (size_t i = 0; i < program.rows(); ++i) {
    if (program.category(i) == Category::kParameter) ++counts[program.bytes(i)].first;
  }
  for (size_t i = 0; i < other.rows(); ++i) {
    if (other.category(i) == Category::kParameter) ++counts[other.bytes(i)].second;
  }
  double common = 0;
  double of_program = 0;
  double of_other = 0;
  for (const auto& [bytes, count] : counts) {
    const auto size = static_cast<double>(bytes);
    weights += count.first;
    other_weights += count.second;
    common += size * static_cast<double>(std::min(count.first, count.second));
    of_program += size * static_cast<double>(count.first);
    of_other += size * static_cast<double>(count.second);
  }
  const bool known = std::min(weights, other_weights) >= kLeastWeights;
  return !known || common >= kLeastShare * std::max(of_program, of_other);
}

// Whether most of what grows is in both recordings, and the one is no absurd multiple of the other.
Status check_match(const LearntLaws& learnt, Dimension dimension) {
  constexpr double kMostRatio = 256;
  const bool in_program = 2 * learnt.matched_bytes >= learnt.all_bytes;
  const bool in_other = 2 * learnt.matched_other_bytes >= learnt.all_other_bytes;
  if (!in_program || !in_other) {
    return Error{fmt::format(
        "the two are not recordings of one program: only {} of the bytes that grow in {} are in "
        "the other one as well",
        in_program ? percent_text(learnt.matched_other_bytes, learnt.all_other_bytes)
                   : percent_text(learnt.matched_bytes, learnt.all_bytes),
        in_program ? "this one" : "the first")};
  }
  if (learnt.ratio > kMostRatio || learnt.ratio < 1 / kMostRatio) {
    return Error{fmt::format(
        "the two are not recordings of one program: by the blocks that they share, "
        "this one would have {}x the {} of the first",
        factor_text(learnt.ratio), dimension == Dimension::kBatch ? "batch" : "length")};
  }
  return {};
}

bool has_python_stacks(const RecordedProgram& program) {
  const Dictionary& names = program.process().names;
  for (uint32_t id = 1; id < names.frame_count(); ++id) {
    if (is_python_line(names.frame_text(id))) return true;
  }
  return false;
}

Status check_categories(const RecordedProgram& program) {
  for (size_t i = 0; i < program.rows(); ++i) {
    const Category c = program.category(i);
    if (c == Category::kParameter || c == Category::kActivation || c == Category::kKvCache ||
        c == Category::kGradient) {
      return {};
    }
  }
  if (has_python_stacks(program)) {
    return Error{
        "no parameters and no results of a forward or backward pass were found in this recording, "
        "so it does not tell what a change of the program would change: plan needs a program that "
        "calls an nn.Module or trains"};
  }
  return Error{
      "this recording does not tell parameters and activations apart, so no change of the program "
      "can be planned: record it with tidemark run, or take the snapshot with Python stacks"};
}

}  // namespace

Planner::Planner(const ProcessModel& process, const AllocationHistory& model, WhatIf whatif,
                 const PlanOptions& options)
    : program_(process, model),
      whatif_(std::move(whatif)),
      options_(options),
      layers_(program_),
      laws_(infer_laws(program_)),
      failure_(last_failure(program_)) {
  variety_ = learn_from_steps(program_, laws_);
  later_states_ = states_of_only_step(model, program_.categories(), program_.passes());
  const uint64_t card = whatif_.card_bytes();
  // Where the driver refused memory, that is all there was; also if the size of the same card is
  // given, of which contexts and other processes hold the rest.
  const MemoryLimit limit = limit_of(process, model);
  const bool same_card =
      options.whatif.card_bytes == 0 || (limit.bytes <= card && limit.bytes >= card / 8 * 7);
  const bool refused = limit.source == LimitSource::kDriver && same_card;
  outside_bytes_ = whatif_.other_bytes();
  assumes_outside_ = whatif_.assumes_other();
  if (outside_bytes_ == 0 && card != 0 && !refused) {
    outside_bytes_ = kContextBytes;
    assumes_outside_ = true;
  }
  if (card > outside_bytes_) capacity_ = card - outside_bytes_;
  keeps_limit_ = refused && options.whatif.card_bytes != 0 && limit.bytes < capacity_;
  refused_ = refused && (capacity_ == 0 || limit.bytes < capacity_);
  if (refused_) capacity_ = limit.bytes;
  room_ = capacity_;
  // A limit of the recorded run holds for another card only as a fraction, which is not known.
  const uint64_t allowed = whatif_.recorded_allowed();
  if (options.whatif.card_bytes == 0 && allowed != 0) {
    capacity_ = capacity_ == 0 ? allowed : std::min(capacity_, allowed);
  }
  may_have_limit_ = options.whatif.card_bytes == 0 && allowed == 0 && !refused && capacity_ != 0 &&
                    !options.whatif.recorded_conf;
}

Result<std::unique_ptr<Planner>> Planner::prepare(const ProcessModel& process, int64_t device,
                                                  const PlanOptions& options) {
  Result<WhatIf> whatif = WhatIf::prepare(process, device, options.whatif);
  if (!whatif) return whatif.error();
  const AllocationHistory* model = process.framework_on(device);
  std::unique_ptr<Planner> planner(new Planner(process, *model, std::move(*whatif), options));
  if (const Status ok = check_categories(planner->program_); !ok) return ok.error();
  return planner;
}

Status Planner::learn(const ProcessModel& other, Dimension dimension) {
  const AllocationHistory* model = other.framework_on(program_.model().device);
  if (model == nullptr && !other.framework.empty()) model = &other.framework.front();
  if (model == nullptr || model->allocations.empty()) {
    return Error{"no PyTorch allocations were recorded in it"};
  }
  const RecordedProgram second(other, *model);
  const bool in_16 = recorded_widths(program_).computes_in_16();
  if (in_16 != recorded_widths(second).computes_in_16()) {
    return Error{
        fmt::format("it is not a recording of the same program: {} computes in 16 bits, {} in more",
                    in_16 ? "the first" : "this one", in_16 ? "this one" : "the first")};
  }
  if (!have_equal_weights(program_, second)) {
    return Error{"the two are not recordings of one program: their weights differ"};
  }
  learnt_ = learn_laws(program_, second, dimension, laws_);
  if (learnt_.other_dimension) {
    return Error{
        "the other recording differs in the length of its sequences, not in the batch: attention "
        "matrices grow with the square of what the rest grows with. Learn from it with --seq"};
  }
  learnt_dimension_ = dimension;
  if (learnt_.ratio == 1) {
    return Error{
        "nothing can be learnt from it: no allocation of the same code has another size, or the "
        "two are not recordings of one program"};
  }
  return check_match(learnt_, dimension);
}

Planner::LastFailure Planner::last_failure(const RecordedProgram& program) {
  const ProcessModel& process = program.process();
  LastFailure last;
  for (const AllocationHistory& model : process.framework) {
    if (model.failures.empty()) continue;
    if (last.model == nullptr || model.failures.back().time_ns > last.failure().time_ns) {
      last.model = &model;
    }
  }
  if (last.model == &program.model()) {
    last.steps_there = program.steps();
  } else if (last.model != nullptr) {
    last.steps_there = find_steps(process, *last.model, StackRoles(process));
  }
  return last;
}

bool Planner::ends_at_error() const {
  if (failure_.model == nullptr) return false;
  const int64_t time = failure_.failure().time_ns;
  const uint32_t here = program_.model().first_event_not([&](int64_t t) { return t <= time; });
  return failure_.steps_there.after_event(failure_.failure().event) == 0 &&
         program_.steps().after_event(here) == 0;
}

bool Planner::has_whole_step() const {
  if (failure_.model == nullptr) return true;
  const FailedAllocation& failure = failure_.failure();
  const Steps& there = failure_.steps_there;
  if (there.before_event(failure.event) + there.after_event(failure.event) != 0) return true;
  const int64_t time = failure.time_ns;
  const uint32_t here = program_.model().first_event_not([&](int64_t t) { return t <= time; });
  if (program_.steps().before_event(here) + program_.steps().after_event(here) != 0) return true;
  // One step alone has no rhythm, but the optimizer that ended it.
  const StackRole role = program_.role_of_stack(failure.stack);
  return program_.has_optimizer() && !program_.passes().empty() && role != StackRole::kOptimizer &&
         role != StackRole::kOptimizerInit;
}

std::optional<int64_t> Planner::other_device_that_failed() const {
  if (failure_.model == nullptr || failure_.model == &program_.model()) return std::nullopt;
  return failure_.model->device;
}

Status Planner::knows_growth() const {
  if (program_.first_forward() != kNever || !program_.passes().empty()) return {};
  return Error{
      "--batch, --seq and --fit: no forward pass was found in this recording, so it does not tell "
      "what grows: record a step of training, or calls of the model"};
}

std::vector<PlanPoint> Planner::recorded_curve() const {
  const AllocationHistory& recorded = program_.model();
  CurveWatch watch(recorded.event_count(), options_.curve_points);
  MemoryTotals totals;
  for (uint32_t e = 0; e < recorded.event_count(); ++e) {
    recorded.apply(e, totals);
    watch.add(e, totals);
  }
  return watch.take();
}

AllocatorSettings Planner::settings_of(const PlanChange& change) const {
  if (!change.has_conf) return whatif_.own_settings();
  const auto settings = AllocatorSettings::parse(change.alloc_conf);
  return settings ? *settings : whatif_.own_settings();
}

uint64_t Planner::capacity_for(const PlanChange& change) const {
  const double fraction = change.has_conf ? settings_of(change).memory_fraction : 0;
  if (fraction <= 0) return capacity_;
  const auto allowed = static_cast<uint64_t>(fraction * static_cast<double>(whatif_.card_bytes()));
  if (fraction >= 1 || allowed == 0) return room_;
  return room_ == 0 ? allowed : std::min(room_, allowed);
}

LimitSource Planner::limit_source_for(const PlanChange& change) const {
  const uint64_t capacity = capacity_for(change);
  if (capacity == 0) return LimitSource::kUnknown;
  if (room_ == 0 || capacity < room_) return LimitSource::kFraction;
  return refused_ ? LimitSource::kDriver : LimitSource::kCard;
}

Status Planner::check_precision(PlanPrecision precision) const {
  if (precision != PlanPrecision::kFull || computes_in_float64(program_.process().names)) return {};
  const RecordedWidths widths = recorded_widths(program_);
  const bool known = widths.autocasts || widths.products != NumberWidth::kUnknown;
  return Error{known ? "--precision fp32: the recorded program computes in 32 bits or fewer already"
                     : "--precision fp32: no kernel of the recording tells that the program "
                       "computes in 64 bits"};
}

Result<PlannedRun> Planner::run_of(const PlanChange& change, Estimate estimate) const {
  if (Status ok = check_precision(change.precision); !ok) return ok.error();
  return planned_run(program_, whatif_.log(), change,
                     planned_sizes(program_, laws_, change, estimate), estimate, later_states_);
}

Result<PlannedRun> Planner::recorded_run() const {
  return planned_run(program_, whatif_.log(), {},
                     planned_sizes(program_, laws_, {}, Estimate::kLikely), Estimate::kLikely, {});
}

uint64_t Planner::replayed_reserved_peak() const {
  const Result<PlannedRun> same = recorded_run();
  if (!same) return whatif_.recorded_reserved_peak();
  return whatif_.replay(whatif_.own_settings(), same->blocks, same->requests, 0).reserved_peak;
}

Result<PlanOutcome> Planner::plan(const PlanChange& change) const {
  const Result<PlannedRun> run = run_of(change, Estimate::kLikely);
  if (!run) return run.error();
  PlanOutcome out;
  const AllocatorSettings settings = settings_of(change);
  const AllocationHistory& recorded = program_.model();
  CurveWatch watch(recorded.event_count(), options_.curve_points);
  size_t request = 0;
  out.likely =
      whatif_.replay(settings, run->blocks, run->requests, 0, [&](const MemoryTotals& totals) {
        const int64_t time = run->time_ns[std::min(request++, run->time_ns.size() - 1)];
        watch.add(recorded.first_event_not([&](int64_t t) { return t <= time; }), totals);
      });
  out.curve = watch.take();
  out.low_reserved = out.high_reserved = out.likely.reserved_peak;
  out.low_allocated = out.high_allocated = out.likely.allocated_peak;
  const std::vector<uint64_t> sizes = planned_sizes(program_, laws_, change, Estimate::kLikely);
  std::optional<PlannedRun> high;
  for (const Estimate estimate : {Estimate::kLow, Estimate::kHigh}) {
    std::vector<uint64_t> others = planned_sizes(program_, laws_, change, estimate);
    const bool fewer = estimate == Estimate::kLow && adds_autocast(program_, change);
    if (others == sizes && !fewer) continue;
    Result<PlannedRun> other =
        planned_run(program_, whatif_.log(), change, std::move(others), estimate, later_states_);
    if (!other) return other.error();
    const Prediction p = whatif_.replay(settings, other->blocks, other->requests, 0);
    out.low_reserved = std::min(out.low_reserved, p.reserved_peak);
    out.high_reserved = std::max(out.high_reserved, p.reserved_peak);
    out.low_allocated = std::min(out.low_allocated, p.allocated_peak);
    out.high_allocated = std::max(out.high_allocated, p.allocated_peak);
    if (estimate == Estimate::kHigh) high = std::move(*other);
  }
  const uint64_t replayed = replayed_reserved_peak();
  if (!change.has_conf) widen_by_replay(replayed, out);
  const uint64_t recorded_peak = whatif_.recorded_reserved_peak();
  const bool widened = !change.has_conf && recorded_peak > replayed;
  place_on_card(change, *run, high ? *high : *run, widened ? recorded_peak - replayed : 0, out);
  add_composition(*run, out);
  state_assumptions(change, replayed, out.assumptions);
  uint64_t later = 0;
  for (const uint32_t row : later_states_) later += sizes[row];
  if (later != 0) {
    out.assumptions.push_back(fmt::format(
        "the recording ends after the first step of the optimizer: later steps also keep {} of its "
        "states from their beginning, which the plan counts",
        size_text(later)));
  }
  return out;
}

// What the replay of the unchanged run does not reproduce, a plan cannot know either: what was
// reserved before the history began may stay reserved.
void Planner::widen_by_replay(uint64_t replayed, PlanOutcome& out) const {
  const uint64_t recorded = whatif_.recorded_reserved_peak();
  if (recorded > replayed) {
    out.high_reserved += recorded - replayed;
  } else if (!ran_out()) {
    out.low_reserved -= std::min(out.low_reserved - out.low_allocated, replayed - recorded);
  }
}

// `not_replayed`: bytes that the run reserved beyond its replay.
void Planner::place_on_card(const PlanChange& change, const PlannedRun& likely,
                            const PlannedRun& high, uint64_t not_replayed, PlanOutcome& out) const {
  const uint64_t capacity = capacity_for(change);
  if (capacity == 0) return;
  const AllocatorSettings settings = settings_of(change);
  out.on_card = whatif_.replay(settings, likely.blocks, likely.requests, capacity);
  // Even without a limit, no estimate reserves more than that.
  if (!out.fits() || out.high_reserved <= capacity) return;
  out.may_not_fit =
      not_replayed >= capacity ||
      whatif_.replay(settings, high.blocks, high.requests, capacity - not_replayed).out_of_memory;
}

Result<bool> Planner::fits(const PlanChange& change) const {
  const Result<PlannedRun> run = run_of(change, Estimate::kLikely);
  if (!run) return run.error();
  const Prediction p =
      whatif_.replay(settings_of(change), run->blocks, run->requests, capacity_for(change));
  // A larger batch that empties the cache again and again is no gain.
  constexpr uint64_t kFew = 5;
  return !p.out_of_memory &&
         (change.batch <= 1 || p.emptied <= whatif_.own().prediction.emptied + kFew);
}

void Planner::add_composition(const PlannedRun& run, PlanOutcome& out) const {
  const AllocatorRules& rules = whatif_.own_settings().rules;
  std::map<Category, CategoryBytes> categories;
  std::map<std::string, LayerBytes, NaturalOrder> layers;
  const auto add = [&](const PlannedRun& of, bool planned) {
    const std::vector<uint64_t> bytes = bytes_at_peak(of, rules, planned);
    const size_t recorded_blocks = whatif_.log().blocks.size();
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == 0) continue;
      if (i >= program_.rows() && i < recorded_blocks) {
        out.failed_request = bytes[i];
        continue;
      }
      CategoryBytes& c = categories[of.category[i]];
      (planned ? c.planned : c.recorded) += bytes[i];
      std::string path;
      if (i < program_.rows() && of.category[i] != Category::kWorkspace) {
        path = layers_.of(i) == Layers::kNoLayer ? program_.module_path(i)
                                                 : layers_.paths()[layers_.of(i)];
      }
      LayerBytes& layer = layers[path];
      const bool weights = is_of_weights(of.category[i]);
      (planned ? (weights ? layer.planned_weights : layer.planned_others)
               : (weights ? layer.recorded_weights : layer.recorded_others)) += bytes[i];
    }
  };
  add(run, true);
  if (const Result<PlannedRun> same = recorded_run()) add(*same, false);
  for (auto& [category, bytes] : categories) {
    bytes.category = category;
    out.categories.push_back(bytes);
  }
  std::stable_sort(
      out.categories.begin(), out.categories.end(),
      [](const CategoryBytes& a, const CategoryBytes& b) { return a.planned > b.planned; });
  if (!program_.knows_modules()) return;
  for (auto& [path, bytes] : layers) {
    bytes.path = path;
    out.layers.push_back(bytes);
  }
}

}  // namespace tidemark
