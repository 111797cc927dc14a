// What the colours of the live blocks mean, for legends.
#pragma once

#include <string>
#include <vector>

#include "viewer/model/palette.h"
#include "viewer/model/trace/moment_maker.h"

namespace tidemark::view {

struct ColourRow {
  Rgb colour;
  std::string name;
  uint64_t bytes = 0;
  std::vector<Rgb> others{};  // of a line with several call stacks: the colours of the next ones
};

// At most this many, most bytes first; pending frees are not counted. None of age and size, whose
// colours are a scale.
std::vector<ColourRow> colour_rows(const Model& model, ColourBy by, const Moment& moment,
                                   size_t most);

}  // namespace tidemark::view
