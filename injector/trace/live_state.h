// Everything that exists at this moment of a recording: blocks and segments of the framework,
// allocations of the driver, ranges that are open, latest counters. Used by the writer thread only,
// and only if the recording keeps a limited window (window.h).
//
// Rows arrive in the order in which the writer collects them, which is not that of time: every
// thread has its own chunks. Framework rows of a device are recorded under the allocator's lock, so
// once a row of time t was collected, one more whole round collects every row before t. Rows are
// held until then and applied in order of time, but none that is later than the begin of the round
// before: up to there, the rows of all tables are applied. write() writes the state of that one
// instant and then the rows that are still held: followed by the rows collected later, it is a
// complete recording that begins there. A row of an earlier time that comes after all (its thread
// was suspended between reading the clock and recording) gets a time just behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "injector/trace/keyed_table.h"
#include "proto/rows.h"
#include "proto/write/trace_writer.h"

namespace tidemark::injector {

inline constexpr size_t kStateDevices = 64;

struct DeviceTotals {
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  uint64_t used = 0;              // by everybody, NVML
  uint64_t driver = 0;            // by this process, on the card
  uint64_t failed = 0;            // out-of-memory errors of the framework
  uint64_t failed_by_driver = 0;  // of the program
  bool seen = false;              // something of the framework
  bool has_driver = false;        // something of the driver
  // Since begin_interval().
  uint64_t lowest = 0;
  uint64_t highest = 0;
  uint64_t highest_reserved = 0;
  uint64_t highest_used = 0;
  uint64_t lowest_driver = 0;
  uint64_t highest_driver = 0;
};

// Ids of strings in the trace.
struct StateNames {
  uint32_t tidemark = 0;
  uint32_t torch_state = 0;
  uint32_t kept_window = 0;
  uint32_t earlier_errors = 0;
  uint32_t earlier_iterations = 0;
  uint32_t earlier_optimizer_steps = 0;
};

// Marks of a recording that began while the process ran: its allocator's state is that of the first
// one, per device, and has been recorded when the second one is.
inline constexpr char kTorchStateMark[] = "torch state";
inline constexpr char kTorchStateReadMark[] = "torch state read";

class LiveState {
 public:
  // Call around the collection of a round. `now_ns` is read before it.
  void begin_round(int64_t now_ns) noexcept;
  void end_round() noexcept;

  // A collected row. Rows of other tables leave no state.
  template <typename Row>
  void take(Row&) noexcept {}
  void take(FrameworkEvent& row) noexcept;
  void take(SegmentState& row) noexcept;
  void take(BlockState& row) noexcept;
  void take(DriverEvent& row) noexcept;
  void take(Counter& row) noexcept;
  void take(Mark& row) noexcept;
  void take(TensorTag& row) noexcept;
  void take(Health& row) noexcept;
  void take(Communicator& row) noexcept;

  // A new string of the trace.
  void take_string(uint32_t id, std::string_view text) noexcept {
    if (owner_torch_ == 0 && text == "torch") owner_torch_ = id;
    if (owner_program_ == 0 && text == "program") owner_program_ = id;
    if (state_mark_ == 0 && text == kTorchStateMark) state_mark_ = id;
    if (state_read_mark_ == 0 && text == kTorchStateReadMark) state_read_mark_ = id;
  }

  // False in the first round, and while the state of an attached process is being read.
  bool settled() const noexcept {
    return rounds_since_state_ >= kSettleRounds && last_round_ns_ != 0 && state_due_ns_ == 0;
  }
  // The instant of the state: every row up to it is applied.
  int64_t time_ns() const noexcept { return last_round_ns_; }
  void write(TraceWriter& out, const StateNames& names) noexcept;

  const DeviceTotals& totals(size_t device) const noexcept { return devices_[device].totals; }
  void begin_interval() noexcept;
  // Also by rows that are held back.
  bool used_memory() const noexcept { return used_memory_; }
  // Optimizer steps, or those that the program counts itself.
  uint64_t steps() const noexcept { return std::max(optimizer_steps_, iterations_); }
  uint64_t memory_bytes() const noexcept;
  bool incomplete() const noexcept { return incomplete_; }  // no memory for all of it

