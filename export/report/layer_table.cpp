#include "export/report/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/insight/unowned_weights.h"
#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "export/safe_text.h"

namespace tidemark {

namespace {

constexpr std::string_view kNoModule = "(none)";

uint64_t bytes_of(const ModuleRow& row) {
  return std::accumulate(row.amounts.begin(), row.amounts.end(), uint64_t{0});
}

std::string size_or_dash(uint64_t bytes) {
  return bytes == 0 ? "-" : size_text(bytes);
}

std::string each_text(const ModuleRow& row) {
  if (row.modules.size() < 2) return {};
  return fmt::format("{} x {}", row.modules.size(), size_text(bytes_of(row) / row.modules.size()));
}

bool knows_modules(const DeviceReport& device) {
  return std::any_of(device.layers.begin(), device.layers.end(),
                     [](const ModuleRow& row) { return !row.path.empty(); });
}

// Not where blocks of which nothing is known may be weights.
bool knows_trained(const DeviceReport& device) {
  return device.trained.known() && std::none_of(device.categories.begin(), device.categories.end(),
                                                [&](const CategoryShare& c) {
                                                  return c.category == Category::kUnknown &&
                                                         20 * c.bytes > device.trained.all_bytes;
                                                });
}

// What the rows do not tell.
std::vector<std::string> layer_notes(const DeviceReport& device) {
  std::vector<std::string> notes;
  if (knows_trained(device)) {
    notes.push_back(fmt::format("trained: {} of {} of weights", size_text(device.trained.bytes),
                                size_text(device.trained.all_bytes)));
  }
  if (unowned_weights(device.modules) > device.at_totals.allocated / 100) {
    notes.emplace_back(
        "weights under (none) were made or loaded on the device: which module has them is not "
        "recorded");
  }
  return notes;
}

}  // namespace

std::string layer_name(std::span<const ModuleRow> rows, size_t row, size_t width) {
  const std::string indent(2 * size_t{rows[row].depth}, ' ');
  if (rows[row].path.empty()) return indent + std::string(kNoModule);
  std::string name = safe_text(name_in_parent(rows, row));
  const size_t room = std::max<size_t>(width, indent.size() + 20) - indent.size();
  if (name.size() > room && text_columns(name) == name.size()) {
    name = "..." + name.substr(name.size() - (room - 3));
  }
  return indent + name;
}

std::vector<std::string> layer_lines(const DeviceReport& device, size_t width) {
  constexpr size_t kLines = 24;
  constexpr size_t kNumbers = 81;  // columns before the name
  if (!knows_modules(device)) return {};
  std::vector<std::string> lines;
  const auto add = [&](const std::array<std::string, 8>& text, std::string_view name) {
    lines.push_back(fmt::format("  {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}", text[0],
                                text[1], text[2], text[3], text[4], text[5], text[6], text[7],
                                name));
  };
  add({"all", "", "weights", "gradients", "optimizer", "kept", "transient", "its peak"},
      "nn.Module");
  std::vector<uint64_t> weights;
  for (const ModuleRow& row : device.layers) weights.push_back(bytes_of(row));
  const std::vector<size_t> shown =
      main_rows(device.layers, weights, device.at_totals.allocated, kLines);
  const size_t room = width > kNumbers ? width - kNumbers : 0;
  const auto named = [&](size_t i) {
    const std::string each = each_text(device.layers[i]);
    return layer_name(device.layers, i, room) + (each.empty() ? "" : "  " + each);
  };
  // What each of several modules has, if there is room for it in all rows.
  const bool wide = std::all_of(shown.begin(), shown.end(),
                                [&](size_t i) { return text_columns(named(i)) <= room; });
  for (const size_t i : shown) {
    const ModuleRow& row = device.layers[i];
    std::array<std::string, 8> text = {size_or_dash(weights[i]),
                                       percent_text(weights[i], device.at_totals.allocated)};
    std::transform(row.amounts.begin(), row.amounts.end(), text.begin() + 2, size_or_dash);
    text.back() = size_or_dash(row.peak);
    add(text, wide ? named(i) : layer_name(device.layers, i, room));
  }
  if (shown.size() < device.layers.size()) {
    lines.push_back(
        fmt::format("    ... {} more; --json shows them", device.layers.size() - shown.size()));
  }
  for (const std::string& note : layer_notes(device)) lines.push_back("    " + note);
  return lines;
}

void put_layers(JsonWriter& json, const DeviceReport& device) {
  json.key("by_layer");
  json.begin_array();
  for (const ModuleRow& row : device.layers) {
    const auto amount = [&](ModuleUse use) { return row.amounts[static_cast<size_t>(use)]; };
    json.begin_object();
    json.key("layer");
    row.path.empty() ? json.null() : json.value(row.path);
    json.field("class", row.class_name);
    json.field("depth", uint64_t{row.depth});
    json.field("modules", uint64_t{row.modules.size()});
    json.field("bytes", bytes_of(row));
    json.field("parameter_bytes", amount(ModuleUse::kParameter));
    json.field("gradient_bytes", amount(ModuleUse::kGradient));
    json.field("optimizer_state_bytes", amount(ModuleUse::kOptimizer));
    json.field("kept_bytes", amount(ModuleUse::kKept));
    json.field("transient_bytes", amount(ModuleUse::kTransient));
    json.field("transient_peak_bytes", row.peak);
    json.end_object();
  }
  json.end_array();
  json.key("trained_weights");
  if (knows_trained(device)) {
    json.begin_object();
    json.field("bytes", device.trained.bytes);
    json.field("of_bytes", device.trained.all_bytes);
    json.end_object();
  } else {
    json.null();
  }
}

void put_layers(HtmlWriter& html, const DeviceReport& device) {
  if (!knows_modules(device)) return;
  const auto cells = [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) html.element("span", text);
  };
  html.raw("<div class=\"layers\"><div class=\"dim\">");
  cells({"nn.Module", "all", "", "weights", "gradients", "optimizer", "kept", "transient",
         "its peak"});
  html.raw("</div>\n");
  std::vector<size_t> open;  // ends of the rows that contain the next one
  for (size_t i = 0; i < device.layers.size(); ++i) {
    for (; !open.empty() && open.back() == i; open.pop_back()) html.raw("</details>");
    const ModuleRow& row = device.layers[i];
    const uint64_t bytes = bytes_of(row);
    const bool closed = row.end == i + 1;
    const bool large = bytes * 5 > device.at_totals.allocated;
    html.raw(closed ? "<div>" : large ? "<details open><summary>" : "<details><summary>");
    const std::string each = each_text(row);
    std::vector<std::string> texts = {
        layer_name(device.layers, i, SIZE_MAX) + (each.empty() ? "" : "  " + each),
        size_or_dash(bytes), percent_text(bytes, device.at_totals.allocated)};
    for (const uint64_t amount : row.amounts) texts.push_back(size_or_dash(amount));
    texts.push_back(size_or_dash(row.peak));
    cells(texts);
    html.raw(closed ? "</div>\n" : "</summary>\n");
    if (!closed) open.push_back(row.end);
  }
  for (size_t i = 0; i < open.size(); ++i) html.raw("</details>");
  html.raw("</div>\n");
  for (const std::string& note : layer_notes(device)) html.element("p", note);
}

}  // namespace tidemark
