#include "viewer/model/ranks/rank_heat.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>
#include <utility>

namespace tidemark::view {

namespace {

int64_t rank_of(const Model& model, uint32_t lane) {
  return model.process_of(model.lanes[lane]).info.rank;
}

}  // namespace

int64_t RankRows::rank(const Model& model, size_t row) const {
  if (summaries.empty()) return rank_of(model, lanes[row]);
  return model.job->job.ranks[summaries[row].rank].summary.facts.info.rank;
}

int64_t RankRows::device(const Model& model, size_t row) const {
  return summaries.empty() ? model.lanes[lanes[row]].memory->device : summaries[row].curve->device;
}

RankRows RankRows::of(const Model& model) {
  RankRows rows;
  if (model.job != nullptr) {
    rows = of_summaries(model);
    rows.find_ranks(model);
    return rows;
  }
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    if (rank_of(model, i) >= 0) rows.lanes.push_back(i);
  }
  if (rows.lanes.size() < 2) {
    rows.lanes.clear();
    for (uint32_t i = 0; i < model.lanes.size(); ++i) rows.lanes.push_back(i);
  }
  std::stable_sort(rows.lanes.begin(), rows.lanes.end(),
                   [&](uint32_t a, uint32_t b) { return rank_of(model, a) < rank_of(model, b); });
  rows.find_ranks(model);
  return rows;
}

RankRows RankRows::of_summaries(const Model& model) {
  RankRows rows;
  const std::vector<JobRank>& ranks = model.job->job.ranks;
  std::map<std::tuple<int64_t, uint64_t, int64_t>, uint32_t> lane_of;  // rank, pid, device
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    const Process& info = model.process_of(model.lanes[i]).info;
    lane_of[{info.rank, info.pid, model.lanes[i].device()}] = i;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {  // by rank already
    const Process& info = ranks[r].summary.facts.info;
    if (info.rank < 0) continue;
    for (const CoarseCurve& curve : ranks[r].summary.curves) {
      const auto lane = lane_of.find({info.rank, info.pid, curve.device});
      rows.lanes.push_back(lane == lane_of.end() ? kNoLane : lane->second);
      rows.summaries.push_back({r, &curve});
    }
  }
  return rows;
}

void RankRows::find_ranks(const Model& model) {
  std::map<std::pair<int64_t, int64_t>, size_t> by_device;
  for (size_t i = 0; i < size(); ++i) {
    by_rank.try_emplace(rank(model, i), i);
    by_device[{rank(model, i), device(model, i)}] = i;
  }
  for (const RankHeight& h : model.report.comparison.heights) {
    const auto found = by_device.find({h.rank, h.device});
    if (found != by_device.end()) by_rank[h.rank] = found->second;
  }
}

size_t RankRows::of_rank(int64_t rank) const {
  const auto found = by_rank.find(rank);
  return found == by_rank.end() ? SIZE_MAX : found->second;
}

size_t RankRows::of_lane(uint32_t lane) const {
  if (lane == kNoLane) return SIZE_MAX;
  const auto found = std::find(lanes.begin(), lanes.end(), lane);
  return found == lanes.end() ? SIZE_MAX : static_cast<size_t>(found - lanes.begin());
}

std::string RankRows::name(const Model& model, size_t row) const {
  // Ranks with several devices need the device's name as well.
  const bool alone = by_rank.size() == lanes.size();
  const int64_t number = rank(model, row);
  if (number >= 0 && alone) return "rank " + std::to_string(number);
  std::string name = full_name(model, row);
  const bool one_each = model.lanes.size() == model.trace.processes.size();
  if (number < 0 && one_each) name.resize(std::min(name.size(), name.find(", cuda:")));
  return name;
}

std::string RankRows::full_name(const Model& model, size_t row) const {
  if (summaries.empty()) return model.lanes[lanes[row]].name;
  return "rank " + std::to_string(rank(model, row)) +
         ", cuda:" + std::to_string(device(model, row));
}

