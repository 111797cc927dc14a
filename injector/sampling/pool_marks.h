// Reads the high-water marks of the driver's pools before a program resets them.
//
// PyTorch's backend cudaMallocAsync takes its peaks from these marks, and
// torch.cuda.reset_peak_memory_stats() resets them. A callback must not call the driver, so the
// task thread reads them while the calling thread waits, for a short time and not often.
#pragma once

#include <cstdint>

namespace tidemark::injector {

// ENTER of cuMemPoolSetAttribute for `attribute`. Not on the task thread.
void save_marks_before_reset(uint32_t attribute) noexcept;

}  // namespace tidemark::injector
