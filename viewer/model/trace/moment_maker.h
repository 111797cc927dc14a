// The memory at one instant, and how it is made.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "viewer/model/background.h"
#include "viewer/model/map/live_sums.h"
#include "viewer/model/map/map_layout.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

// An event of a lane.
struct Instant {
  uint32_t lane = 0;
  uint32_t event = 0;

  friend bool operator==(const Instant&, const Instant&) = default;
};

// The memory of one lane at one instant.
struct Moment {
  uint32_t lane = 0;
  uint32_t event = 0;
  bool known = true;  // otherwise it is still being made, and this one is empty
  MemoryState state;
  MapLayout layout;
  LiveSums live;
};
std::shared_ptr<const Moment> make_moment(const Model& model, const Instant& instant);
std::shared_ptr<const Moment> unknown_moment(const Model& model, const Instant& instant);

// Makes it at once where few blocks are live, else in the background, while the last one stays.
// Belongs to the drawing thread.
class MomentMaker {
 public:
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  // For pictures: always at once.
  bool patient = false;

  // Whether get() would take longer than a frame has.
  bool is_slow(const Model& model, const Instant& at) const;
  // Until the moment of this instant is there: the last one of the same lane, or one that is not
  // known.
  const std::shared_ptr<const Moment>& get(const Model& model, const Instant& at);
  // Once per frame. True: there is a new one.
  bool poll();
  // Blocks or the trace changed.
  void forget();

 private:
  bool has(const Model& model, const Instant& at) const {
    return shown_ != nullptr && shown_->known && of_ == &model &&
           Instant{shown_->lane, shown_->event} == at;
  }

  Background<std::shared_ptr<const Moment>> work_;
  std::shared_ptr<const Moment> shown_;
  const Model* of_ = nullptr;
  Instant wanted_;
  const Model* wanted_of_ = nullptr;
  bool waiting_ = false;
};

}  // namespace tidemark::view
