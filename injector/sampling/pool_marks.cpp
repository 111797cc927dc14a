#include "injector/sampling/pool_marks.h"

#include "abi/cuda.h"
#include "injector/recorder/task_thread.h"
#include "injector/sampling/driver_queries.h"
#include "injector/sampling/fresh_reading.h"

namespace tidemark::injector {

void save_marks_before_reset(uint32_t attribute) noexcept {
  constexpr uint32_t kPatienceMs = 10;
  if (attribute != cuda::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH &&
      attribute != cuda::CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    return;
  }
  const Errand read{[](void*) noexcept { sample_pools(); }, nullptr};
  if (!may_wait()) return;
  const int64_t start_ns = now_ns();
  run_on_task_thread({&read, 1}, kPatienceMs);
  waited(now_ns() - start_ns);
}

}  // namespace tidemark::injector
