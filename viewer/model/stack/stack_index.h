// The blocks of one lane in groups, ready to be stacked: what every picture of them needs, made
// once by a pass over all events.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/stacked/stacked_columns.h"
#include "viewer/model/palette.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

// What a band is.
enum class StackBy : uint8_t { kBlock, kCategory, kLine, kOwner, kStream, kSegment, kModule };
inline constexpr int kStackWays = 7;
const char* stack_way_name(StackBy by);
const char* stack_way_plural(StackBy by);
// Whether the lane has groups of this kind.
bool has_stack_way(const Model& model, const Lane& lane, StackBy by);
// This kind, or the nearest one that the lane has.
StackBy nearest_stack_way(const Model& model, const Lane& lane, StackBy by);
// Why the lane has no groups of this kind: one sentence.
std::string why_no_stack_way(const Model& model, const Lane& lane, StackBy by);

// Immutable; any thread may use it.
struct StackIndex {
  std::shared_ptr<const Model> held;  // keeps the model alive
  const Model* model = nullptr;
  const Lane* lane = nullptr;
  StackBy by = StackBy::kBlock;
  LifeUnit life = LifeUnit::kTime;
  BlockGroups groups;
  std::vector<std::string> names;  // of the groups
  std::vector<uint32_t> pools;     // of segments: the private pool of each, or 0
  bool are_categories = false;     // the groups
  std::vector<Rgb> colours;
  std::shared_ptr<const LifeTree> lives;
  std::unique_ptr<const GroupTotals> totals;

  const AllocationHistory& memory() const { return *lane->memory; }
  bool is_private(uint32_t group) const { return group < pools.size() && pools[group] != 0; }
  Curve curve() const { return groups.are_segments() ? Curve::kReserved : Curve::kAllocated; }
  // The name of a group; for the drawing thread only.
  std::string title_of(uint32_t group) const;
  // By kind of block: whether its stack contains the text (in lower case).
  std::vector<bool> kinds_with(const std::string& wanted) const;
};

// Keeps the last few. Any thread may use it.
class StackIndexes {
 public:
  // Of a lane; made now unless it is there. `life`: by which groups are ordered.
  std::shared_ptr<const StackIndex> get(const Model& model, uint32_t lane, StackBy by,
                                        bool categories_known, LifeUnit life = LifeUnit::kTime);
  void clear();

 private:
  struct Kept {
    const Model* model = nullptr;
    uint32_t lane = 0;
    bool categories_known = false;
    std::shared_ptr<const StackIndex> index;
  };
  static constexpr size_t kMost = 6;

  std::mutex mutex_;
  std::vector<Kept> kept_;  // the last used first
};

}  // namespace tidemark::view
