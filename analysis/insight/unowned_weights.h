// Weights whose nn.Module is not known: they were made or loaded on the device while no module ran,
// and no optimizer names them.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/insight/module_shares.h"

namespace tidemark {

inline uint64_t unowned_weights(std::span<const ModuleShare> shares) {
  for (const ModuleShare& share : shares) {
    if (share.module.empty()) return share.parameter_bytes;
  }
  return 0;
}

}  // namespace tidemark
