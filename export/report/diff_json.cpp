#include <utility>

#include "export/report/diff_text.h"
#include "export/report/json_writer.h"

namespace tidemark {

namespace {

void put_names(JsonWriter& json, std::string_view name, const std::vector<std::string>& names) {
  json.key(name);
  json.begin_array();
  for (const std::string& text : names) json.value(text);
  json.end_array();
}

void put_lines(JsonWriter& json, std::string_view name, const std::vector<DiffLine>& lines) {
  json.key(name);
  json.begin_array();
  for (const DiffLine& line : lines) {
    json.begin_object();
    if (!line.name.empty()) json.field("name", line.name);
    const auto put = [&](std::string_view key, auto number, bool known) {
      json.key(key);
      known ? json.value(number) : json.null();
    };
    put("before_bytes", line.before_bytes, line.before_known);
    put("after_bytes", line.after_bytes, line.after_known);
    put("change_bytes", line.change(), line.comparable());
    if (line.before_history) json.field("before_history", true);
    if (line.name.empty()) {
      put_names(json, "frames", line.frames);
      if (!line.before_frames.empty()) put_names(json, "before_frames", line.before_frames);
    }
    json.end_object();
  }
  json.end_array();
}

void put_layers(JsonWriter& json, const std::vector<ModuleRow>& layers) {
  json.key("by_layer");
  json.begin_array();
  for (const ModuleRow& row : layers) {
    const uint64_t before = row.amounts[0];
    const uint64_t after = row.amounts[1];
    json.begin_object();
    json.key("layer");
    row.path.empty() ? json.null() : json.value(row.path);
    json.field("depth", uint64_t{row.depth});
    json.field("modules", uint64_t{row.modules.size()});
    json.field("before_bytes", before);
    json.field("after_bytes", after);
    json.field("change_bytes", static_cast<int64_t>(after) - static_cast<int64_t>(before));
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string diff_as_json(const Diff& diff) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "tidemark.diff/1");
  json.field("before", diff.before_path);
  json.field("after", diff.after_path);
  json.key("devices");
  json.begin_array();
  for (const DeviceDiff& d : diff.devices) {
    json.begin_object();
    json.field("before_rank", d.before_rank);
    json.field("after_rank", d.after_rank);
    json.field("before_device", d.before_device);
    json.field("after_device", d.after_device);
    put_lines(json, "peaks", d.peaks);
    put_lines(json, "by_category", d.categories);
    put_lines(json, "by_owner", d.owners);
    put_lines(json, "by_module", d.modules);
    put_layers(json, d.layers);
    put_lines(json, "by_stack", d.stacks);
    json.end_object();
  }
  json.end_array();
  put_names(json, "unpaired", diff.unpaired);
  put_names(json, "findings_appeared", diff.appeared);
  put_names(json, "findings_disappeared", diff.disappeared);
  put_names(json, "notes_appeared", diff.notes_appeared);
  put_names(json, "notes_disappeared", diff.notes_disappeared);
  json.field("before_has_losses", diff.before_has_losses);
  json.field("after_has_losses", diff.after_has_losses);
  put_names(json, "losses", diff.losses);
  put_names(json, "notes", diff.notes);
  json.end_object();
  return std::move(json).take();
}

}  // namespace tidemark
