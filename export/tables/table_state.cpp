// Devices with their peaks, and the state at the moments that matter: holes, the ledger, the
// driver's allocations.
#include <algorithm>
#include <cmath>

#include "analysis/history/driver_history.h"
#include "analysis/insight/fragmentation.h"
#include "analysis/wording.h"
#include "export/counter_samples.h"
#include "export/row_names.h"
#include "export/tables/table_rows.h"

namespace tidemark {

namespace {

void put_peak(TableSink& sink, const Peak& peak) {
  sink.number(peak.bytes);
  peak.bytes == 0 ? sink.null() : sink.integer(peak.time_ns);
}

void put_peak_if(bool known, TableSink& sink, const Peak& peak) {
  if (known) return put_peak(sink, peak);
  sink.null();
  sink.null();
}

void put_event(TableSink& sink, const AllocationHistory& model, const Peak& peak) {
  model.event_count() == 0 ? sink.null() : sink.integer(peak.event);
}

// The highest levels of a device in a part of the trace, with the level at its beginning.
struct Peaks {
  uint64_t events = 0;
  Peak allocated;
  Peak requested;
  Peak reserved;
  Peak driver;
  Peak device_used;
};

void raise(Peak& peak, uint64_t bytes, int64_t time_ns, uint32_t event = 0) {
  if (bytes > peak.bytes) peak = {bytes, time_ns, event};
}

void raise(Peaks& peaks, const MemoryTotals& totals, int64_t time_ns, uint32_t event) {
  raise(peaks.allocated, totals.allocated, time_ns, event);
  raise(peaks.requested, totals.requested, time_ns, event);
  raise(peaks.reserved, totals.reserved, time_ns, event);
}

Peaks peaks_in(const AllocationHistory& model, const TimeRange& range) {
  Peaks peaks;
  const auto [first, end] = events_in(model, range);
  // A row that both frees a block and makes it reusable is two changes of the history.
  const bool frees_are_rows = model.event_count() - model.seed_events > model.recorded_events;
  const auto ends_a_free = [&](uint32_t event) {
    return frees_are_rows && event != 0 && model.change[event] == Change::kDeath &&
           model.change[event - 1] == Change::kRelease &&
           model.subject[event - 1] == model.subject[event] &&
           model.time_ns[event - 1] == model.time_ns[event];
  };
  TotalsCursor cursor(model, first);
  if (first != 0) raise(peaks, cursor.totals(), range.begin_ns, first - 1);
  for (uint32_t event = first; event < end; ++event) {
    release_behind(model, event);
    cursor.apply(event);
    raise(peaks, cursor.totals(), model.time_ns[event], event);
    if (event >= model.seed_events && !ends_a_free(event)) ++peaks.events;
  }
  for (const FailedAllocation& f : model.failures) peaks.events += range.contains(f.time_ns);
  // Rows that are neither a change nor a failure are counted, too.
  if (first == 0 && end == model.event_count()) peaks.events = model.recorded_events;
  return peaks;
}

Peaks peaks_in(const ExportProcess& process, const AllocationHistory& model, int64_t device,
               const TimeRange& range) {
  Peaks peaks = peaks_in(model, range);
  const StepSeries card = DriverHistory(process.model->driver, device).card();
  raise(peaks.driver, card.at(range.begin_ns), range.begin_ns);
  for (size_t i = 0; i < card.time_ns.size(); ++i) {
    if (range.contains(card.time_ns[i])) raise(peaks.driver, card.value[i], card.time_ns[i]);
  }
  for (const Counter& c : process.model->counters) {
    if (c.device == device && c.kind == CounterKind::kDeviceUsed && range.contains(c.time_ns)) {
      raise(peaks.device_used, c.value, c.time_ns);
    }
  }
  return peaks;
}

Peaks peaks_of(const AllocationHistory& model, const DeviceReport& told) {
  return {model.recorded_events, model.allocated_peak, model.requested_peak,
          model.reserved_peak,   told.driver_peak,     told.device_used_peak};
}

// Where a kept window begins, and the peaks of the whole run: of a window the others are lower, and
// of a history that began late nobody knows what PyTorch had before.
void put_run(TableSink& sink, const DeviceReport& told, bool driver_known) {
  const WholeRun& run = told.run;
  run.is_window() ? sink.integer(run.kept_from_ns) : sink.null();
  const auto put = [&](const Peak& of_run, const Peak& recorded, bool known = true) {
    const bool unknown = !known || (run.is_window() && run.empty());
    unknown ? sink.null() : sink.number(std::max(of_run.bytes, recorded.bytes));
  };
  put(run.allocated_peak, told.allocated_peak, !told.began_late);
  put(run.reserved_peak, told.reserved_peak, !told.began_late);
  put(run.driver_peak, told.driver_peak, driver_known);
  put(run.device_used_peak, told.device_used_peak);
}

// The reserved peak once the block for which it grew is in its segment, which was a hole before.
Peak served(const AllocationHistory& model, Peak reserved) {
  if (reserved.bytes != 0) reserved.event = served_after(model, reserved.event);
  return reserved;
}

void put_device(TableSink& sink, const ExportProcess& process, const AllocationHistory& model,
                int64_t ordinal, const DeviceReport& told, const Peaks& peaks) {
  const Device* known = process.model->device(ordinal);
  const Device device = known == nullptr ? Device{} : *known;
  sink.integer(process.number);
  sink.integer(ordinal);
  sink.text_or_null(process.name(device.name));
  sink.text_or_null(process.name(device.uuid));
  sink.text_or_null(process.name(device.bus));
  sink.number_or_null(device.total_bytes);
  sink.number_or_null(device.reserved_bytes);
  sink.number(peaks.events);
  put_peak(sink, peaks.allocated);
  put_event(sink, model, peaks.allocated);
  put_peak_if(knows_requests(model), sink, peaks.requested);
  put_peak(sink, peaks.reserved);
  sink.number(model.seeded_blocks);
  sink.number(model.seeded_bytes);
  sink.number(model.anomalies);
  put_event(sink, model, served(model, peaks.reserved));
  const bool driver_known = process.model->info.source != Source::kTorchSnapshot;
  put_peak_if(driver_known, sink, peaks.driver);
  put_peak(sink, peaks.device_used);
  sink.integer(std::llround(told.steps.growth_bytes_per_step));
  put_run(sink, told, driver_known);
  sink.end_row();
}

void put_holes(TableSink& sink, const ExportProcess& process, const AllocationHistory& model,
               std::string_view moment, uint32_t event) {
  const MemoryState state = state_after(model, event);
  for (const Hole& hole : state.holes) {
    const SegmentRange& segment = state.segments[hole.segment];
    sink.integer(process.number);
    sink.integer(model.device);
    sink.text(moment);
    sink.integer(event);
    sink.integer(state.time_ns);
    sink.number(hole.address);
    sink.number(hole.size_bytes);
    sink.number(segment.address);
    sink.number(segment.size_bytes);
    sink.number(segment.stream);
    sink.end_row();
  }
}

}  // namespace

void dump_devices(TableSink& sink, const ExportProcess& process, const Report& report,
                  const TimeRange& range) {
  static const AllocationHistory kNoModel{};
  static const DeviceReport kNoReport{};
  for (const int64_t ordinal : process.model->device_ordinals()) {
    const AllocationHistory* found = process.model->framework_on(ordinal);
    const AllocationHistory& model = found == nullptr ? kNoModel : *found;
    const DeviceReport* report_on = device_report(report, process, ordinal);
    const DeviceReport& told = report_on == nullptr ? kNoReport : *report_on;
    put_device(sink, process, model, ordinal, told,
               range.whole() ? peaks_of(model, told) : peaks_in(process, model, ordinal, range));
  }
}

namespace {

void put_ledger(TableSink& sink, const TableSource& source, int64_t ordinal, const Ledger& ledger,
                std::string_view moment) {
  if (!source.range.contains(ledger.time_ns)) return;
  for (const LedgerLine& line : ledger.lines) {
    sink.integer(source.process->number);
    sink.integer(ordinal);
    sink.integer(ledger.time_ns);
    sink.text(line.owner);
    sink.integer(line.bytes);
    sink.text(moment);
    sink.end_row();
  }
}

}  // namespace

void dump_ledgers(TableSink& sink, const TableSource& source, const Report& report) {
  for (const int64_t ordinal : source.process->model->device_ordinals()) {
    const DeviceReport* told = device_report(report, *source.process, ordinal);
    if (told == nullptr) continue;
    put_ledger(sink, source, ordinal, told->ledger, "report");
    if (told->ledger_at_driver_peak) {
      put_ledger(sink, source, ordinal, *told->ledger_at_driver_peak, "driver_peak");
    }
  }
}

void dump_holes(TableSink& sink, const TableSource& source) {
  for (const AllocationHistory* model : by_device(*source.process->model)) {
    if (model->event_count() == 0) continue;
    const auto put = [&](std::string_view moment, uint32_t event) {
      put_holes(sink, *source.process, *model, moment, event);
    };
    const bool whole = source.range.whole();
    const Peaks part = whole ? Peaks{} : peaks_in(*model, source.range);
    const Peak& allocated = whole ? model->allocated_peak : part.allocated;
    const Peak& reserved = whole ? model->reserved_peak : part.reserved;
    if (allocated.bytes != 0) put("allocated_peak", allocated.event);
    if (reserved.bytes != 0) put("reserved_peak", served(*model, reserved).event);
    const auto last =
        std::find_if(model->failures.rbegin(), model->failures.rend(),
                     [&](const FailedAllocation& f) { return source.range.contains(f.time_ns); });
    if (last != model->failures.rend()) put("last_out_of_memory", last->event);
  }
}

void dump_driver_allocations(TableSink& sink, const TableSource& source) {
  const ExportProcess& process = *source.process;
  for (const DriverAllocation& a : process.model->driver.allocations) {
    if (!sink.good() || !source.range.overlaps(a.birth_ns, a.death_ns)) continue;
    sink.integer(process.number);
    sink.integer(a.device);
    sink.text(memory_kind_name(a.kind));
    sink.text_or_null(process.name(a.owner));
    sink.number(a.address);
    sink.number(a.size_bytes);
    sink.number(a.stream);
    sink.integer(a.birth_ns);
    a.death_ns == INT64_MAX ? sink.null() : sink.integer(a.death_ns);
    sink.integer(a.on_card() ? 1 : 0);
    source.stacks->put(sink, a.stack);
    sink.end_row();
  }
}

}  // namespace tidemark
