// Turns the recorded events of one device into an AllocationHistory.
//
// Call seed() first, then apply() for every event in order, then finish(). The block map gives each
// allocation its actual block size. Finding the changes and storing them in columns cost about the
// same, so that a long history is built by two threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/history/block_map.h"
#include "analysis/history/seed.h"
#include "analysis/history/state_index.h"

namespace tidemark {

// Some events of one device, in order.
struct HistoryChanges {
  struct Event {
    int64_t time_ns = 0;
    MemoryTotals totals;  // after it
    uint32_t subject = 0;
    Change change = Change::kBirth;
  };
  std::vector<Event> events;
  std::vector<Allocation> born;         // one for each kBirth and kPending
  std::vector<SegmentChange> segments;  // one for each kGrow and kShrink

  void clear() {
    events.clear();
    born.clear();
    segments.clear();
  }
};

// Stores changes in the columns of a history.
class HistoryBuilder {
 public:
  void add(const HistoryChanges& changes);
  AllocationHistory& model() { return model_; }
  // Completes the columns.
  AllocationHistory finish() &&;

 private:
  void add(const HistoryChanges::Event& event);

  AllocationHistory model_;
  MemoryTotals last_;
  Extremes leaf_ = Extremes::nothing();  // since the last keyframe
  StateKeyframes states_;
};

// Stores the changes of any number of histories on a thread of its own.
class HistoryThread {
 public:
  HistoryThread();
  ~HistoryThread();
  HistoryThread(const HistoryThread&) = delete;
  HistoryThread& operator=(const HistoryThread&) = delete;

  // Takes the changes and leaves none; waits if too many are waiting.
  void push(HistoryBuilder& to, HistoryChanges& changes);
  // Until all of them are stored.
  void wait();

 private:
  // Some 8 MiB: the replay goes on while a column grows its file, which takes milliseconds.
  static constexpr size_t kSlots = 32;

  struct Slot {
    HistoryBuilder* to = nullptr;
    HistoryChanges changes;
  };

  void run();

  Slot slots_[kSlots];
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t pushed_ = 0;
  size_t stored_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

// The stack that stands for one that names an nn.Module, and that nn.Module.
struct StackMeaning {
  uint32_t plain = 0;
  uint32_t nn_module = 0;
};

class HistoryReplay {
 public:
  // `meanings` by stack; a stack outside of it means itself. With `thread` the columns are built on
  // that one; it must end before the replay is destroyed or moved, unless that has finished.
  HistoryReplay(int64_t device, const AllocatorRules& rules,
                std::span<const StackMeaning> meanings = {}, HistoryThread* thread = nullptr);

  // The state before the first event, which happened at `time_ns`.
  void seed(const SeedState& state, int64_t time_ns);
  // Seeded: of an allocation or a segment that is older than the recording.
  void apply(const FrameworkEvent& event, bool seeded = false);
  // Begins to load what events read that come soon, and those that come next.
  void prefetch(const FrameworkEvent& soon, const FrameworkEvent& next) const {
    map_.prefetch_place(soon.address);
    map_.prefetch_block(next.address);
  }
  AllocationHistory finish() &&;
  // For callers that put its columns into files before the first event.
  AllocationHistory& model() { return builder_.model(); }

 private:
  void birth(const FrameworkEvent& event, bool seeded);
  void seed(const SeedBlock& block, int64_t time_ns);
  uint32_t add(const FrameworkEvent& event, uint64_t block_bytes, bool seeded);
  void release(uint64_t address, int64_t time_ns);
  void death(uint64_t address, int64_t time_ns);
  void segment(const SegmentChange& change, bool grows);
  void note(Change change, uint32_t subject, int64_t time_ns) {
    changes_.events.push_back({time_ns, map_.totals(), subject, change});
    ++events_;
    if (changes_.events.size() == kBatch) pass_on();
  }
  void pass_on();
  void pass_on_all();

  StackMeaning meaning(uint32_t stack) const {
    return stack < meanings_.size() ? meanings_[stack] : StackMeaning{stack, 0};
  }

  static constexpr size_t kBatch = 2048;

  AllocatorRules rules_;
  std::span<const StackMeaning> meanings_;
  BlockMap map_;
  HistoryBuilder builder_;
  HistoryThread* thread_;
  HistoryChanges changes_;  // not yet passed on
  // Of all changes so far.
  uint32_t events_ = 0;
  uint32_t allocations_ = 0;
  uint32_t segment_changes_ = 0;
  uint64_t recorded_events_ = 0;
  uint64_t anomalies_ = 0;
};

}  // namespace tidemark
