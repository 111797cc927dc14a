// What a process names once and then refers to by id: strings, modules, frames, stacks.
//
// The row of a new entry goes through the ring before its id is known to anyone, so a committed
// event never refers to an uncommitted entry. Bounded in number (the tables below) and in bytes of
// text; a full one answers 0 and counts a dropped row of its kind.
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
  uint32_t stack(Session& session, std::span<const FrameKey> frames) noexcept;

  // Gives the memory back when the recording has ended; ids are not to be had any more.
  void discard() noexcept;
  // The addresses as well.
  void unmap() noexcept;

  // At most; entries lie scattered, so that each may have touched a page of its own.
  uint64_t memory_bytes(const Session& session) const noexcept;

 private:
  uint32_t put_string(Session& session, std::string_view text) noexcept;
  uint32_t node(Session& session, uint32_t parent, uint32_t frame) noexcept;

  static constexpr uint64_t kMaxTextBytes = 64U << 20;

  HashedIds strings_;
  HashedIds modules_;
  HashedIds frames_;
  HashedIds nodes_;   // parent and frame to stack
  HashedIds stacks_;  // all frames to stack: the way of a stack that was seen before
  std::atomic<uint32_t> next_module_{0};
  std::atomic<uint32_t> next_frame_{0};
  std::atomic<uint32_t> next_node_{0};
  std::atomic<uint64_t> text_bytes_{0};
};

}  // namespace tidemark::injector
