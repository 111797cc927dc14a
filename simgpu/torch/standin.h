// Functions that tests call through ctypes. Sizes in bytes; a block is identified by its address.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Creates a context on device 0 and the allocator. 1: done.
int standin_init(void);
uint64_t standin_alloc(size_t size, uint64_t stream);  // 0: out of memory
void standin_free(uint64_t address);
// The block is in use on another stream: its free completes with standin_process_events.
void standin_record_stream(uint64_t address);
void standin_process_events(void);
void standin_empty_cache(void);
void standin_set_limit(size_t bytes);  // 0: none
void standin_set_fraction(double fraction);
// The backend cudaMallocAsync, before the first allocation; and its reset_peak_memory_stats.
void standin_use_async(void);
void standin_reset_peaks(void);
// New segments are VMM memory; and unmaps all of it (1) or maps it again (0), as serving systems
// do.
void standin_use_sleeping_memory(int on);
void standin_sleep(int on);
void standin_use_pool(uint64_t first, uint64_t second);

struct StandinStats {
  uint64_t allocated, allocated_peak, requested, requested_peak, reserved, reserved_peak, ooms;
};
void standin_stats(StandinStats* stats);

// Allocates and frees `count` times on a thread that Python does not know, with or without an
// autograd node. Keeps the last block and returns its address.
uint64_t standin_worker(size_t size, int count, int with_node);
// An operation that has made a node stores the current stream in it.
void standin_set_history(void);
// Allocates once on such a thread, inside a node that another thread has made (libtorch_cpu.so:
// standin_make_node, standin_thread), and returns the address.
uint64_t standin_backward(size_t size, uint64_t sequence, uint64_t thread);

// So many random calls on this thread, as fast as possible. In the end all of its blocks are freed.
void standin_churn(uint64_t calls, uint64_t seed);
}
