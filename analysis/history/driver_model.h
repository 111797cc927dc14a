// What the driver gave out in one process: every allocation with its birth and death, by kind,
// owner and device, and every request that failed.
//
// A recording that began late knows the framework's segments (seeded) and nothing else of what was
// there before: see "pre_attach" in ledger.h.
//
// VMM memory exists from its creation until its last reference and its last mapping are gone;
// reserved addresses, imports and host-located memory occupy no card. Rows of different threads are
// not in order of time in the file: they are sorted here.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "proto/rows.h"

namespace tidemark {

inline constexpr size_t kMemoryKinds = static_cast<size_t>(MemoryKind::kCode) + 1;

struct DriverAllocation {
  uint64_t address = 0;  // or handle, for memory that has no address of its own
  uint64_t size_bytes = 0;
  uint64_t stream = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;
  int64_t device = 0;
  uint32_t owner = 0;  // string
  uint32_t stack = 0;
  uint32_t thread = 0;
  uint32_t pool = 0;
  uint32_t flags = 0;
  MemoryKind kind = MemoryKind::kNone;

  // Whether its bytes lie on the card and are this process's.
  bool on_card() const;
};

using KindBytes = std::array<uint64_t, kMemoryKinds>;

struct DriverDevice {
  KindBytes peak_by_kind{};  // each kind's own peak
  Peak card_peak;            // of everything that lies on the card
};

struct DriverModel {
  std::vector<DriverAllocation> allocations;  // by birth
  std::vector<FailedAllocation> failures;
  std::map<int64_t, DriverDevice> devices;
  uint64_t contexts = 0;         // created
  uint64_t unknown_frees = 0;    // of memory whose allocation was not recorded
  std::set<int64_t> began_late;  // devices that had a context before the recording began
};

DriverModel build_driver_model(std::vector<DriverEvent> events);

// What is alive on one device at a time.
struct DriverState {
  KindBytes by_kind{};
  std::map<uint32_t, uint64_t> card_by_owner;  // string -> bytes
  uint64_t card_bytes = 0;
  uint64_t code_bytes = 0;  // of loaded modules, as their files have it
};
DriverState driver_state_at(const DriverModel& model, int64_t device, int64_t time_ns);

}  // namespace tidemark
