// Shares memory between processes: a file descriptor whose content identifies the owner.
#pragma once

#include <cstdint>
#include <optional>

#include "simgpu/driver.h"

namespace tidemark::simgpu {

struct Shareable {
  enum Kind : uint32_t { kPhysical = 1, kPool = 2 };
  Kind kind;
  uint32_t pid;
  int32_t card;  // -1: host memory
  uint64_t bytes;
  uint64_t handle;  // in the process that made it
};

// A new descriptor, or -1.
int export_shareable(const Shareable& content);
// Leaves the descriptor open: the importer closes it, as with the real driver.
std::optional<Shareable> import_shareable(int fd);

// The device of this process on a card, or nullptr.
Device* device_of_card(Driver& driver, int card);

}  // namespace tidemark::simgpu
