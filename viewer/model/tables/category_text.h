// The category of blocks for people: "optimizer state", "activation, probably".
#pragma once

#include <string>

#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

// As the report says it, of the instant that it describes; without "probably" until the report is
// attached. For the drawing thread only.
std::string category_text(const Model& model, const Lane& lane, Category category);

}  // namespace tidemark::view
