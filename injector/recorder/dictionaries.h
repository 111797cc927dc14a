// Content that is written once and then referred to by id: strings, modules, frames, stacks.
//
// The row of a new entry goes through the ring before any thread can see its id, so a committed
// event never refers to an uncommitted entry. The tables are bounded in number of entries and in
// bytes of text; a full table returns 0 and counts a dropped row of its kind.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "injector/recorder/hashed_ids.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// Every call is made inside a BusyScope of `session`.
class Dictionaries {
 public:
  bool create() noexcept;

  uint32_t string(Session& session, std::string_view text) noexcept;
  uint32_t module(Session& session, Module row) noexcept;
  uint32_t frame(Session& session, const FrameKey& key) noexcept;
  // With an nn.Module it is the twin of the plain stack, which is added before it.
  uint32_t stack(Session& session, std::span<const FrameKey> frames, uint32_t nn_module) noexcept;

  // Frees the memory when the recording has ended; no ids can be looked up afterwards.
  void discard() noexcept;
  // Unmaps the addresses as well.
  void unmap() noexcept;

  // An upper bound: entries are scattered, so each may have touched a page of its own.
  uint64_t memory_bytes(const Session& session) const noexcept;

 private:
  uint32_t put_string(Session& session, std::string_view text) noexcept;
  uint32_t node(Session& session, uint32_t parent, uint32_t frame, uint32_t nn_module) noexcept;

  static constexpr uint64_t kMaxTextBytes = 64U << 20;

  HashedIds strings_;
  HashedIds modules_;
  HashedIds frames_;
  HashedIds nodes_;   // parent, frame and nn.Module to stack
  HashedIds stacks_;  // all frames to stack: fast path for a stack seen before
  std::atomic<uint32_t> next_module_{0};
  std::atomic<uint32_t> next_frame_{0};
  std::atomic<uint32_t> next_node_{0};
  std::atomic<uint64_t> text_bytes_{0};
};

}  // namespace tidemark::injector
