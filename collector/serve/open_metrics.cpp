#include "collector/serve/open_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tidemark {

namespace {

std::string_view type_name(Metric::Type type) {
  switch (type) {
    case Metric::Type::kCounter:
      return "counter";
    case Metric::Type::kLabels:
      return "info";
    case Metric::Type::kGauge:
      break;
  }
  return "gauge";
}

std::string_view suffix_of(Metric::Type type) {
  switch (type) {
    case Metric::Type::kCounter:
      return "_total";
    case Metric::Type::kLabels:
      return "_info";
    case Metric::Type::kGauge:
      break;
  }
  return "";
}

// The length of the UTF-8 sequence that begins here; 0: there is none.
size_t sequence_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong, surrogates, and beyond the last character.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return size;
}

}  // namespace

std::string escaped_label(std::string_view value) {
  std::string text;
  while (!value.empty()) {
    const size_t size = sequence_at(value);
    if (size == 0) {
      text += "\xef\xbf\xbd";
    } else if (value[0] == '\n') {
      text += "\\n";
    } else {
      if (value[0] == '\\' || value[0] == '"') text += '\\';
      text += value.substr(0, size);
    }
    value.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
}

void MetricPage::put(const Metric& metric, const MetricLabels& labels, const std::string& value) {
  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const Family& f) { return f.metric == &metric; });
  if (family == families_.end()) family = families_.insert(families_.end(), {&metric, ""});
  std::string& out = family->samples;
  out += fmt::format("{}{}", metric.name, suffix_of(metric.type));
  for (size_t i = 0; i < labels.size(); ++i) {
    out += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first,
                       escaped_label(labels[i].second));
  }
  out += fmt::format("{} {}\n", labels.empty() ? "" : "}", value);
}

void MetricPage::add(const Metric& metric, const MetricLabels& labels, uint64_t value) {
  put(metric, labels, std::to_string(value));
}

void MetricPage::add(const Metric& metric, const MetricLabels& labels, double value) {
  put(metric, labels, std::isfinite(value) ? fmt::format("{}", value) : std::string("NaN"));
}

std::string MetricPage::write(bool open) const {
  std::string page;
  for (const Family& family : families_) {
    const Metric& metric = *family.metric;
    const std::string name = fmt::format("{}{}", metric.name, open ? "" : suffix_of(metric.type));
    page += fmt::format("# HELP {} {}\n", name, metric.help);
    page += fmt::format(
        "# TYPE {} {}\n", name,
        !open && metric.type == Metric::Type::kLabels ? "gauge" : type_name(metric.type));
    if (open && !metric.unit.empty()) page += fmt::format("# UNIT {} {}\n", name, metric.unit);
    page += family.samples;
  }
  if (open) page += "# EOF\n";
  return page;
}

std::string MetricPage::open_metrics() const {
  return write(true);
}

std::string MetricPage::plain_text() const {
  return write(false);
}

}  // namespace tidemark
