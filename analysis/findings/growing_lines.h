// The names of lines that memory grows at.
#pragma once

#include <string>

#include "analysis/findings/evidence.h"

namespace tidemark {

// "train.py:57", "train.py:57 and log.py:12", "train.py:57, log.py:12 and 3 other lines". Where one
// line keeps the results of several functions, "train.py:57 (pad and normalize)"; where several
// functions call it, "log.py:12 (called by train and validate)". "every step" if no line is known.
std::string places_of_growth(const DeviceEvidence& d);

}  // namespace tidemark
