// The actions in the history of a PyTorch memory snapshot, by the name under which torch writes
// them (device_traces[][]["action"]; action_to_str in torch/csrc/cuda/memory_snapshot.cpp).
#pragma once

#include <array>
#include <string_view>

#include "proto/rows.h"

namespace tidemark {

// Indexed by FrameworkAction.
inline constexpr std::array<std::string_view, 10> kSnapshotActions = {"",
                                                                      "alloc",
                                                                      "free_requested",
                                                                      "free_completed",
                                                                      "segment_alloc",
                                                                      "segment_free",
                                                                      "segment_map",
                                                                      "segment_unmap",
                                                                      "oom",
                                                                      "snapshot"};
static_assert(kSnapshotActions.size() == static_cast<size_t>(FrameworkAction::kSnapshot) + 1);

}  // namespace tidemark
