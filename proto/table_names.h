// The names of the tables in reports and messages.
#pragma once

#include <string_view>

#include "proto/rows.h"

namespace tidemark {

constexpr std::string_view table_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::kProcesses:
      return "processes";
    case BlockKind::kDevices:
      return "devices";
    case BlockKind::kSettings:
      return "settings";
    case BlockKind::kStrings:
      return "strings";
    case BlockKind::kModules:
      return "modules";
    case BlockKind::kFrames:
      return "frames";
    case BlockKind::kStacks:
      return "stacks";
    case BlockKind::kThreads:
      return "threads";
    case BlockKind::kPools:
      return "pools";
    case BlockKind::kNnModules:
      return "nn modules";
    case BlockKind::kDriverEvents:
      return "driver events";
    case BlockKind::kFrameworkEvents:
      return "framework events";
    case BlockKind::kOutOfMemory:
      return "out of memory";
    case BlockKind::kSegmentStates:
      return "segment states";
    case BlockKind::kBlockStates:
      return "block states";
    case BlockKind::kCounters:
      return "counters";
    case BlockKind::kKernels:
      return "kernels";
    case BlockKind::kCopies:
      return "copies";
    case BlockKind::kCommunicators:
      return "communicators";
    case BlockKind::kNcclOperations:
      return "nccl operations";
    case BlockKind::kMarks:
      return "marks";
    case BlockKind::kTensorTags:
      return "tensor tags";
    case BlockKind::kClockSamples:
      return "clock samples";
    case BlockKind::kAlignments:
      return "alignments";
    case BlockKind::kHealth:
      return "health";
    case BlockKind::kSummaries:
      return "summaries";
    case BlockKind::kNone:
    case BlockKind::kIndex:
      break;
  }
  return "records of an unknown kind";
}

}  // namespace tidemark
