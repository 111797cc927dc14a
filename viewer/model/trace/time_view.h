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
  // This part at first, with a margin on both sides; the quiet rest is left out.
  void leave_out_rest(double begin, double end);
  // Whether that is what is still shown.
  bool leaves_out_rest() const { return range_.begin == part_.begin && range_.end == part_.end; }
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
  VisibleRange part_{0, -1};  // of leave_out_rest()
};

}  // namespace tidemark::view
