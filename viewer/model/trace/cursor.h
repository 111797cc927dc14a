// The instant that all panels show: an event of one lane, or a time after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "viewer/model/trace/moment_maker.h"
#include "viewer/model/trace/visible_range.h"

namespace tidemark::view {

// The same instant after the trace was read again: the device of the same process, and the event of
// the same time. The first lane where the device is gone.
Instant same_instant(const Model& before, const Instant& instant, const Model& after);

// Only Selection moves it, because highlights and the comparison depend on where it is.
class Cursor {
 public:
  uint32_t lane() const { return at_.lane; }
  // The last event of the lane at or before the cursor.
  uint32_t event() const { return at_.event; }
  // "event 2,222 of 6,103": of its lane, as axes number them. Empty: the lane has none.
  std::string event_text(const Model& model) const;
  // ns since the start of the trace.
  double time(const Model& model) const;
  int64_t time_ns(const Model& model) const { return absolute_ns(model, time(model)); }
  // Of a block; nothing: it is older than the recording. None is negative, also while the memory
  // shown is behind the cursor.
  std::optional<int64_t> age_ns(const Model& model, const Allocation& block) const {
    return age_ns(model, block.birth_ns(), block.seeded);
  }
  // "4.76 ms old", or "older than the recording".
  std::string age_text(const Model& model, const Allocation& block) const;
  std::string age_text(const Model& model, const SegmentChange& creation) const;
  // The last event of any lane at or before the cursor; false when it has none yet.
  bool event_in_lane(const Model& model, uint32_t lane, uint32_t& out) const;

  // The memory at the cursor, computed once per instant. Where very many blocks are live it may be
  // a little behind the cursor; see MomentMaker.
  const Moment& moment(const Model& model);
  // The same, to keep while the cursor moves on.
  std::shared_ptr<const Moment> share_moment(const Model& model);

 private:
  friend class Selection;

  std::optional<int64_t> age_ns(const Model& model, int64_t birth_ns, bool seeded) const {
    if (seeded) return std::nullopt;
    return std::max<int64_t>(time_ns(model) - birth_ns, 0);
  }

  // Both return false where nothing changed.
  bool set_event(const Model& model, const Instant& to);
  bool set_time(const Model& model, uint32_t lane, double time);
  // To a time after its event.
  void set_time_after_event(double time) { between_events_ = time; }
  void carry_over(const Model& before, const Model& after);
  void forget_moment() { maker_->forget(); }
  // After a move: false if the memory here is made in the background, and panels keep what they
  // show until then.
  bool shows_change(const Model& model);

  Instant at_;
  // The time itself where it is later than the event: a kernel, an error, a click between two.
  std::optional<double> between_events_;
  std::shared_ptr<MomentMaker> maker_ = std::make_shared<MomentMaker>();
};

// The error at the cursor: of those that failed after the cursor's event, the one of its time, else
// the last one. Null: there is none.
const OomPoint* oom_at(const Model& model, const Cursor& cursor);

}  // namespace tidemark::view
