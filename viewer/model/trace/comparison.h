// What the memory at the cursor is compared with: an instant of any lane, of this trace or of a
// second one that is open at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "viewer/model/trace/cursor.h"

namespace tidemark::view {

struct Reference {
  bool other = false;  // of the second trace
  uint32_t lane = 0;
  uint32_t event = 0;
  bool follows = false;  // always at the cursor's time
};

// A reference with everything that is needed to look into it.
struct Compared {
  const Model& model;
  const Lane& lane;
  const Moment& moment;
};

// The curve drawn over a lane's own: of another rank, or of the second trace.
struct Overlay {
  const Model* model = nullptr;
  uint32_t lane = 0;
  double offset = 0;  // its times become this trace's by adding this

  const Lane& of() const { return model->lanes[lane]; }
};

// Only Selection changes it, because a reference may follow the cursor.
class Comparison {
 public:
  // None: nothing is compared.
  const std::optional<Reference>& reference() const { return reference_; }
  // The second trace; null: there is none.
  const std::shared_ptr<const Model>& other() const { return other_; }
  // The second trace lies where its clock says; otherwise both begin together.
  bool by_clock() const { return by_clock_; }
  // The second trace's times become this trace's by adding this.
  double offset(const Model& model) const;

  // The trace that the reference belongs to.
  const Model& model_of_reference(const Model& model) const;
  // Of the reference, in ns since the start of this trace.
  double time(const Model& model) const;
  // "since +1.2 s", "against rank 1, cuda:0 at +1.2 s", "against b.tmk, cuda:0 at +1.2 s".
  std::string text(const Model& model, const Cursor& cursor) const;
  // Empty when nothing is compared, or an instant with itself, or while the memory at the reference
  // is still being made.
  std::optional<Compared> compared(const Model& model, const Cursor& cursor);
  // Drawn over a lane: what it is compared with, or the same device of the second trace.
  std::optional<Overlay> overlay_of(const Model& model, const Cursor& cursor, uint32_t lane) const;

 private:
  friend class Selection;

  void set(const Model& model, const Cursor& cursor, const std::optional<Reference>& reference);
  void set_other(std::shared_ptr<const Model> other);
  // The peak of the same device in the second trace, or of its first one.
  Reference peak_of_other(const Model& model, const Cursor& cursor) const;
  void follow(const Model& model, const Cursor& cursor);
  void carry_over(const Model& before, const Model& after);
  void forget_moment() { maker_->forget(); }

  std::optional<Reference> reference_;
  std::shared_ptr<const Model> other_;
  bool by_clock_ = false;
  std::shared_ptr<MomentMaker> maker_ = std::make_shared<MomentMaker>();
};

}  // namespace tidemark::view
