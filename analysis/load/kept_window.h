// What the recorder marks at the beginning of the window that a recording with a limit keeps
// (FORMAT.md, "Reading").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "analysis/names/dictionary.h"
#include "proto/rows.h"

namespace tidemark {

struct KeptWindow {
  int64_t from_ns = 0;  // 0: everything was kept
  // Marks of steps before it; nothing: an older recorder did not count them.
  std::optional<uint64_t> iterations_before;
  std::optional<uint64_t> optimizer_steps_before;
  // Out-of-memory errors before it, by device.
  std::map<int64_t, uint64_t> errors_before;

  bool exists() const { return from_ns != 0; }
};

KeptWindow find_kept_window(std::span<const Mark> marks, const Dictionary& names);

}  // namespace tidemark