 private:
  static constexpr uint32_t kSettleRounds = 20;
  // Reading the state may take seconds, and its reader may end with the program. Events are held
  // for so long at most.
  static constexpr int64_t kStatePatienceNs = 30'000'000'000;

  struct Block {
    uint64_t key;  // address
    FrameworkEvent row;
    uint32_t tag_name;
    uint32_t tag_module;
    Category tag;
    bool pending;
    bool tagged;
  };
  struct Object {
    uint64_t key;
    DriverEvent row;
    int64_t references;  // VMM handles
    int64_t mappings;
    uint64_t handle;  // of a mapping
    uint32_t tag_name;
  };
  struct Latest {
    uint64_t key;
    Counter row;
  };
  struct Loss {
    uint64_t key;
    Health row;
  };
  struct Segment {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t stream;
    int64_t device;
    uint32_t pool;
    uint32_t stack;
    bool expandable;
  };
  struct Device {
    int64_t collected_ns = 0;  // latest row collected
    int64_t complete_ns = 0;   // every row up to here was collected
    bool has_segments = false;
    DeviceTotals totals;
  };

  void hold(const FrameworkEvent& row) noexcept;
  void apply(const FrameworkEvent& row) noexcept;
  void remove_range(const FrameworkEvent& row) noexcept;
  void find_earlier_segments(const FrameworkEvent& first) noexcept;
  static void note_totals(DeviceTotals& totals) noexcept;
  void apply(const DriverEvent& row) noexcept;
  void apply(const Mark& row) noexcept;
  void apply(const TensorTag& row) noexcept;
  int64_t tagged_until(const TensorTag& row) const noexcept;
  void note_failure(const DriverEvent& row) noexcept;
  void count(const Object& object, bool added) noexcept;
  void put(const Object& object) noexcept;
  void remove(Object* object) noexcept;
  void end_context(const DriverEvent& row) noexcept;
  void unmap_seeded(const DriverEvent& row) noexcept;
  void apply_vmm(const DriverEvent& row) noexcept;
  void drop_if_unused(uint64_t handle) noexcept;
  static void write_mark(TraceWriter& out, const StateNames& names, uint32_t name, int64_t time_ns,
                         int64_t device, uint64_t value = 0) noexcept;
  void write_framework(TraceWriter& out, const StateNames& names, int64_t device) noexcept;
  void write_segments(TraceWriter& out, int64_t device, int64_t time_ns) noexcept;
  void write_driver(TraceWriter& out, int64_t time_ns) noexcept;
  template <typename Row>
  void put_behind_state(Row& row) const noexcept {
    row.time_ns = std::max(row.time_ns, written_ns_ + 1);
  }
  template <typename T>
  void check(T* entry) noexcept {
    incomplete_ |= entry == nullptr;
  }

  Device devices_[kStateDevices];
  KeyedTable<Block> blocks_;
  KeyedTable<Object> objects_;
  KeyedTable<Latest> counters_;
  KeyedTable<Loss> losses_;
  PageList<Segment> segments_;
  PageList<Mark> open_ranges_;
  PageList<Communicator> communicators_;
  PageList<FrameworkEvent> held_;
  PageList<DriverEvent> held_driver_;
  PageList<TensorTag> held_tags_;
  PageList<Mark> held_marks_;
  int64_t round_ns_ = 0;       // begin of this round
  int64_t last_round_ns_ = 0;  // of the one before
  int64_t written_ns_ = 0;     // of the state that was written last
  uint64_t optimizer_steps_ = 0;
  uint64_t iterations_ = 0;
  uint32_t owner_torch_ = 0;  // strings
  uint32_t owner_program_ = 0;
  uint32_t state_mark_ = 0;
  uint32_t state_read_mark_ = 0;
  int64_t state_due_ns_ = 0;  // rows of the state are on their way, until then; 0: none
  uint32_t rounds_since_state_ = kSettleRounds;
  bool used_memory_ = false;
  bool incomplete_ = false;
};

}  // namespace tidemark::injector
