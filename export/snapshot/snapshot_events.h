// The allocator's events of a process as a snapshot lists them: in time order, each with a size.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "export/export_input.h"

namespace tidemark {

// Events of an imported snapshot come in file order. Threads of a captured process record
// separately, so its rows are sorted, and segments that only the driver reported are merged in.
// Those of the backend cudaMallocAsync are made from the driver's calls.
void for_each_event(const ExportProcess& process,
                    const std::function<void(const FrameworkEvent&)>& use);

// When only blocks were seen, the requested size is not known. The block's size is used instead,
// for its free, too.
class SnapshotSizes {
 public:
  void fill_in(FrameworkEvent& event);

 private:
  std::unordered_map<uint64_t, uint64_t> unknown_;  // address -> bytes of its block
};

}  // namespace tidemark
