// One result that may take longer than a frame, made beside the drawing (proto/base/work.h). Of
// several requests only the newest counts.
//
// wish() and value() belong to one thread. `make` should own what it uses, because that must stay
// alive until it is done.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "proto/base/work.h"

namespace tidemark::view {

template <typename T>
class Background {
 public:
  // `wake` asks for a new frame, from any thread.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  // Replaces the value with the result of make(), at once or later.
  void wish(std::function<T()> make, bool at_once) {
    if (at_once) {
      next_.reset();
      stale_ = busy();  // what is being made is older than this
      if (!stale_) result_ = T{};
      value_ = make();
      return;
    }
    next_ = std::move(make);
    poll();
  }

  // Call it once per frame.
  void poll() {
    if (work_.joinable() && done_) {
      work_.join();
      // The old one is destroyed by the next work: freeing a large one takes a part of a frame.
      if (!std::exchange(stale_, false)) std::swap(value_, result_);
    }
    if (work_.joinable() || !next_) return;
    done_ = false;
    work_ = Work({[this, make = std::move(*next_)] {
      result_ = make();
      done_ = true;
      if (wake_) wake_();
    }});
    next_.reset();
  }

  bool busy() const { return work_.joinable() || next_.has_value(); }
  const T& value() const { return value_; }

 private:
  std::function<void()> wake_;
  std::optional<std::function<T()>> next_;
  T value_{};
  T result_{};  // the work's until done_
  std::atomic<bool> done_{false};
  bool stale_ = false;
  Work work_;  // last: it is joined before the rest is destroyed
};

}  // namespace tidemark::view
