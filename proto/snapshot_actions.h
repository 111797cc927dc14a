// Names in a PyTorch memory snapshot: the actions of its history as torch writes them
// (device_traces[][]["action"]; action_to_str in torch/csrc/cuda/memory_snapshot.cpp).
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

// What an import notes (HealthKind::kSourceMissing) about a snapshot whose entries have no times.
// An export knows by it that the times of the trace are only an order.
inline constexpr std::string_view kNoTimes =
    "this snapshot has no times (torch before 2.2): its entries are shown 1 us apart";

// Frames of a capture that torch does not have: tidemark writes them with these file names, and
// knows them by these again.
inline constexpr std::string_view kAutogradFile = "<autograd>";  // a node of autograd's graph
inline constexpr std::string_view kThreadFile = "<thread>";      // a thread without a stack

}  // namespace tidemark
