// The allocator's events of a process as a snapshot lists them: in the order in which they
// happened, each with a size.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "export/export_input.h"

namespace tidemark {

// Those of a snapshot as they lie in the file. Threads of a captured process record for themselves,
// so its rows are sorted; segments that only the driver told of are put between them.
void for_each_event(const ExportProcess& process,
                    const std::function<void(const FrameworkEvent&)>& use);

// What a program asked for is not known where only blocks were seen: then the block's size stands
// in, for its free, too.
class SnapshotSizes {
 public:
  void fill_in(FrameworkEvent& event);

 private:
  std::unordered_map<uint64_t, uint64_t> unknown_;  // address -> bytes of its block
};

}  // namespace tidemark
