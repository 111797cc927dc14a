// What the nn.Modules of the program hold at one instant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/history/memory_state.h"
#include "analysis/insight/module_tree.h"
#include "analysis/load/trace_model.h"

namespace tidemark {

struct ModuleShare {
  std::string module;  // path; empty: blocks of no nn.Module
  std::string class_name;
  uint64_t bytes = 0;
  uint64_t count = 0;
  // Parts of `bytes`.
  uint64_t parameter_bytes = 0;
  uint64_t gradient_bytes = 0;
  uint64_t optimizer_bytes = 0;
  uint64_t kept_bytes = 0;       // activations that wait for the backward pass
  uint64_t transient_bytes = 0;  // everything else
};

// Most bytes first. Empty if the recording knows no nn.Modules. `categories` by allocation; empty:
// those of the model.
std::vector<ModuleShare> shares_by_module(const ProcessModel& process,
                                          const AllocationHistory& model, const MemoryState& state,
                                          std::span<const Category> categories);

// The parts of ModuleShare in the amounts of a ModuleRow.
enum class ModuleUse : uint8_t { kParameter, kGradient, kOptimizer, kKept, kTransient };

// The same shares as a tree, without peaks.
std::vector<ModuleRow> layers_of(std::span<const ModuleShare> shares, const ProcessModel& process);
// The same with peaks: the most that the transient memory of one nn.Module, with all that is inside
// it, took at one time of the recording.
std::vector<ModuleRow> layers_of(std::span<const ModuleShare> shares, const ProcessModel& process,
                                 const AllocationHistory& model,
                                 std::span<const Category> categories);

}  // namespace tidemark
