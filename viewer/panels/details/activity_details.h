// A kernel or a collective: what it is, how long it ran, and the memory while it did.
#pragma once

#include <optional>
#include <vector>

#include "viewer/model/trace/selection.h"
#include "viewer/panels/details/stretch_view.h"

namespace tidemark::view {

class ActivityDetails {
 public:
  void draw(const Model& model, Selection& selection, const ActivityRef& ref);
  void set_wake(const std::function<void()>& wake) { stretch_.set_wake(wake); }

 private:
  // The same collective on one rank.
  struct Part {
    int64_t rank = -1;
    int64_t called_ns = 0;
    int64_t ran_ns = 0;  // 0: not known
    uint64_t took_ns = 0;
  };

  // Looks up what takes too long to look up in every frame.
  void update(const Model& model, const ActivityRef& ref, const ActivityRow& row);
  void draw_kernel(const Model& model, const ActivityRef& ref, const ActivityRow& row);
  void draw_collective(const Model& model, const ActivityRef& ref, const ActivityRow& row);
  void draw_ranks();
  void draw_memory(const Model& model, const ActivityRef& ref, const ActivityRow& row);

  const Model* model_ = nullptr;
  std::optional<ActivityRef> ref_;
  std::optional<Kernel> kernel_;
  StretchView stretch_;
  std::vector<Part> parts_;
  std::vector<uint32_t> together_;  // other operations in the same kernel
};

}  // namespace tidemark::view
