#include "collector/job/clock_fit.h"

#include <algorithm>
#include <cmath>

namespace tidemark {

namespace {

constexpr size_t kFewestForDrift = 8;
constexpr double kLargestDrift = 5e-4;    // a larger one is a broken clock, not drift
constexpr double kSmallestSpread = 1000;  // ns: smaller distances are below the clock's resolution

// In ns, relative to the middle of the points: seconds would lose digits.
struct Point {
  double x = 0;
  double y = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Line {
  double offset = 0;
  double slope = 0;
  double at(double x) const { return offset + slope * x; }
};

std::vector<double> distances(const std::vector<Point>& points, const Line& line) {
  std::vector<double> all;
  all.reserve(points.size());
  for (const Point& p : points) all.push_back(std::abs(p.y - line.at(p.x)));
  return all;
}

double median_offset(const std::vector<Point>& points, double slope) {
  std::vector<double> offsets;
  for (const Point& p : points) offsets.push_back(p.y - slope * p.x);
  return median(std::move(offsets));
}

// The points are sorted by x.
Line median_line(const std::vector<Point>& points) {
  const size_t half = points.size() / 2;
  std::vector<double> slopes;
  for (size_t i = 0; i + half < points.size(); ++i) {
    const double run = points[i + half].x - points[i].x;
    if (run > 0) slopes.push_back((points[i + half].y - points[i].y) / run);
  }
  Line line;
  if (!slopes.empty()) line.slope = median(std::move(slopes));
  line.offset = median_offset(points, line.slope);
  return line;
}

struct Fit {
  Line line;
  double slope_error = 0;  // one standard deviation
};

Fit least_squares(const std::vector<Point>& points) {
  const auto n = static_cast<double>(points.size());
  double mean_x = 0;
  double mean_y = 0;
  for (const Point& p : points) {
    mean_x += p.x / n;
    mean_y += p.y / n;
  }
  double xx = 0;
  double xy = 0;
  for (const Point& p : points) {
    xx += (p.x - mean_x) * (p.x - mean_x);
    xy += (p.x - mean_x) * (p.y - mean_y);
  }
  Fit fit;
  if (xx > 0) fit.line.slope = xy / xx;
  fit.line.offset = mean_y - fit.line.slope * mean_x;
  double rest = 0;
  for (const Point& p : points) rest += std::pow(p.y - fit.line.at(p.x), 2);
  if (xx > 0 && n > 2) fit.slope_error = std::sqrt(rest / (n - 2) / xx);
  return fit;
}

std::vector<Point> near_points(const std::vector<Point>& points, const Line& line) {
  constexpr double kFar = 4 * 1.4826;  // median distances: four standard deviations
  const std::vector<double> off = distances(points, line);
  const double limit = std::max(kFar * median(off), kSmallestSpread);
  std::vector<Point> near;
  for (size_t i = 0; i < points.size(); ++i) {
    if (off[i] <= limit) near.push_back(points[i]);
  }
  return near;
}

Fit robust_fit(const std::vector<Point>& points) {
  Fit fit;
  if (points.size() >= kFewestForDrift) {
    const std::vector<Point> near = near_points(points, median_line(points));
    if (near.size() >= kFewestForDrift) fit = least_squares(near);
    // A slope within its error counts as none: otherwise short recordings would invent drift.
    if (std::abs(fit.line.slope) > 5 * fit.slope_error &&
        std::abs(fit.line.slope) < kLargestDrift) {
      return fit;
    }
  }
  fit.line = {median_offset(points, 0), 0};
  return fit;
}

}  // namespace

Alignment fit_clock(std::vector<ClockPoint> points, int64_t first_ns, int64_t last_ns) {
  std::sort(points.begin(), points.end(),
            [](const ClockPoint& a, const ClockPoint& b) { return a.rank_ns < b.rank_ns; });
  const int64_t middle = points[points.size() / 2].rank_ns;
  const int64_t ahead = points[points.size() / 2].ahead_ns;
  std::vector<Point> relative;
  for (const ClockPoint& p : points) {
    relative.push_back(
        {static_cast<double>(p.rank_ns - middle), static_cast<double>(p.ahead_ns - ahead)});
  }
  const Fit fit = robust_fit(relative);
  std::vector<double> off = distances(relative, fit.line);
  const auto rank = static_cast<std::ptrdiff_t>((off.size() * 95 + 99) / 100 - 1);
  std::nth_element(off.begin(), off.begin() + rank, off.end());
  const double reach = std::max(std::abs(static_cast<double>(first_ns - middle)),
                                std::abs(static_cast<double>(last_ns - middle)));

  Alignment clock{};
  clock.reference_ns = middle;
  clock.offset_ns = ahead + static_cast<int64_t>(std::llround(fit.line.offset));
  clock.drift_ppb = std::llround(fit.line.slope * 1e9);
  clock.residual_ns =
      static_cast<uint64_t>(off[static_cast<size_t>(rank)] + 2 * fit.slope_error * reach);
  clock.samples = points.size();
  clock.method = AlignmentMethod::kCollectives;
  return clock;
}

}  // namespace tidemark
