// One simulated card: how many bytes each process holds.
//
// With a folder, the numbers are in a small file that all processes map, one slot per process:
//
//   0      magic, reserved
//   16     slot 0: pid, contexts, used bytes
//   32     slot 1 …
//
// A slot belongs to the process that holds the file lock on its byte, so the kernel frees the
// memory of a killed process at once, like a driver. Byte 0 is locked while a process takes memory,
// so that the check for free memory is valid for all of them. (A process loses its record locks
// when it closes *any* descriptor of the file: nothing here ever closes one.)
//
// Threads: the caller serialises take, give and set_contexts; the rest may run at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/config.h"

namespace tidemark::simgpu {

struct ProcessUse {
  uint32_t pid;
  uint64_t bytes;
};

class Card {
 public:
  Card(const Config& config, int index);

  int index() const { return index_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }

  // Takes `bytes` for this process; false if they do not fit.
  bool take(uint64_t bytes);
  void give(uint64_t bytes);
  // Number of contexts of this process: NVML lists the processes that have one.
  void set_contexts(uint32_t count);

  // Used by all processes.
  uint64_t used_bytes() const;
  // Processes with a context.
  std::vector<ProcessUse> processes() const;

 private:
  static constexpr int kSlots = 128;
  struct Slot {
    std::atomic<uint32_t> pid;
    std::atomic<uint32_t> contexts;
    std::atomic<uint64_t> used_bytes;
  };
  struct State {
    uint64_t magic;
    uint64_t reserved;
    Slot slots[kSlots];
  };

  void map_shared(const std::string& path);
  bool held(int slot) const;
  bool claim();

  int index_;
  uint64_t capacity_bytes_;
  int fd_ = -1;  // -1: not shared
  State* state_ = nullptr;
  std::atomic<int> own_slot_{-1};  // NVML reads it on other threads
};

}  // namespace tidemark::simgpu
