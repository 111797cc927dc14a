#include "viewer/model/trace/time_view.h"

#include <algorithm>

namespace tidemark::view {

namespace {

// A view narrower than this shows nothing new: times are whole nanoseconds.
constexpr double kLeastSpanNs = 20;
// Space around the traces, as a share of their length.
constexpr double kMargin = 0.02;

}  // namespace

VisibleRange TimeView::whole() const {
  return {-kMargin * length_ns_, length_ns_ * (1 + kMargin)};
}

void TimeView::show(double begin, double end) {
  const double span = std::clamp(end - begin, kLeastSpanNs, length_ns_ * (1 + 2 * kMargin));
  // At most half of the view may lie beyond either end of the traces.
  const double middle = std::clamp((begin + end) / 2, 0.0, length_ns_);
  const bool all = span >= length_ns_;
  const double at = all ? length_ns_ / 2 : middle;
  range_ = {at - span / 2, at + span / 2};
}

void TimeView::leave_out_rest(double begin, double end) {
  constexpr double kBefore = 0.05;  // so that the first allocation is seen to rise
  const double span = end - begin;
  show(begin - kBefore * span, end + kMargin * span);
  part_ = range_;
}

void TimeView::zoom(double at, double factor) {
  const double span =
      std::clamp(range_.span() * factor, kLeastSpanNs, length_ns_ * (1 + 2 * kMargin));
  const double share = (at - range_.begin) / range_.span();
  const double begin = at - share * span;
  show(begin, begin + span);
}

void TimeView::pan(double share) {
  const double by = range_.span() * share;
  show(range_.begin + by, range_.end + by);
}

void TimeView::reveal(double time) {
  if (time >= range_.begin && time <= range_.end) return;
  const double half = range_.span() / 2;
  show(time - half, time + half);
}

}  // namespace tidemark::view
