#include "export/perfetto/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/insight/card/ledger.h"
#include "analysis/insight/module_shares.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/perfetto/heap.h"
#include "export/perfetto/slices.h"
#include "export/step_rows.h"
#include "export/utf8.h"

namespace tidemark {

namespace {

pb::TrackEvent& begin_instant(PerfettoNames& names, int64_t time_ns, uint64_t track,
                              std::string_view name, std::string_view category) {
  pb::TrackEvent& event = *names.begin_packet(time_ns).mutable_track_event();
  event.set_type(kInstant);
  event.set_track_uuid(track);
  event.set_name_iid(names.event(name));
  event.add_category_iids(names.category(category));
  return event;
}

void put_oom(PerfettoNames& names, const ExportProcess& process, uint64_t track,
             const OutOfMemory& oom, bool hole_known) {
  pb::TrackEvent& event = begin_instant(names, oom.time_ns, track, "out of memory", "oom");
  PerfettoArgs args(names, event);
  args.text("layer", oom.layer == Layer::kDriver ? "driver" : "torch");
  args.number("requested_bytes", oom.requested_bytes);
  // At a driver call, only the free bytes of the card may be known.
  const bool torch = oom.layer != Layer::kDriver;
  if (torch) args.number("allocated_bytes", oom.allocated_bytes);
  if (torch) args.number("reserved_bytes", oom.reserved_bytes);
  if (torch || oom.device_free_bytes != 0) args.number("device_free_bytes", oom.device_free_bytes);
  if (hole_known) args.number("largest_hole_bytes", oom.largest_hole_bytes);
  args.lines("stack", process.model->names.stack_text(oom.stack));
  names.end_packet();
}

// Of a kept window: what the peak of the whole run was.
void put_run_peak(PerfettoArgs& args, const WholeRun& run, Peak WholeRun::*peak, uint64_t bytes) {
  if (!run.is_window()) return;
  args.text("peak_of", "the kept window, not the whole run");
  if (!run.empty()) args.number("whole_run_peak_bytes", std::max((run.*peak).bytes, bytes));
}

void put_peak(PerfettoNames& names, const ExportProcess& process, uint64_t track,
              const AllocationHistory& model, const MemoryState& state) {
  constexpr size_t kModules = 20;
  pb::TrackEvent& event = begin_instant(names, state.time_ns, track, "allocated peak", "peak");
  PerfettoArgs args(names, event);
  args.number("allocated_bytes", state.totals.allocated);
  args.number("requested_bytes", state.totals.requested);
  if (state.totals.pending() != 0) args.number("pending_bytes", state.totals.pending());
  args.number("reserved_bytes", state.totals.reserved);
  put_run_peak(args, whole_run(*process.model, model.device), &WholeRun::allocated_peak,
               state.totals.allocated);
  const auto pending = std::count_if(state.live.begin(), state.live.end(),
                                     [&](uint32_t i) { return state.is_pending(model, i); });
  args.number("blocks", state.live.size() - static_cast<size_t>(pending));
  args.number("largest_hole_bytes", state.largest_hole_bytes());
  std::vector<std::string> modules;
  for (const ModuleShare& share : shares_by_module(*process.model, model, state, {})) {
    if (share.module.empty() || modules.size() == kModules) continue;
    modules.push_back(fmt::format("{} {}", share.module, size_text(share.bytes)));
  }
  if (!modules.empty()) args.lines("modules", modules);
  names.end_packet();
}

}  // namespace

void write_peak_and_ooms(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                         const ExportProcess& process, const AllocationHistory& model,
                         const TimeRange& range) {
  if (model.event_count() == 0) return;
  const auto dump = [&](const MemoryState& state, const std::string& name, int64_t time_ns) {
    write_heap_dump(packets, process, tracks.fake_pid(), sums_by_stack(model, state), name,
                    time_ns);
  };
  const uint64_t device = tracks.device(model.device);
  if (range.contains(model.allocated_peak.time_ns)) {
    const MemoryState state = state_after(model, model.allocated_peak.event);
    put_peak(names, process, tracks.add(device, "peak", PerfettoTracks::kOutOfMemory), model,
             state);
    dump(state, fmt::format("cuda:{} at the peak", model.device), state.time_ns);
  }
  if (model.failures.empty()) return;
  const uint64_t track = tracks.add(device, "out of memory", PerfettoTracks::kOutOfMemory);
  const size_t first_dump = model.failures.size() - std::min(model.failures.size(), kMaxOomDumps);
  for (size_t i = 0; i < model.failures.size(); ++i) {
    const FailedAllocation& failure = model.failures[i];
    if (!range.contains(failure.time_ns)) continue;
    OutOfMemory row = failure.as_row(model.totals_after(failure.event));
    const bool dumped = i >= first_dump;
    if (dumped) {
      const MemoryState state = state_after(model, failure.event);
      row.largest_hole_bytes = state.largest_hole_bytes();
      dump(state, fmt::format("cuda:{} at out of memory {}", model.device, i + 1), failure.time_ns);
    }
    put_oom(names, process, track, row, dumped);
  }
}

void write_driver_peaks(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                        const ExportProcess& process, const TimeRange& range) {
  const DriverModel& driver = process.model->driver;
  for (const auto& [device, told] : driver.devices) {
    const Peak& peak = told.card_peak;
    if (peak.bytes == 0 || !range.contains(peak.time_ns)) continue;
    const HeapSums sums = sums_by_stack(driver, device, peak.time_ns);
    const uint64_t track =
        tracks.add(tracks.device(device), "driver peak", PerfettoTracks::kOutOfMemory);
    pb::TrackEvent& event = begin_instant(names, peak.time_ns, track, "driver peak", "peak");
    uint64_t allocations = 0;
    for (const auto& [stack, sum] : sums) allocations += sum.count;
    PerfettoArgs args(names, event);
    args.number("bytes", peak.bytes);
    put_run_peak(args, whole_run(*process.model, device), &WholeRun::driver_peak, peak.bytes);
    args.number("allocations", allocations);
    names.end_packet();
    write_heap_dump(packets, process, tracks.fake_pid(), sums,
                    fmt::format("cuda:{} at the driver's peak", device), peak.time_ns);
  }
}

void write_recorded_ooms(PerfettoTracks& tracks, PerfettoNames& names, const ExportProcess& process,
                         const TimeRange& range) {
  std::map<int64_t, uint64_t> by_device;
  for (const OutOfMemory& oom : errors_outside_history(process)) {
    if (!range.contains(oom.time_ns)) continue;
    uint64_t& track = by_device[oom.device];
    if (track == 0) {
      track = tracks.add(tracks.device(oom.device), "out of memory (recorded)",
                         PerfettoTracks::kOutOfMemory);
    }
    put_oom(names, process, track, oom, oom.largest_hole_bytes != 0);
  }
}

namespace {

void put_advice(PerfettoNames& names, pb::DebugAnnotation& list, const Advice& advice) {
  pb::DebugAnnotation& entry = *list.add_array_values();
  const auto part = [&](std::string_view name) {
    pb::DebugAnnotation* value = entry.add_dict_entries();
    value->set_name_iid(names.annotation(name));
    return value;
  };
  part("action")->set_string_value(utf8_text(advice.action));
  part("detail")->set_string_value(utf8_text(advice.detail));
  if (advice.saves_bytes != 0) part("saves_bytes")->set_uint_value(advice.saves_bytes);
}

}  // namespace

namespace {

// PyTorch's peak; without PyTorch the last error, else the peak of the driver or of the card.
int64_t time_of(const Finding& finding, const ProcessModel& process, int64_t end_ns) {
  const AllocationHistory* model = process.framework_on(finding.device);
  if (model != nullptr && model->event_count() != 0) return model->allocated_peak.time_ns;
  const std::vector<FailedAllocation>& failures = process.driver.failures;
  const auto last = std::find_if(failures.rbegin(), failures.rend(), [&](const auto& failure) {
    return failure.device == finding.device;
  });
  if (last != failures.rend()) return last->time_ns;
  const auto driver = process.driver.devices.find(finding.device);
  if (driver != process.driver.devices.end() && driver->second.card_peak.bytes != 0) {
    return driver->second.card_peak.time_ns;
  }
  const Peak used = device_used_peak(process, finding.device);
  return used.bytes != 0 ? used.time_ns : end_ns;
}

}  // namespace

void write_findings(PerfettoTracks& tracks, PerfettoNames& names, const ExportProcess& process,
                    std::span<const Finding* const> findings, int64_t end_ns,
                    const TimeRange& range) {
  if (findings.empty()) return;
  const uint64_t track = tracks.add(tracks.process_track(), "findings", PerfettoTracks::kFindings);
  for (const Finding* finding : findings) {
    const int64_t time_ns =
        std::clamp(time_of(*finding, *process.model, end_ns), range.begin_ns, range.end_ns);
    pb::TrackEvent& event = begin_instant(names, time_ns, track, finding->id, "finding");
    PerfettoArgs args(names, event);
    args.text("severity", finding->severity);
    args.text("summary", finding->summary);
    args.signed_number("device", finding->device);
    for (const auto& [key, value] : finding->evidence) args.number(key, value);
    if (!finding->frames.empty()) args.text("line", headline_of(finding->frames));
    args.lines("stack", finding->frames);
    if (!finding->advice.empty()) {
      pb::DebugAnnotation* list = args.list("advice");
      for (const Advice& advice : finding->advice) put_advice(names, *list, advice);
    }
    names.end_packet();
  }
}

void write_steps(PerfettoPackets& packets, PerfettoTracks& tracks, PerfettoNames& names,
                 const Steps& steps, const AllocationHistory& model, const TimeRange& range) {
  SliceLanes lanes(packets, tracks, names.sequence(), tracks.device(model.device), "iterations",
                   PerfettoTracks::kOutOfMemory - 1);
  const uint32_t category = names.category("iteration");
  for (const StepRow& step : steps_in(steps, model, range)) {
    const uint64_t track = lanes.place(step.begin_ns, step.end_ns);
    pb::TrackEvent& event = *names.begin_packet(step.begin_ns).mutable_track_event();
    event.set_type(kSliceBegin);
    event.set_track_uuid(track);
    event.set_name_iid(names.event("iteration"));
    event.add_category_iids(category);
    PerfettoArgs args(names, event);
    args.number("number", step.number);
    args.number("low_bytes", step.levels.low_bytes);
    args.number("high_bytes", step.levels.high_bytes);
    names.end_packet();
  }
  lanes.finish();
}

}  // namespace tidemark
