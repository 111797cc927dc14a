// Numbers in the text formats that Prometheus reads.
//
// OpenMetrics 1.0 and the older text format 0.0.4 differ in how a counter and an info are declared,
// and in the end mark, so a page is made in both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

struct Metric {
  enum class Type : uint8_t { kGauge, kCounter, kLabels };
  std::string_view name;  // without _total and _info; ends with the unit if it has one
  Type type = Type::kGauge;
  std::string_view unit;  // "bytes", "seconds" or ""
  std::string_view help;
};

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Collects samples; families are written in the order of their first sample.
class MetricPage {
 public:
  // The Metric must outlive the page. Two samples of a metric must differ in their labels.
  void add(const Metric& metric, const MetricLabels& labels, uint64_t value);
  void add(const Metric& metric, const MetricLabels& labels, double value);

  std::string open_metrics() const;
  std::string plain_text() const;

 private:
  struct Family {
    const Metric* metric;
    std::string samples;
  };
  void put(const Metric& metric, const MetricLabels& labels, const std::string& value);
  std::string write(bool open) const;

  std::vector<Family> families_;
};

// The value of a label between its quotation marks: backslashes, quotation marks and line ends
// escaped, and bytes that are not UTF-8 replaced.
std::string escaped_label(std::string_view value);

}  // namespace tidemark
