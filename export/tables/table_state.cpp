// Devices with their peaks, and the state at the moments that matter: holes, the ledger, the
// driver's allocations.
#include <cmath>

#include "analysis/wording.h"
#include "export/row_names.h"
#include "export/tables/table_rows.h"

namespace tidemark {

namespace {

void put_peak(TableSink& sink, const Peak& peak) {
  sink.number(peak.bytes);
  peak.bytes == 0 ? sink.null() : sink.integer(peak.time_ns);
}

void put_event(TableSink& sink, const AllocationHistory& model, const Peak& peak) {
  model.event_count() == 0 ? sink.null() : sink.integer(peak.event);
}

void put_device(TableSink& sink, const ExportProcess& process, const AllocationHistory& model,
                int64_t ordinal, const DeviceReport& told) {
  const Device* known = process.model->device(ordinal);
  const Device device = known == nullptr ? Device{} : *known;
  sink.integer(process.number);
  sink.integer(ordinal);
  sink.text_or_null(process.name(device.name));
  sink.text_or_null(process.name(device.uuid));
  sink.text_or_null(process.name(device.bus));
  sink.number_or_null(device.total_bytes);
  sink.number_or_null(device.reserved_bytes);
  sink.number(model.recorded_events);
  put_peak(sink, model.allocated_peak);
  put_event(sink, model, model.allocated_peak);
  put_peak(sink, model.requested_peak);
  put_peak(sink, model.reserved_peak);
  sink.number(model.seeded_blocks);
  sink.number(model.seeded_bytes);
  sink.number(model.anomalies);
  put_event(sink, model, model.reserved_peak);
  put_peak(sink, told.driver_peak);
  put_peak(sink, told.device_used_peak);
  sink.integer(std::llround(told.steps.growth_bytes_per_step));
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

void dump_devices(TableSink& sink, const ExportProcess& process, const Report& report) {
  static const AllocationHistory kNoModel{};
  static const DeviceReport kNoReport{};
  for (const int64_t ordinal : process.model->device_ordinals()) {
    const AllocationHistory* model = process.model->framework_on(ordinal);
    const DeviceReport* told = device_report(report, process, ordinal);
    put_device(sink, process, model == nullptr ? kNoModel : *model, ordinal,
               told == nullptr ? kNoReport : *told);
  }
}

void dump_ledgers(TableSink& sink, const TableSource& source, const Report& report) {
  for (const int64_t ordinal : source.process->model->device_ordinals()) {
    const DeviceReport* told = device_report(report, *source.process, ordinal);
    if (told == nullptr || !source.range.contains(told->ledger.time_ns)) continue;
    for (const LedgerLine& line : told->ledger.lines) {
      sink.integer(source.process->number);
      sink.integer(ordinal);
      sink.integer(told->ledger.time_ns);
      sink.text(line.owner);
      sink.integer(line.bytes);
      sink.end_row();
    }
  }
}

void dump_holes(TableSink& sink, const TableSource& source) {
  for (const AllocationHistory* model : by_device(*source.process->model)) {
    if (model->event_count() == 0) continue;
    const auto put = [&](std::string_view moment, uint32_t event) {
      if (!source.range.contains(model->time_ns[event])) return;
      put_holes(sink, *source.process, *model, moment, event);
    };
    put("allocated_peak", model->allocated_peak.event);
    put("reserved_peak", model->reserved_peak.event);
    if (!model->failures.empty()) put("last_out_of_memory", model->failures.back().event);
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
