#include "export/plan/plan_text.h"
#include "export/report/json_writer.h"

#include "analysis/wording.h"

namespace tidemark {

namespace {

void write_outcome(JsonWriter& json, const PlanOutcome& o) {
  json.field("reserved_peak_bytes", o.likely.reserved_peak);
  json.field("low_reserved_peak_bytes", o.low_reserved);
  json.field("high_reserved_peak_bytes", o.high_reserved);
  json.field("allocated_peak_bytes", o.likely.allocated_peak);
  json.field("low_allocated_peak_bytes", o.low_allocated);
  json.field("high_allocated_peak_bytes", o.high_allocated);
  json.field("requested_peak_bytes", o.likely.requested_peak);
  json.field("cached_free_at_peak_bytes", o.likely.cached_free_at_peak);
  if (!o.on_card) return;
  json.key("on_card");
  json.begin_object();
  json.field("fits", o.fits());
  json.field("may_not_fit", o.may_not_fit);
  json.field("limit_bytes", o.on_card->limit_bytes);
  json.field("reserved_peak_bytes", o.on_card->reserved_peak);
  json.field("retries", o.on_card->retries);
  json.field("cache_emptied", o.on_card->emptied);
  if (o.on_card->out_of_memory) json.field("failed_bytes", o.on_card->failed_bytes);
  json.end_object();
}

void write_composition(JsonWriter& json, const PlanOutcome& o) {
  json.key("categories");
  json.begin_array();
  for (const CategoryBytes& c : o.categories) {
    json.begin_object();
    json.field("category", category_name(c.category));
    json.field("recorded_bytes", c.recorded);
    json.field("planned_bytes", c.planned);
    json.end_object();
  }
  json.end_array();
  if (o.failed_request != 0) json.field("failed_request_bytes", o.failed_request);
  json.key("layers");
  json.begin_array();
  for (const LayerBytes& l : o.layers) {
    json.begin_object();
    json.field("path", l.path);
    json.field("recorded_weight_bytes", l.recorded_weights);
    json.field("planned_weight_bytes", l.planned_weights);
    json.field("recorded_other_bytes", l.recorded_others);
    json.field("planned_other_bytes", l.planned_others);
    json.end_object();
  }
  json.end_array();
  json.key("assumptions");
  json.begin_array();
  for (const std::string& text : o.assumptions) json.value(text);
  json.end_array();
}

void write_fit(JsonWriter& json, const PlanDevice& d, const PlanFit& f) {
  json.key("fit");
  json.begin_object();
  const bool known = d.growth.empty() && (d.has_whole_step || f.batch.factor == 0);
  if (known) json.field("batch_factor", f.batch.factor);
  if (known && f.batch.samples != 0) json.field("batch_samples", f.batch.samples);
  if (known && f.shared) {
    json.field("shared_batch_factor", f.shared->batch.factor);
    json.field("shared_batch_device", f.shared->device);
  }
  json.field("at_most", d.ends_at_error);
  json.field("larger_not_tried", f.batch.at_limit);
  if (known && f.batch.factor > 0) {
    json.key("outcome");
    json.begin_object();
    write_outcome(json, f.outcome);
    json.end_object();
  }
  if (f.cheapest && d.growth.empty()) {
    json.key("cheapest");
    json.begin_object();
    json.field("change", f.cheapest->text());
    if (f.cheapest_outcome) write_outcome(json, *f.cheapest_outcome);
    json.end_object();
  }
  json.end_object();
}

void write_device(JsonWriter& json, const PlanDevice& d) {
  json.begin_object();
  json.field("rank", d.rank);
  if (d.pid != 0) json.field("pid", d.pid);
  if (!d.file.empty()) json.field("file", d.file);
  json.field("device", d.device);
  json.field("name", d.card_name);
  json.field("card_bytes", d.card_bytes);
  json.field("other_bytes", d.other_bytes);
  json.field("other_bytes_assumed", d.assumes_other);
  json.field("capacity_bytes", d.capacity);
  json.field("capacity_source", limit_source_name(d.capacity_source));
  json.key("recorded");
  json.begin_object();
  json.field("conf", d.own_conf);
  json.field("reserved_peak_bytes", d.recorded_reserved_peak);
  json.field("allocated_peak_bytes", d.recorded_allocated_peak);
  json.field("replayed_reserved_peak_bytes", d.replayed_reserved_peak);
  json.field("out_of_memory", d.ran_out);
  json.field("ends_at_error", d.ends_at_error);
  if (d.other_device_failed) json.field("other_device_failed", *d.other_device_failed);
  json.field("has_whole_step", d.has_whole_step);
  json.field("may_divide_batch", d.may_divide_batch);
  if (!d.growth.empty()) json.field("growth", d.growth);
  json.end_object();
  json.field("learnt_ratio", d.learnt_ratio);
  json.key("plan");
  json.begin_object();
  write_outcome(json, d.outcome);
  write_composition(json, d.outcome);
  json.end_object();
  if (d.fit) write_fit(json, d, *d.fit);
  json.end_object();
}

}  // namespace

std::string plan_as_json(const PlanReport& report) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "tidemark.plan/1");
  json.field("path", report.path);
  if (!report.other_path.empty()) json.field("other_path", report.other_path);
  json.field("change", report.change.text());
  json.key("devices");
  json.begin_array();
  for (const PlanDevice& d : report.devices) write_device(json, d);
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

}  // namespace tidemark
