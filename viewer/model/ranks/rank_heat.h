// The ranks of a job against time: the most that each held in each stretch, exact.
//
// A thousand ranks take longer than a frame, so the table is made in portions: while the next one
// is in the making, the last whole one stays to be drawn where its times lie now. Belongs to the
// drawing thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "viewer/model/timeline/columns.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

// What is compared: the allocator's curves, or the whole card's use as NVML has it.
enum class RankValue : uint8_t { kAllocated, kRequested, kReserved, kUsed };
inline constexpr RankValue kRankValues[] = {RankValue::kAllocated, RankValue::kRequested,
                                            RankValue::kReserved, RankValue::kUsed};
const char* rank_value_name(RankValue value);

// The lanes that are compared, one per row and by rank: every rank's devices, or every lane where
// no rank is known.
struct RankRows {
  std::vector<uint32_t> lanes;
  std::map<int64_t, size_t> by_rank;  // of several devices, the one that the report speaks of

  static RankRows of(const Model& model);

  size_t size() const { return lanes.size(); }
  // SIZE_MAX where there is none.
  size_t of_rank(int64_t rank) const;
  size_t of_lane(uint32_t lane) const;
  // "rank 3", or the lane's name.
  std::string name(const Model& model, size_t row) const;
  // The outlier, if one stands out: the rank that peaks highest.
  size_t outlier(const Model& model) const;
  uint64_t highest_peak(const Model& model, RankValue value) const;
  static uint64_t peak_of(const Lane& lane, RankValue value);
};

// The least and the most of a value in each column of a window.
struct RankColumns {
  std::vector<uint64_t> min;
  std::vector<uint64_t> max;
  uint32_t first_known = 0;
  uint32_t first_after = 0;  // columns from here on lie behind the last event
};
// They are made in portions, see ColumnWork; the card's use is exact at once.
class RankColumnWork {
 public:
  void begin(const Model& model, const Lane& lane, RankValue value, const VisibleRange& view,
             uint32_t count);
  // As ColumnWork's.
  bool work(int64_t budget_ns);
  bool is_exact() const { return curve_.is_exact(); }
  const RankColumns& values() const { return values_; }

 private:
  void take_used(const Model& model, const VisibleRange& view, uint32_t count);
  void take_curve();

  const Lane* lane_ = nullptr;
  RankValue value_ = RankValue::kAllocated;
  ColumnWork curve_;
  RankColumns values_;
};

struct HeatTable {
  static constexpr uint64_t kUnknown = UINT64_MAX;  // before the first event

  VisibleRange view;
  uint32_t columns = 0;
  std::vector<uint64_t> most;    // row by row
  std::vector<uint32_t> ends;    // per row: the first column behind its last event
  std::vector<uint64_t> middle;  // per column: the middle of the rows that are known there

  size_t rows() const { return ends.size(); }
  uint64_t at(size_t row, uint32_t column) const { return most[row * columns + column]; }
};

class RankHeat {
 public:
  // A row per lane. Begins anew when anything differs from what was wanted last.
  void want(const Model& model, const std::vector<uint32_t>& lanes, RankValue value,
            const VisibleRange& view, uint32_t columns);
  // Goes on for about that long (< 0: to the end); true when what is wanted is shown.
  bool work(int64_t budget_ns);

  const HeatTable& shown() const { return shown_; }
  // How far the next table is, 0 to 1.
  double progress() const;

 private:
  // False: the time is over before the row is there.
  bool add_row(int64_t budget_ns);
  void finish();

  const Model* model_ = nullptr;
  std::vector<uint32_t> lanes_;
  RankValue value_ = RankValue::kAllocated;
  HeatTable next_;
  size_t done_ = 0;
  bool pending_ = false;
  bool row_begun_ = false;
  RankColumnWork row_;
  HeatTable shown_;
};

}  // namespace tidemark::view
