// The ranks of a job over time: the exact maximum of each rank in each column.
//
// A thousand ranks take longer than a frame, so the table is computed in portions. Until the next
// table is complete, the last one is drawn at the place of its times. Belongs to the drawing
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "viewer/model/timeline/columns.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

// What is compared: a curve of the allocator, or what NVML reports as used on the whole card.
enum class RankValue : uint8_t { kAllocated, kRequested, kReserved, kUsed };
inline constexpr RankValue kRankValues[] = {RankValue::kAllocated, RankValue::kRequested,
                                            RankValue::kReserved, RankValue::kUsed};
const char* rank_value_name(RankValue value);

// The compared lanes, one per row and sorted by rank: the devices of every rank, or all lanes where
// no rank is known.
//
// Of a job of very many ranks, all ranks are compared by their summaries; only few have lanes.
struct RankRows {
  static constexpr uint32_t kNoLane = UINT32_MAX;

  std::vector<uint32_t> lanes;
  // Of such a job, for each row; else empty.
  struct Summary {
    size_t rank = 0;  // in JobOverview::job
    const CoarseCurve* curve = nullptr;
  };
  std::vector<Summary> summaries;
  std::map<int64_t, size_t> by_rank;  // of several devices, the one that the report compares

  static RankRows of(const Model& model);

  size_t size() const { return lanes.size(); }
  // SIZE_MAX where there is none.
  size_t of_rank(int64_t rank) const;
  size_t of_lane(uint32_t lane) const;
  // "rank 3", or the lane's name.
  std::string name(const Model& model, size_t row) const;
  // With the device.
  std::string full_name(const Model& model, size_t row) const;
  // What a click on the row asks for: to load its rank.
  RankRequest request(size_t row, double time) const;
  // The rank with the highest peak, if it is an outlier.
  size_t outlier(const Model& model) const;
  uint64_t highest_peak(const Model& model, RankValue value) const;
  int64_t rank(const Model& model, size_t row) const;
  int64_t device(const Model& model, size_t row) const;
  static uint64_t peak_of(const Lane& lane, RankValue value);

 private:
  static RankRows of_summaries(const Model& model);
  void find_ranks(const Model& model);
};

// The minimum and maximum of a value in each column of a window.
struct RankColumns {
  std::vector<uint64_t> min;
  std::vector<uint64_t> max;
  uint32_t first_known = 0;
  uint32_t first_after = 0;  // columns from here on are after the last event
};
// Computes them in portions, see ColumnWork; the values of the card are exact at once.
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
  std::vector<uint32_t> ends;    // per row: the first column after its last event
  std::vector<uint64_t> middle;  // per column: the median of the rows that are known there

  size_t rows() const { return ends.size(); }
  uint64_t at(size_t row, uint32_t column) const { return most[row * columns + column]; }
};

class RankHeat {
 public:
  // Starts over when anything differs from the last call.
  void want(const Model& model, const RankRows& rows, RankValue value, const VisibleRange& view,
            uint32_t columns);
  // Continues for about this long (< 0: to the end). True: shown() is what was wanted.
  bool work(int64_t budget_ns);

  const HeatTable& shown() const { return shown_; }
  // How far the next table is, 0 to 1.
  double progress() const;

 private:
  // False: the time was up before the row was complete.
  bool add_row(int64_t budget_ns);
  void add_summary(const CoarseCurve& curve);
  void finish();

  const Model* model_ = nullptr;
  RankRows rows_;
  RankValue value_ = RankValue::kAllocated;
  HeatTable next_;
  size_t done_ = 0;
  bool pending_ = false;
  bool row_begun_ = false;
  RankColumnWork row_;
  HeatTable shown_;
};

}  // namespace tidemark::view
