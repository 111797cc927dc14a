// The names of lines that memory grows at.
#pragma once

#include <string>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

// "train.py:57", "train.py:57 and log.py:12", "train.py:57, log.py:12 and 3 other lines". Where one
// line keeps the results of several functions, "train.py:57 (pad and normalize)"; where several
// functions call it, "log.py:12 (called by train and validate)". "every step" if no line is known.
std::string places_of_growth(const DeviceEvidence& d);

// What may keep it, where the lines give a hint: a view of a result of the model or of a buffer, or
// the variables of functions that have raised; empty otherwise.
std::string how_it_is_kept(const DeviceEvidence& d);
// The same of these stacks: the variables of functions, or "" if they do not look like that.
std::string traceback_text(const std::vector<std::vector<std::string>>& stacks);
// "; if only a slice of it is kept, ...", if the stack is one of the model, or of a function that
// serves requests.
std::string slice_text(const DeviceEvidence& d, uint32_t stack);

}  // namespace tidemark