RankRequest RankRows::request(size_t row, double time) const {
  return {summaries[row].rank, summaries[row].curve->device, time};
}

size_t RankRows::outlier(const Model& model) const {
  const RankComparison& c = model.report.comparison;
  return c.compared && c.divergence.found ? of_rank(c.highest.rank) : SIZE_MAX;
}

const char* rank_value_name(RankValue value) {
  switch (value) {
    case RankValue::kAllocated:
      return "allocated";
    case RankValue::kRequested:
      return "requested";
    case RankValue::kReserved:
      return "reserved";
    case RankValue::kUsed:
      return "card used";
  }
  return "";
}

uint64_t RankRows::peak_of(const Lane& lane, RankValue value) {
  const AllocationHistory& m = *lane.memory;
  switch (value) {
    case RankValue::kAllocated:
      return m.allocated_peak.bytes;
    case RankValue::kRequested:
      return m.requested_peak.bytes;
    case RankValue::kReserved:
      return m.reserved_peak.bytes;
    case RankValue::kUsed:
      return lane.used.peak();
  }
  return 0;
}

uint64_t RankRows::highest_peak(const Model& model, RankValue value) const {
  uint64_t most = 1;
  for (const Summary& s : summaries) {
    for (const uint64_t bytes : s.curve->most[static_cast<size_t>(value)]) {
      if (bytes != CoarseCurve::kUnknown) most = std::max(most, bytes);
    }
  }
  if (!summaries.empty()) return most;
  for (const uint32_t i : lanes) most = std::max(most, peak_of(model.lanes[i], value));
  return most;
}

void RankColumnWork::begin(const Model& model, const Lane& lane, RankValue value,
                           const VisibleRange& view, uint32_t count) {
  lane_ = &lane;
  value_ = value;
  curve_ = {};
  values_ = {};
  values_.min.resize(count, HeatTable::kUnknown);
  values_.max.resize(count, HeatTable::kUnknown);
  values_.first_known = count;
  values_.first_after = count;
  if (value == RankValue::kUsed) {
    take_used(model, view, count);
    return;
  }
  curve_.begin(*lane.memory, lane.curves, {model.trace.start_ns, view.begin, view.end}, count);
  take_curve();
}

bool RankColumnWork::work(int64_t budget_ns) {
  if (!curve_.work(budget_ns)) return false;
  take_curve();
  return true;
}

void RankColumnWork::take_used(const Model& model, const VisibleRange& view, uint32_t count) {
  for (uint32_t c = 0; c < count; ++c) {
    const auto edge = [&](uint32_t i) {
      return absolute_ns(model, view.begin + view.span() * (static_cast<double>(i) / count));
    };
    const StepCurve::Range range = lane_->used.within(edge(c), std::max(edge(c + 1), edge(c) + 1));
    if (!range.known()) continue;
    values_.first_known = std::min(values_.first_known, c);
    values_.min[c] = range.min;
    values_.max[c] = range.max;
  }
}

void RankColumnWork::take_curve() {
  const TimelineColumns& columns = curve_.columns();
  if (columns.count() == 0) return;
  const std::vector<Column>& values = columns.curves[static_cast<size_t>(value_)];
  values_.first_known = columns.first_known;
  for (uint32_t c = columns.first_known; c < columns.count(); ++c) {
    values_.min[c] = values[c].min;
    values_.max[c] = values[c].max;
  }
  const auto end =
      std::find(columns.edges.begin(), columns.edges.end(), lane_->memory->event_count());
  values_.first_after =
      std::min(static_cast<uint32_t>(end - columns.edges.begin()), columns.count());
}

