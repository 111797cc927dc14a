// The driver allocations of one process: each with its birth and death, kind, owner and device, and
// every request that failed.
//
// A recording that began late knows the framework's segments (seeded) but no other earlier
// allocation: see "pre_attach" in analysis/insight/card/ledger.h.
//
// VMM memory exists from its creation until its last reference and its last mapping are gone.
// Reserved addresses, imports and host-located memory take no memory of the card. The file does not
// order rows of different threads by time: they are sorted here.
//
// A context that is destroyed (cuCtxDestroy, reset or last release of the primary context) frees
// what was allocated in it without a call per allocation; the last one of a device also ends its
// pools and what has no recorded context. VMM memory belongs to no context and outlives it.
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
  uint64_t address = 0;  // or handle, for memory without an address
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

  // Whether its bytes are on the card and belong to this process. Managed memory is where it was
  // used last, which the driver does not tell.
  bool on_card() const;
};

// VMM memory at an address.
struct DriverMapping {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;
  uint32_t allocation = 0;  // in DriverModel::allocations
};

struct DriverContext {
  int64_t device = 0;
  int64_t birth_ns = 0;
  int64_t death_ns = INT64_MAX;
};

using KindBytes = std::array<uint64_t, kMemoryKinds>;

struct DriverDevice {
  KindBytes peak_by_kind{};  // each kind at its own peak
  Peak card_peak;            // of everything on the card
};

struct DriverModel {
  std::vector<DriverAllocation> allocations;  // by birth
  std::vector<DriverMapping> mappings;        // by birth
  std::vector<FailedAllocation> failures;     // by time, without those below
  // That PyTorch's allocator or a library handled by itself: analysis/load/handled_refusals.h.
  std::vector<FailedAllocation> handled;
  std::map<int64_t, DriverDevice> devices;
  std::vector<DriverContext> contexts;  // by birth
  uint64_t unknown_frees = 0;    // of memory whose allocation was not recorded
  std::set<int64_t> began_late;  // devices that had a context before the recording began
};

DriverModel build_driver_model(std::vector<DriverEvent> events);

// The live allocations of one device at one time.
struct DriverState {
  KindBytes by_kind{};
  std::map<uint32_t, uint64_t> card_by_owner;  // string -> bytes
  uint64_t card_bytes = 0;
  uint64_t code_bytes = 0;  // of loaded modules, by the size of their files
};
DriverState driver_state_at(const DriverModel& model, int64_t device, int64_t time_ns);

}  // namespace tidemark
