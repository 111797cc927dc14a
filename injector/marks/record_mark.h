// The rows that programs put on the timeline themselves.
#pragma once

#include "injector/process/hook_time.h"
#include "injector/process/own_scope.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

inline void record_mark(MarkKind kind, MarkPhase phase, uint32_t name, uint32_t domain,
                        uint64_t correlation) noexcept {
  const HookTime time;
  Mark mark{};
  mark.time_ns = now_ns();
  mark.correlation = correlation;
  mark.device = -1;
  mark.name = name;
  mark.domain = domain;
  mark.thread = current_thread();
  mark.phase = phase;
  mark.kind = kind;
  recorder().record(mark);
}

}  // namespace tidemark::injector
