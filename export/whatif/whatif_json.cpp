#include "export/whatif/whatif_json.h"

#include "export/report/json_writer.h"

namespace tidemark {

namespace {

void write_outcome(JsonWriter& json, const Prediction& p) {
  json.field("reserved_peak_bytes", p.reserved_peak);
  json.field("allocated_peak_bytes", p.allocated_peak);
  json.field("requested_peak_bytes", p.requested_peak);
  json.field("allocated_at_peak_bytes", p.allocated_at_peak);
  json.field("cached_free_at_peak_bytes", p.cached_free_at_peak);
  json.field("largest_hole_at_peak_bytes", p.largest_hole_at_peak);
  json.field("reserved_end_bytes", p.reserved_end);
  json.field("driver_allocations", p.driver_allocations);
  json.field("driver_frees", p.driver_frees);
  json.field("retries", p.retries);
  json.field("cache_emptied", p.emptied);
  json.field("garbage_collections", p.collections);
  json.field("limit_bytes", p.limit_bytes);
  json.field("most_limit_bytes", p.most_limit_bytes);
  json.field("out_of_memory", p.out_of_memory);
  if (p.out_of_memory) {
    json.field("failed_bytes", p.failed_bytes);
    json.field("failed_ns", p.failed_ns);
    json.field("ended_early", p.ended_early);
    if (p.fits_below != 0) json.field("fits_below_bytes", p.fits_below);
  }
  json.field("failures_avoided", p.failures_avoided);
  if (!p.needs_torch.empty()) json.field("needs_torch", p.needs_torch);
}

int64_t difference(uint64_t from, uint64_t to) {
  return static_cast<int64_t>(from) - static_cast<int64_t>(to);
}

void write_device(JsonWriter& json, const WhatIfDevice& d) {
  json.begin_object();
  json.field("rank", d.rank);
  if (d.pid != 0) json.field("pid", d.pid);
  if (!d.file.empty()) json.field("file", d.file);
  json.field("device", d.device);
  json.field("name", d.card_name);
  json.field("card_bytes", d.card_bytes);
  json.field("other_bytes", d.other_bytes);
  json.key("recorded");
  json.begin_object();
  json.field("conf", d.own_conf);
  json.field("reserved_peak_bytes", d.recorded_reserved_peak);
  json.field("allocated_peak_bytes", d.recorded_allocated_peak);
  json.end_object();
  json.key("replay");
  json.begin_object();
  json.field("exact", d.replay.exact());
  json.field("torch", d.replay.version.text());
  json.field("blocks", d.replay.blocks);
  json.field("misplaced_blocks", d.replay.misplaced_blocks);
  json.field("reserved_mismatches", d.replay.reserved_mismatches);
  write_outcome(json, d.replay.prediction);
  json.end_object();
  json.field("ends_at_error", d.ends_at_error);
  if (!d.growth.empty()) json.field("growth", d.growth);
  json.key("baseline");
  json.begin_object();
  json.field("reserved_peak_bytes", d.baseline.reserved_peak);
  json.field("failures_avoided", d.baseline.failures_avoided);
  json.end_object();
  json.key("predictions");
  json.begin_array();
  for (const Prediction& p : d.predictions) {
    json.begin_object();
    json.field("conf", p.conf);
    json.field("saves_bytes", difference(d.baseline.reserved_peak, p.reserved_peak));
    json.field("saves_against_recorded_bytes",
               difference(d.recorded_reserved_peak, p.reserved_peak));
    write_outcome(json, p);
    json.end_object();
  }
  json.end_array();
  json.key("notes");
  json.begin_array();
  for (const std::string& note : d.notes) json.value(note);
  json.end_array();
  json.end_object();
}

}  // namespace

std::string whatif_as_json(const WhatIfReport& report) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "tidemark.whatif/1");
  json.field("path", report.path);
  json.key("devices");
  json.begin_array();
  for (const WhatIfDevice& d : report.devices) write_device(json, d);
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

}  // namespace tidemark
