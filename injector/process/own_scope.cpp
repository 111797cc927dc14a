#include "injector/process/own_scope.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace tidemark::injector {

thread_local constinit CaptureThread capture_thread{};
std::atomic<uint32_t> capture_session{0};

uint32_t current_thread() noexcept {
  const uint32_t session = capture_session.load(std::memory_order_relaxed);
  if (capture_thread.session == session) [[likely]]
    return capture_thread.tid;
  capture_thread.session = session;
  capture_thread.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  return capture_thread.tid;
}

}  // namespace tidemark::injector
