// Stacks in which PyTorch takes a workspace for cuBLAS or cublasLt, where native frames say so.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/names/dictionary.h"
#include "analysis/names/workspace_names.h"

namespace tidemark {

// By stack id.
inline std::vector<bool> workspace_stacks(const Dictionary& names) {
  std::vector<bool> takes(names.stack_count(), false);
  for (uint32_t id = 1; id < takes.size(); ++id) {
    const std::string_view function = names.string(names.frame(names.stack(id).frame).function);
    const uint32_t parent = names.stack(id).parent;
    takes[id] = takes_workspace(function) || (parent < id && takes[parent]);
  }
  return takes;
}

}  // namespace tidemark
