#include "export/report/report_json.h"

#include <utility>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/report/json_writer.h"
#include "export/report/layer_table.h"
#include "export/report/loss_lines.h"
#include "export/report/rank_report.h"
#include "export/row_names.h"

namespace tidemark {

namespace {

void put_peak(JsonWriter& json, std::string_view name, const Peak& peak) {
  json.key(name);
  json.begin_object();
  json.field("bytes", peak.bytes);
  json.field("time_ns", peak.time_ns);
  json.end_object();
}

void put_known(JsonWriter& json, std::string_view name, uint64_t bytes, bool known) {
  json.key(name);
  known ? json.value(bytes) : json.null();
}

// A stack, and the line of it that texts name.
void put_frames(JsonWriter& json, const std::vector<std::string>& frames) {
  json.field("line", headline_of(frames));
  json.key("frames");
  json.begin_array();
  for (const std::string& frame : frames) json.value(frame);
  json.end_array();
}

// Where the lines that were not recorded come from.
void put_reading(JsonWriter& json, const Ledger& ledger) {
  json.key("ledger_reading");
  if (!ledger.reading) return json.null();
  json.begin_object();
  json.field("time_ns", ledger.reading->time_ns);
  json.field("used_bytes", ledger.reading->used_bytes);
  json.end_object();
}

void put_lines(JsonWriter& json, std::string_view key, const Ledger& ledger) {
  json.key(key);
  json.begin_array();
  for (const LedgerLine& line : ledger.lines) {
    json.begin_object();
    json.field("owner", line.owner);
    json.field("bytes", line.bytes);
    json.end_object();
  }
  if (ledger.not_resident_bytes != 0) {
    json.begin_object();
    json.field("owner", kNotResident);
    json.field("bytes", ledger.not_resident_bytes);
    json.field("on_card", false);
    json.end_object();
  }
  json.end_array();
}

void put_ledgers(JsonWriter& json, const DeviceReport& device) {
  json.field("ledger_time_ns", device.ledger.time_ns);
  json.field("ledger_device_used_bytes", device.ledger.device_used_bytes);
  put_reading(json, device.ledger);
  json.field("shared_card", device.ledger.shared_card && device.ledger.device_used_bytes != 0);
  put_lines(json, "ledger_at_peak", device.ledger);
  json.key("ledger_at_driver_peak");
  if (!device.ledger_at_driver_peak) return json.null();
  const Ledger& fuller = *device.ledger_at_driver_peak;
  json.begin_object();
  json.field("time_ns", fuller.time_ns);
  json.field("device_used_bytes", fuller.device_used_bytes);
  put_reading(json, fuller);
  put_lines(json, "lines", fuller);
  json.end_object();
}

void put_shares(JsonWriter& json, const DeviceReport& device) {
  json.key("by_category");
  json.begin_array();
  for (const CategoryShare& share : device.categories) {
    json.begin_object();
    json.field("category", category_name(share.category));
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.field("confidence", share.confidence);
    json.end_object();
  }
  json.end_array();
  json.key("by_label");  // what the program gave names
  json.begin_array();
  for (const LabelShare& share : device.labels) {
    json.begin_object();
    json.field("label", share.label);
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.end_object();
  }
  json.end_array();
  json.key("by_module");
  json.begin_array();
  for (const ModuleShare& share : device.modules) {
    json.begin_object();
    json.key("module");
    share.module.empty() ? json.null() : json.value(share.module);
    json.field("class", share.class_name);
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.field("parameter_bytes", share.parameter_bytes);
    json.field("gradient_bytes", share.gradient_bytes);
    json.field("optimizer_state_bytes", share.optimizer_bytes);
    json.field("kept_bytes", share.kept_bytes);
    json.field("transient_bytes", share.transient_bytes);
    json.end_object();
  }
  json.end_array();
  put_layers(json, device);
  json.key("by_stack");
  json.begin_array();
  for (const StackShare& share : device.stacks) {
    json.begin_object();
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.field("category", category_name(share.category));
    if (share.before_history) json.field("before_history", true);
    put_frames(json, share.frames);
    json.end_object();
  }
  json.end_array();
  json.field("by_stack_left_out", device.stacks_left_out);
}

void put_sizes_and_ages(JsonWriter& json, const DeviceReport& device) {
  json.key("by_size");
  json.begin_array();
  for (const SizeShare& share : device.sizes) {
    json.begin_object();
    json.field("from_bytes", share.from_bytes);
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.end_object();
  }
  json.end_array();
  json.key("by_age");
  json.begin_array();
  for (const AgeShare& share : device.ages) {
    json.begin_object();
    json.field("age", share.age);
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    json.end_object();
  }
  json.end_array();
  json.key("pushed_by");
  json.begin_object();
  json.field("bytes", device.pushed_by.bytes);
  put_frames(json, device.pushed_by.frames);
  json.end_object();
}

void put_tree(JsonWriter& json, const DeviceReport& device) {
  json.key("stack_tree");  // parent: the number of an earlier node, from 1; 0: none
  json.begin_array();
  for (const TreeNode& node : device.tree) {
    json.begin_object();
    json.field("frame", node.frame);
    json.field("parent", node.parent);
    json.field("bytes", node.bytes);
    json.field("count", node.count);
    json.end_object();
  }
  json.end_array();
}

void put_fragmentation(JsonWriter& json, const DeviceReport& device) {
  const Fragmentation& f = device.fragmentation;
  json.key("fragmentation");
  json.begin_object();
  json.field("moment", device.fragmentation_at);
  json.field("time_ns", f.time_ns);
  json.field("cached_free_bytes", f.cached_free_bytes);
  json.field("holes", f.holes);
  json.field("largest_hole_bytes", f.largest_hole_bytes);
  json.field("ratio", f.ratio);
  json.field("releasable_bytes", f.releasable_bytes);
  json.field("peak_cost_bytes", f.peak_cost_bytes);
  json.key("largest_holes");
  json.begin_array();
  for (const PinnedHole& hole : f.largest) {
    json.begin_object();
    json.field("bytes", hole.bytes);
    json.field("segment_bytes", hole.segment_bytes);
    json.key("pinned_by");
    json.begin_array();
    for (const Pin& pin : hole.pins) {
      json.begin_object();
      json.field("bytes", pin.bytes);
      json.field("age_ns", pin.age_ns);
      put_frames(json, pin.frames);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void put_phases(JsonWriter& json, const DeviceReport& device) {
  json.key("phases");
  json.begin_array();
  for (const PhaseReport& phase : device.phases) {
    json.begin_object();
    json.field("phase", phase_name(phase.kind));
    json.field("count", phase.count);
    json.field("total_ns", phase.total_ns);
    put_peak(json, "allocated_peak", phase.peak);
    json.end_object();
  }
  json.end_array();
  json.field("peak_phase", device.peak_phase ? phase_name(*device.peak_phase) : "");
}

void put_steps(JsonWriter& json, const StepReport& steps) {
  json.key("steps");
  json.begin_object();
  json.field("count", steps.count);
  if (steps.before) json.field("first_number", *steps.before);
  json.field("period_ns", steps.period_ns);
  json.field("growth_bytes_per_step", steps.growth_bytes_per_step);
  json.field("source", step_source_name(steps.source));
  json.field("confidence", steps.confidence);
  json.field("full_at_step", steps.full_at_step);
  if (steps.full_in_steps) json.field("full_in_steps", *steps.full_in_steps);
  json.field("first_step_peak_bytes", steps.first_high_bytes);
  json.field("later_steps_peak_bytes", steps.later_high_bytes);
  json.key("growing");
  json.begin_array();
  for (const GrowthShare& share : steps.growing) {
    json.begin_object();
    json.field("bytes_per_step", share.bytes_per_step);
    json.field("held_bytes", share.held_bytes);
    json.field("held_count", share.held_count);
    put_frames(json, share.frames);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void put_limit(JsonWriter& json, const MemoryLimit& limit) {
  json.key("limit");
  json.begin_object();
  json.field("bytes", limit.bytes);
  json.field("at_least", limit.at_least);
  json.field("source", limit_source_name(limit.source));
  json.end_object();
}

// PyTorch's memory at the instant of the lists: shares by stack and the like are of what is
// allocated.
void put_totals(JsonWriter& json, const DeviceReport& device) {
  json.key("at_totals");
  if (!device.has_framework) return json.null();
  json.begin_object();
  json.field("allocated_bytes", device.at_totals.allocated);
  json.field("pending_bytes", device.at_totals.pending());
  json.field("reserved_bytes", device.at_totals.reserved);
  json.end_object();
}

// Only of a recording with a limited window.
void put_whole_run(JsonWriter& json, const WholeRun& run) {
  if (run.empty()) return;
  json.key("whole_run");
  json.begin_object();
  json.field("kept_from_ns", run.kept_from_ns);
  put_peak(json, "allocated_peak", run.allocated_peak);
  put_peak(json, "reserved_peak", run.reserved_peak);
  put_peak(json, "driver_peak", run.driver_peak);
  put_peak(json, "device_used_peak", run.device_used_peak);
  json.field("earlier_oom_count", run.earlier_errors);
  json.field("start_ns", run.begin_ns());
  json.field("end_ns", run.end_ns());
  json.field("points", run.points);
  json.field("gained_bytes", run.gained_bytes);
  json.field("growth_bytes_per_hour", run.bytes_per_ns() * 3.6e12);
  json.key("curve");
  json.begin_array();
  for (const RunPart& part : run.parts) {
    json.begin_object();
    json.field("begin_ns", part.begin_ns);
    json.field("end_ns", part.end_ns);
    json.field("allocated_low_bytes", part.lowest_bytes);
    json.field("allocated_high_bytes", part.highest_bytes);
    json.field("reserved_bytes", part.reserved_bytes);
    json.field("device_used_bytes", part.device_used_bytes);
    json.field("steps", part.steps);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void put_ooms(JsonWriter& json, const DeviceReport& device) {
  json.field("oom_count", device.oom_count);
  put_known(json, "alloc_retries", device.alloc_retries.value_or(0),
            device.alloc_retries.has_value());
  json.key("oom");
  json.begin_array();
  for (const OomReport& oom : device.ooms) {
    json.begin_object();
    json.field("time_ns", oom.time_ns);
    json.field("layer", oom.layer == Layer::kDriver ? "driver" : "torch");
    json.field("requested_bytes", oom.requested_bytes);
    // The driver knows what it allocated for the process, but not what PyTorch made of it.
    const bool torch = oom.layer != Layer::kDriver;
    put_known(json, "allocated_bytes", oom.allocated_bytes, torch);
    put_known(json, "pending_bytes", oom.pending_bytes, torch);
    json.field("reserved_bytes", oom.reserved_bytes);
    put_known(json, "device_free_bytes", oom.device_free_bytes,
              torch || oom.device_free_bytes != 0);
    put_known(json, "largest_hole_bytes", oom.largest_hole_bytes, torch);
    json.field("driver_refusals", oom.refusals);
    put_frames(json, oom.frames);
    json.end_object();
  }
  json.end_array();
  json.key("library_refusals");
  json.begin_array();
  for (const LibraryRefusals& r : device.library_refusals) {
    json.begin_object();
    json.field("library", r.library);
    json.field("count", r.count);
    json.field("largest_bytes", r.largest_bytes);
    json.field("last_ns", r.last_ns);
    json.end_object();
  }
  json.end_array();
}

void put_device(JsonWriter& json, const DeviceReport& device) {
  json.begin_object();
  json.field("device", device.device);
  json.field("name", device.name);
  json.field("uuid", device.uuid);
  json.field("total_bytes", device.total_bytes);
  json.field("events", device.events);
  put_peak(json, "allocated_peak", device.allocated_peak);
  if (device.requested_peak.bytes != 0 || device.allocated_peak.bytes == 0) {
    put_peak(json, "requested_peak", device.requested_peak);
  } else {
    json.key("requested_peak");
    json.null();
  }
  put_peak(json, "reserved_peak", device.reserved_peak);
  put_peak(json, "driver_peak", device.driver_peak);
  put_known(json, "driver_before_recording_bytes", device.before_recording_bytes.value_or(0),
            device.before_recording_bytes.has_value());
  json.field("driver_pool_cache_bytes", device.pool_cache_bytes);
  put_peak(json, "device_used_peak", device.device_used_peak);
  json.field("highest_card_reading_bytes", device.highest_reading_bytes);
  json.key("driver_peak_by_kind");
  json.begin_object();
  for (const KindShare& share : device.kinds) {
    json.field(memory_kind_name(share.kind), share.peak_bytes);
  }
  json.end_object();
  json.field("at_ns", device.at_ns);
  json.field("at_note", device.at_note);
  put_totals(json, device);
  put_ledgers(json, device);
  put_shares(json, device);
  put_sizes_and_ages(json, device);
  put_tree(json, device);
  put_limit(json, device.limit);
  put_fragmentation(json, device);
  put_steps(json, device.steps);
  put_whole_run(json, device.run);
  put_phases(json, device);
  put_ooms(json, device);
  json.field("state_only", device.state_only);
  json.field("stacks_only_at_end", device.stacks_only_at_end);
  json.field("began_late", device.began_late);
  json.field("blocks_before_history", device.blocks_before_history);
  json.field("bytes_before_history", device.bytes_before_history);
  json.field("contradicting_events", device.anomalies);
  json.end_object();
}

void put_pinned(JsonWriter& json, const PinnedMemory& pinned) {
  json.key("pinned");
  json.begin_object();
  put_peak(json, "driver_peak", pinned.driver_peak);
  json.key("torch");
  if (pinned.torch) {
    json.begin_object();
    json.field("time_ns", pinned.torch->time_ns);
    const uint64_t held = pinned.torch->held_bytes;
    const auto in_use = pinned.torch->in_use_bytes;
    json.field("held_bytes", held);
    put_known(json, "in_use_bytes", in_use.value_or(0), in_use.has_value());
    put_known(json, "cached_bytes", held - in_use.value_or(0), in_use.has_value());
    json.end_object();
  } else {
    json.null();
  }
  json.key("by_stack");
  json.begin_array();
  for (const StackShare& share : pinned.stacks) {
    json.begin_object();
    json.field("bytes", share.bytes);
    json.field("count", share.count);
    put_frames(json, share.frames);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void put_bursts(JsonWriter& json, const KernelBursts& bursts) {
  if (bursts.budget.empty()) return;
  json.key("kernels_not_recorded");
  json.begin_object();
  json.field("budget", bursts.budget);
  json.field("stretches", bursts.pauses);
  json.field("time_ns", bursts.unrecorded_ns);
  json.field("recorded_share", bursts.recorded_share());
  json.field("kernel_cost_ns", bursts.kernel_cost_ns);
  json.field("kernel_cost_measured", bursts.measured);
  json.field("estimated_overhead", bursts.cost_share());
  json.end_object();
}

void put_rank(JsonWriter& json, const RankReport& rank, const Damage& damage) {
  json.begin_object();
  json.field("rank", rank.rank);
  json.field("world_size", rank.world_size);
  json.field("host", rank.host);
  json.field("pid", rank.pid);
  if (!rank.file.empty()) json.field("file", rank.file);
  json.field("cupti", rank.cupti);
  if (!rank.detailed) json.field("detailed", false);
  json.key("loss");
  json.begin_object();
  json.field("events_dropped", rank.loss.events_dropped);
  json.field("entries_skipped", rank.loss.entries_skipped);
  json.field("history_lost_blocks", rank.loss.history_lost_blocks);
  json.field("killed", rank.loss.killed);
  json.field("last_kernels", rank.loss.last_kernels);
  put_bursts(json, rank.loss.bursts);
  json.field("damaged_blocks", damage.blocks);
  json.field("damaged_rows", damage.rows);
  json.field("skipped_bytes", damage.skipped_bytes);
  json.field("truncated", damage.truncated);
  json.key("notes");
  json.begin_array();
  for (const std::string& note : rank.loss.notes) json.value(note);
  json.end_array();
  json.end_object();
  json.key("devices");
  json.begin_array();
  for (const DeviceReport& device : rank.devices) put_device(json, device);
  json.end_array();
  put_pinned(json, rank.pinned);
  json.end_object();
}

void put_finding(JsonWriter& json, const Finding& finding) {
  json.begin_object();
  json.field("id", finding.id);
  json.field("severity", finding.severity);
  json.field("rank", finding.rank);
  if (finding.pid != 0) json.field("pid", finding.pid);
  if (!finding.file.empty()) json.field("file", finding.file);
  json.field("device", finding.device);
  json.field("summary", finding.summary);
  json.key("evidence");
  json.begin_object();
  for (const auto& [name, number] : finding.evidence) json.field(name, number);
  if (!finding.frames.empty()) put_frames(json, finding.frames);
  json.end_object();
  json.key("advice");
  json.begin_array();
  for (const Advice& advice : finding.advice) {
    json.begin_object();
    json.field("action", advice.action);
    json.field("detail", advice.detail);
    json.field("saves_bytes", advice.saves_bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string report_as_json(const Report& report) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "tidemark.report/1");
  json.key("source");
  json.begin_object();
  json.field("path", report.path);
  json.field("kind", report.kind);
  json.field("ranks", report.ranks.size());
  json.field("events", report.events);
  json.field("start_ns", report.start_ns);
  json.field("end_ns", report.end_ns);
  json.key("notes");
  json.begin_array();
  for (const std::string& note : report.notes) json.value(note);
  json.end_array();
  json.end_object();
  json.key("ranks");
  json.begin_array();
  for (const RankReport& rank : report.ranks) put_rank(json, rank, report.damage);
  json.end_array();
  json.key("losses");  // as text, one sentence each
  json.begin_array();
  for (const std::string& line : loss_lines(report)) json.value(line);
  json.end_array();
  put_rank_comparison(json, report.comparison);
  json.key("findings");
  json.begin_array();
  for (const Finding& finding : report.findings) put_finding(json, finding);
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

}  // namespace tidemark