void RankHeat::want(const Model& model, const RankRows& rows, RankValue value,
                    const VisibleRange& view, uint32_t columns) {
  const bool same = model_ == &model && value_ == value && next_.columns == columns &&
                    next_.view.begin == view.begin && next_.view.end == view.end &&
                    rows_.lanes == rows.lanes;
  if (same) return;
  // The table of another trace or another curve must not be shown for this one.
  if (model_ != &model || value_ != value || rows_.lanes != rows.lanes) shown_ = {};
  model_ = &model;
  value_ = value;
  rows_ = rows;
  next_ = {};
  next_.view = view;
  next_.columns = columns;
  next_.most.resize(rows.size() * columns, HeatTable::kUnknown);
  next_.ends.resize(rows.size(), columns);
  done_ = 0;
  row_begun_ = false;
  pending_ = true;
}

// The highest of the parts that a column touches; after the last event, its value.
void RankHeat::add_summary(const CoarseCurve& curve) {
  const std::vector<uint64_t>& parts = curve.most[static_cast<size_t>(value_)];
  const double begin = since_start(*model_, curve.begin_ns);
  const double part = std::max(1.0, since_start(*model_, curve.end_ns) - begin) /
                      static_cast<double>(std::max<size_t>(1, parts.size()));
  const double column = next_.view.span() / next_.columns;
  for (uint32_t c = 0; c < next_.columns && !parts.empty(); ++c) {
    const double from = (next_.view.begin + column * c - begin) / part;
    const double to = from + column / part;
    if (to <= 0) continue;
    const auto count = static_cast<double>(parts.size());
    if (from >= count) {
      next_.ends[done_] = std::min(next_.ends[done_], c);
    }
    const auto first = static_cast<size_t>(std::clamp(from, 0.0, count - 1));
    const auto last = static_cast<size_t>(std::clamp(std::ceil(to) - 1, 0.0, count - 1));
    uint64_t& most = next_.most[done_ * next_.columns + c];
    for (size_t i = first; i <= std::max(first, last); ++i) {
      if (parts[i] == CoarseCurve::kUnknown) continue;
      most = most == HeatTable::kUnknown ? parts[i] : std::max(most, parts[i]);
    }
  }
}

bool RankHeat::add_row(int64_t budget_ns) {
  if (!rows_.summaries.empty() && rows_.lanes[done_] == RankRows::kNoLane) {
    add_summary(*rows_.summaries[done_].curve);
    ++done_;
    return true;
  }
  if (!row_begun_) {
    row_.begin(*model_, model_->lanes[rows_.lanes[done_]], value_, next_.view, next_.columns);
    row_begun_ = true;
  }
  if (!row_.is_exact() && !row_.work(budget_ns)) return false;
  row_begun_ = false;
  const RankColumns& columns = row_.values();
  std::copy(columns.max.begin(), columns.max.end(),
            next_.most.begin() + static_cast<std::ptrdiff_t>(done_ * next_.columns));
  next_.ends[done_] = columns.first_after;
  ++done_;
  return true;
}

void RankHeat::finish() {
  next_.middle.resize(next_.columns, HeatTable::kUnknown);
  std::vector<uint64_t> known;
  for (uint32_t c = 0; c < next_.columns; ++c) {
    known.clear();
    for (size_t r = 0; r < next_.rows(); ++r) {
      if (next_.at(r, c) != HeatTable::kUnknown) known.push_back(next_.at(r, c));
    }
    if (known.empty()) continue;
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>((known.size() - 1) / 2);
    std::nth_element(known.begin(), middle, known.end());
    next_.middle[c] = *middle;
  }
  shown_ = next_;
  pending_ = false;
}

bool RankHeat::work(int64_t budget_ns) {
  if (!pending_) return true;
  const auto begin = std::chrono::steady_clock::now();
  int64_t left_ns = budget_ns;
  while (done_ < rows_.size()) {
    if (!add_row(left_ns)) return false;
    if (budget_ns < 0) continue;
    left_ns =
        budget_ns - std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
    if (left_ns <= 0) break;
  }
  if (done_ < rows_.size()) return false;
  finish();
  return true;
}

double RankHeat::progress() const {
  if (!pending_ || rows_.size() == 0) return 1;
  return static_cast<double>(done_) / static_cast<double>(rows_.size());
}

}  // namespace tidemark::view
