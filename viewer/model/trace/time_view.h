// The part of the run on the screen, and the ways to move it. Of the traces it knows only how long
// they last.
#pragma once

#include "viewer/model/trace/visible_range.h"

namespace tidemark::view {

class TimeView {
 public:
  const VisibleRange& range() const { return range_; }
  // Everything there is to see, with a margin on both sides.
  VisibleRange whole() const;
  bool shows_end() const { return range_.end >= length_ns_; }
  bool shows_all() const { return range_.begin <= 0 && shows_end(); }

  // When the last of the shown traces ends, in ns since the start of the first.
  double length_ns() const { return length_ns_; }
  void set_length(double ns) { length_ns_ = ns; }

  void fit() { range_ = whole(); }
  // All but the time before this.
  void leave_out_before(double begin);
  // Whether that is what is still shown.
  bool leaves_out_beginning() const { return range_.begin == left_out_ && shows_end(); }
  // factor < 1 zooms in; `at` stays where it is.
  void zoom(double at, double factor);
  // By a share of what is shown.
  void pan(double share);
  void show(double begin, double end);
  // Moves only if the time is not on the screen.
  void reveal(double time);
  // The times themselves changed, because the trace starts earlier or later now.
  void shift(double by) { range_ = {range_.begin + by, range_.end + by}; }

 private:
  VisibleRange range_;
  double length_ns_ = 1;
  double left_out_ = -1e300;  // where the view began
};

}  // namespace tidemark::view
