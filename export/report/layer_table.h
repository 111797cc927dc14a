// What the layers of a program hold at the instant of a report, summed up the tree of its
// nn.Modules: as text, JSON and HTML.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/report/report.h"
#include "export/report/html_writer.h"
#include "export/report/json_writer.h"

namespace tidemark {

// The main rows; the first line has the names of the columns. Empty: no nn.Module is known.
std::vector<std::string> layer_lines(const DeviceReport& device, size_t width);
// Key and list of all rows.
void put_layers(JsonWriter& json, const DeviceReport& device);
// Rows that open, without a title.
void put_layers(HtmlWriter& html, const DeviceReport& device);

// "    mlp  (24 x 1.2 MiB)": indented by its depth, of a row that stands for several nn.Modules
// with what each has. Of a long name the end tells most.
std::string layer_name(std::span<const ModuleRow> rows, size_t row, size_t width);

}  // namespace tidemark
