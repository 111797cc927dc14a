// Replays a recording on the model of the allocator under its own settings.
//
// This yields how far the model reproduces the recorded addresses and segments, and the requests of
// the program, on which other settings are tried. Segments get their recorded addresses: ties
// between free blocks depend on them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/whatif/allocator/caching_allocator.h"
#include "analysis/whatif/allocator/request_log.h"

namespace tidemark {

// Returns the addresses of the recording, in its order.
class RecordedAddresses : public SegmentAddresses {
 public:
  void expect(uint64_t address, uint64_t bytes) { expected_.push_back({address, bytes}); }
  void forget() { expected_.clear(); }

  uint64_t allocate(uint64_t bytes) override;
  void free(uint64_t, uint64_t) override {}
  uint64_t reserve(uint64_t bytes) override;

 private:
  struct Range {
    uint64_t address;
    uint64_t bytes;
  };
  std::deque<Range> expected_;
  uint64_t unexpected_ = uint64_t{1} << 60;  // for segments that were not recorded
};

struct ReplayMatch {
  uint64_t blocks = 0;
  uint64_t misplaced = 0;
  uint64_t reserved_mismatches = 0;
  int64_t first_mismatch_ns = 0;
  uint32_t first_mismatch = kNever;  // event
  bool first_reserves_more = false;  // than recorded, at that event: the limit is too high
  // Emptied caches. Those before requests that the cache would have served were calls of
  // empty_cache(); if there are none of these, a limit was reached that may not be known.
  uint64_t emptied_needlessly = 0;
  uint64_t emptied_before_need = 0;
  uint64_t lowest_need = UINT64_MAX;  // reserved bytes that those requests would have led to

  uint64_t errors() const { return misplaced + reserved_mismatches; }
};

class OwnReplay {
 public:
  OwnReplay(const AllocationHistory& model, const AllocatorSettings& settings,
            const AllocatorLimits& limits);

  // Replays all of it, or up to the first difference between model and recording.
  void run(bool stop_at_mismatch = false);
  const ReplayMatch& match() const { return match_; }
  const CachingAllocator& allocator() const { return allocator_; }
  RequestLog take_log() && { return std::move(log_); }

 private:
  void add_existing();
  std::vector<ExistingSegment> existing_segments() const;
  void learn_segment(const SegmentChange& change);
  SegmentChange forget_segment(const SegmentChange& change);
  const SegmentChange* segment_at(uint64_t address) const;
  RequestedBlock block_of(const Allocation& a) const;

  void step(uint32_t event);
  void birth(uint32_t event, uint32_t row);
  void death(uint32_t event, uint32_t row);
  void fail(const FailedAllocation& failure);
  // For recorded frees of segments that no allocation explains: empty_cache() was called.
  void empty_cache();
  void settle();
  bool explained(const RequestedBlock& wanted);
  void complete_waiting();
  void note(RequestKind kind, uint32_t subject) { log_.requests.push_back({subject, kind}); }
  void compare(uint32_t event, uint32_t row, bool served);
  void judge_emptying(const RequestedBlock& wanted);
  void empty_cache_before(uint32_t event);

  const AllocationHistory& model_;
  RecordedAddresses addresses_;
  CachingAllocator allocator_;
  AllocatorSettings settings_;
  bool collects_garbage_;
  RequestLog log_;
  ReplayMatch match_;
  std::map<uint64_t, SegmentChange> segments_;  // of the recording, by address
  bool private_pools_ = false;
  std::vector<SegmentChange> shrinks_;  // recorded, not yet explained
  std::vector<uint32_t> waiting_;       // completions that may belong to those
  uint64_t recorded_reserved_ = 0;
};

}  // namespace tidemark
