// The colour of a block under the chosen colouring, the same in every panel.
#pragma once

#include "viewer/model/palette.h"
#include "viewer/model/trace/cursor.h"

namespace tidemark::view {

inline Rgb block_colour(const Model& model, ColourBy by, const Cursor& cursor,
                        const Allocation& block) {
  switch (by) {
    case ColourBy::kCategory:
      return category_colour(block.category);
    case ColourBy::kStack:
      return stack_colour(block.stack);
    case ColourBy::kAge: {
      // What is older than the recording is as old as anything gets.
      const int64_t oldest_ns = model.trace.end_ns - model.trace.start_ns;
      return age_colour(cursor.age_ns(model, block).value_or(oldest_ns), oldest_ns);
    }
    case ColourBy::kSize:
      return size_colour(block.block_bytes);
    case ColourBy::kOwner: {
      const Lane& lane = model.lanes[cursor.lane()];
      return owner_colour(lane.of_driver ? model.process_of(lane).names.string(block.metadata)
                                         : "torch");
    }
    case ColourBy::kModule:
      return stack_colour(model.process_of(model.lanes[cursor.lane()]).nn_module_of(block));
  }
  return {};
}

}  // namespace tidemark::view
