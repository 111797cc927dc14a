#include "export/snapshot/snapshot_events.h"

#include <algorithm>
#include <set>
#include <vector>

#include "analysis/events/capture_order.h"
#include "analysis/load/async_backend.h"
#include "analysis/load/driver_segments.h"

namespace tidemark {

namespace {

std::vector<DriverEvent> driver_calls(const ExportProcess& process, BlockDecoder& decoder) {
  std::vector<DriverEvent> calls;
  for_each_block<DriverEvent>(
      *process.reader, decoder, process.id,
      [&](auto rows, const BlockRef&) { calls.insert(calls.end(), rows.begin(), rows.end()); });
  return calls;
}

std::vector<FrameworkEvent> segments_of_driver(const ExportProcess& process,
                                               BlockDecoder& decoder) {
  const ProcessModel& model = *process.model;
  std::vector<FrameworkEvent> segments = torch_segments(driver_calls(process, decoder), model.names,
                                                        bridge_time(model.marks, model.names));
  const std::set<int64_t> told = devices_with_state(model.marks, model.names);
  std::erase_if(segments, [&](const FrameworkEvent& e) { return told.contains(e.device); });
  return segments;
}

}  // namespace

void for_each_event(const ExportProcess& process,
                    const std::function<void(const FrameworkEvent&)>& use) {
  BlockDecoder decoder(*process.reader);
  const auto for_each_rows = [&](auto&& take) {
    for_each_block<FrameworkEvent>(*process.reader, decoder, process.id,
                                   [&](auto rows, const BlockRef&) { take(rows); });
  };
  if (process.model->info.source != Source::kCapture) {
    for_each_rows([&](auto rows) {
      for (const FrameworkEvent& event : rows) use(event);
    });
    return;
  }
  // Segments alone, without any event of the allocator, are not a history.
  if (process.model->framework.empty()) return;
  if (!process.model->torch_pools.empty()) {
    std::unordered_map<uint64_t, uint64_t> requested;  // by address; torch writes it at frees, too
    for (FrameworkEvent& event :
         async_backend_events(driver_calls(process, decoder), *process.model)) {
      if (event.action == FrameworkAction::kAlloc) requested[event.address] = event.size_bytes;
      if (event.action == FrameworkAction::kFreeCompleted) {
        event.size_bytes = requested[event.address];
      }
      use(event);
    }
    return;
  }
  CaptureOrder order(segments_of_driver(process, decoder),
                     [&](auto events) { std::for_each(events.begin(), events.end(), use); });
  for_each_rows([&](auto rows) { order.add(rows); });
  order.finish();
}

void SnapshotSizes::fill_in(FrameworkEvent& event) {
  switch (event.action) {
    case FrameworkAction::kAlloc:
      if (event.size_bytes == 0) {
        event.size_bytes = unknown_[event.address] = event.block_bytes;
      } else if (!unknown_.empty()) {
        unknown_.erase(event.address);
      }
      break;
    case FrameworkAction::kFreeRequested:
    case FrameworkAction::kFreeCompleted:
      if (event.size_bytes == 0) {
        const auto known = unknown_.find(event.address);
        event.size_bytes = known != unknown_.end() ? known->second : event.block_bytes;
      }
      break;
    default:
      break;
  }
}

}  // namespace tidemark
