#include "viewer/model/tables/colour_rows.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/tables/line_rows.h"

namespace tidemark::view {

namespace {

constexpr size_t kColoursOfLine = 3;  // more would hide its name

// One row for each key of a live block.
template <typename KeyOf, typename RowOf>
std::vector<ColourRow> live_rows(const Lane& lane, const Moment& moment, const KeyOf& key_of,
                                 const RowOf& row_of) {
  std::map<uint32_t, ColourRow> found;
  for (const uint32_t i : moment.state.live) {
    if (moment.state.is_pending(*lane.memory, i)) continue;
    const Allocation a = lane.memory->allocations[i];
    const auto [at, fresh] = found.try_emplace(key_of(a));
    if (fresh) at->second = row_of(a);
    at->second.bytes += a.block_bytes;
  }
  std::vector<ColourRow> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ColourRow& a, const ColourRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::vector<ColourRow> category_rows(const Model& model, const Lane& lane, const Moment& moment) {
  std::vector<ColourRow> rows;
  for (const CategoryRow& row : moment.live.categories) {
    rows.push_back(
        {category_colour(row.category), category_text(model, lane, row.category), row.bytes});
  }
  return rows;
}

// A line in one row, with the colours of its stacks.
std::vector<ColourRow> line_rows(const FrameText& text, const Moment& moment) {
  std::vector<ColourRow> rows;
  std::unordered_map<std::string_view, size_t> places;
  for (const StackRow& stack : moment.live.stacks) {
    const std::string_view line = line_of(text, stack);
    const auto [place, added] = places.try_emplace(line, rows.size());
    const Rgb colour = stack_colour(stack.stack);
    if (added) {
      rows.push_back({colour, std::string(line), stack.bytes});
      continue;
    }
    ColourRow& row = rows[place->second];
    row.bytes += stack.bytes;
    if (colour != row.colour && row.others.size() + 1 < kColoursOfLine &&
        std::find(row.others.begin(), row.others.end(), colour) == row.others.end()) {
      row.others.push_back(colour);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ColourRow& a, const ColourRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::vector<ColourRow> module_rows(const ProcessModel& process, const Lane& lane,
                                   const Moment& moment) {
  return live_rows(
      lane, moment, [&](const Allocation& a) { return process.nn_module_of(a); },
      [&](const Allocation& a) {
        const uint32_t module = process.nn_module_of(a);
        const std::string path = process.names.nn_module_text(module);
        return ColourRow{stack_colour(module), path.empty() ? "no module" : path, 0};
      });
}

std::vector<ColourRow> owner_rows(const Dictionary& names, const Lane& lane, const Moment& moment) {
  if (!lane.of_driver) {
    const uint64_t bytes = moment.state.totals.allocated;
    if (bytes == 0) return {};
    return {{owner_colour("torch"), owner_title("torch"), bytes}};
  }
  return live_rows(
      lane, moment, [](const Allocation& a) { return a.metadata; },
      [&](const Allocation& a) {
        const std::string_view owner = names.string(a.metadata);
        return ColourRow{owner_colour(owner), owner_title(owner.empty() ? "unknown" : owner), 0};
      });
}

}  // namespace

std::vector<ColourRow> colour_rows(const Model& model, ColourBy by, const Moment& moment,
                                   size_t most) {
  const Lane& lane = model.lanes[moment.lane];
  const ProcessModel& process = model.process_of(lane);
  std::vector<ColourRow> rows;
  switch (by) {
    case ColourBy::kCategory:
      rows = category_rows(model, lane, moment);
      break;
    case ColourBy::kStack:
      rows = line_rows(model.text_of(lane), moment);
      break;
    case ColourBy::kModule:
      rows = module_rows(process, lane, moment);
      break;
    case ColourBy::kOwner:
      rows = owner_rows(process.names, lane, moment);
      break;
    case ColourBy::kAge:
    case ColourBy::kSize:
      break;
  }
  if (rows.size() > most) rows.resize(most);
  return rows;
}

}  // namespace tidemark::view
