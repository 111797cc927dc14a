#include "analysis/findings/causes/card/library_memory.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/findings/largest_stack.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

LibraryMemory library_memory(const DeviceEvidence& d, int64_t time_ns) {
  struct Owned {
    uint64_t bytes = 0;
    uint64_t allocations = 0;
    std::unordered_map<uint32_t, uint64_t> by_stack;
  };
  std::map<std::string_view, Owned> owners;
  for (const DriverAllocation& a : d.process->driver.allocations) {
    if (a.device != d.device || !a.on_card() || a.birth_ns > time_ns || a.death_ns <= time_ns) {
      continue;
    }
    const std::string_view owner = d.process->names.string(a.owner);
    if (owner.empty() || owner.starts_with("torch")) continue;
    Owned& owned = owners[owner];
    owned.bytes += a.size_bytes;
    ++owned.allocations;
    owned.by_stack[a.stack] += a.size_bytes;
  }
  LibraryMemory most;
  for (const auto& [owner, owned] : owners) {
    if (owned.bytes <= most.bytes) continue;
    most = {std::string(owner), owned.bytes, owned.allocations, largest_stack(owned.by_stack)};
  }
  return most;
}

std::string library_text(const LibraryMemory& library) {
  return fmt::format("{} holds {} of the card in this process, outside PyTorch ({})",
                     library.owner == "program" ? "other code" : library.owner,
                     size_text(library.bytes), counted(library.allocations, "allocation"));
}

Advice shrink_library(const DeviceEvidence& d, const LibraryMemory& library) {
  const std::vector<std::string> frames = d.process->names.stack_text(library.stack);
  const std::string line =
      frames.empty() ? "" : fmt::format(" (most of it for {})", place_of(frames));
  const std::string bytes = size_text(library.bytes);
  if (library.owner == "cupy") {
    return {"shrink_library",
            fmt::format("CuPy's pool keeps what its arrays no longer use: call "
                        "cupy.get_default_memory_pool().free_all_blocks() before PyTorch needs the "
                        "memory, or limit the pool (set_limit){}: frees up to {}",
                        line, bytes),
            library.bytes};
  }
  return {"shrink_library",
          fmt::format("free what it no longer uses before PyTorch needs the memory, or limit its "
                      "pool{}: frees up to {}",
                      line, bytes),
          library.bytes};
}

}  // namespace tidemark
