#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"
#include "export/plan/plan_text.h"
#include "export/report/html_writer.h"

namespace tidemark {

namespace {

constexpr int kWidth = 1000;
constexpr int kPlotHeight = 300;
constexpr int kLeft = 90;
constexpr int kTitle = 64;
constexpr int kBottom = 30;
constexpr int kHeight = kTitle + kPlotHeight + kBottom;  // of one device

class Plot {
 public:
  Plot(HtmlWriter& svg, const PlanReport& report, const PlanDevice& d, int top)
      : svg_(svg), report_(report), d_(d), top_(top) {
    for (const auto* curve : {&d.recorded_curve, &d.outcome.curve}) {
      for (const PlanPoint& p : *curve) {
        events_ = std::max(events_, p.end);
        most_ = std::max({most_, p.reserved, p.allocated});
      }
    }
    // A limit far above the curves would flatten them.
    limit_shown_ = d.capacity != 0 && d.capacity / 4 < most_;
    if (limit_shown_) most_ = std::max(most_, d.capacity);
    most_ += most_ / 20;
  }

  void draw() {
    title();
    for (int i = 0; i <= 4; ++i) grid(most_ / 4 * static_cast<uint64_t>(i));
    // The lower one in front.
    const bool grows = d_.outcome.likely.reserved_peak > d_.recorded_reserved_peak;
    areas(grows ? d_.outcome.curve : d_.recorded_curve, grows ? "#e69f00" : "#0072b2");
    areas(grows ? d_.recorded_curve : d_.outcome.curve, grows ? "#0072b2" : "#e69f00");
    if (limit_shown_) limit();
    svg_.raw(
        fmt::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" "
                    "text-anchor=\"end\">end of the recording, by allocator event</text>\n",
                    kLeft, top_ + kHeight - 8, "start", kWidth, top_ + kHeight - 8));
  }

 private:
  void title() {
    std::string name = fmt::format("cuda:{}", d_.device);
    if (d_.rank >= 0) name = fmt::format("rank {}  ", d_.rank) + name;
    svg_.raw(fmt::format("<text class=\"title\" x=\"{}\" y=\"{}\">{}</text>\n", kLeft, top_ + 22,
                         html_escaped(name + "  " + report_.change.text())));
    key(0, "#0072b2", "recorded: " + size_text(d_.recorded_reserved_peak) + " reserved");
    key(1, "#e69f00",
        "planned: " + size_text(d_.outcome.likely.reserved_peak) + " reserved; darker: allocated");
  }
  void key(int number, std::string_view colour, const std::string& text) {
    const int x = kLeft + number * 240;
    svg_.raw(
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>"
                    "<text x=\"{}\" y=\"{}\">{}</text>\n",
                    x, top_ + 34, colour, x + 20, top_ + 46, html_escaped(text)));
  }
  void grid(uint64_t bytes) {
    svg_.raw(
        fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                    "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                    kLeft, kWidth, y(bytes), y(bytes), kLeft - 6, y(bytes) + 4, size_text(bytes)));
  }
  void limit() {
    svg_.raw(
        fmt::format("<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                    "<text class=\"limit-text\" x=\"{}\" y=\"{:.1f}\" "
                    "text-anchor=\"end\">{} for PyTorch</text>\n",
                    kLeft, kWidth, y(d_.capacity), y(d_.capacity), kWidth - 4, y(d_.capacity) - 5,
                    size_text(d_.capacity)));
  }
  void areas(const std::vector<PlanPoint>& curve, std::string_view colour) {
    area(curve, &PlanPoint::reserved, colour, 0.33);
    area(curve, &PlanPoint::allocated, colour, 0.62);
  }
  void area(const std::vector<PlanPoint>& curve, uint64_t PlanPoint::*value,
            std::string_view colour, double opacity) {
    if (curve.empty()) return;
    std::string path = fmt::format("M{:.1f} {:.1f}", x(curve.front().begin), y(0));
    for (const PlanPoint& p : curve) {
      path += fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", x(p.begin), y(p.*value), x(p.end),
                          y(p.*value));
    }
    path += fmt::format("L{:.1f} {:.1f}Z", x(curve.back().end), y(0));
    svg_.raw(fmt::format("<path d=\"{}\" fill=\"{}\" fill-opacity=\"{:.2f}\"/>\n", path, colour,
                         opacity));
  }
  double x(uint32_t event) const {
    return kLeft + (kWidth - kLeft) * static_cast<double>(event) / static_cast<double>(events_);
  }
  double y(uint64_t bytes) const {
    const double share =
        static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(most_, 1));
    return top_ + kTitle + kPlotHeight * (1 - share);
  }

  HtmlWriter& svg_;
  const PlanReport& report_;
  const PlanDevice& d_;
  int top_;
  uint32_t events_ = 1;
  uint64_t most_ = 1;
  bool limit_shown_ = false;
};

}  // namespace

std::string plan_as_svg(const PlanReport& report) {
  HtmlWriter svg;
  const int height = kHeight * static_cast<int>(report.devices.size());
  svg.raw(
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
                  "width=\"{}\" height=\"{}\">\n<style>text {{ font: 13px sans-serif; fill: "
                  "#444; }} .title {{ font-size: 16px; fill: #111; }} .grid {{ stroke: #ddd; "
                  "}} .limit {{ stroke: #d0021b; stroke-dasharray: 6 4; }} .limit-text {{ "
                  "fill: #d0021b; }}</style>\n<rect width=\"100%\" height=\"100%\" "
                  "fill=\"#fff\"/>\n",
                  kWidth + 10, height, kWidth + 10, height));
  int top = 0;
  for (const PlanDevice& d : report.devices) {
    Plot(svg, report, d, top).draw();
    top += kHeight;
  }
  svg.raw("</svg>\n");
  return std::move(svg).take();
}

}  // namespace tidemark
