// The framework events of some blocks, decoded ahead of the reader on a separate thread: decoding
// costs about as much as processing the rows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "proto/read/block_decoder.h"

namespace tidemark {

// Is shown the rows of each block as soon as they are decoded, by the thread that decodes them.
using EventWatch =
    std::function<void(const TraceReader&, const BlockRef&, std::span<const FrameworkEvent>)>;

class EventBlocks {
 public:
  enum class Columns {
    kAll,
    kToUndo,  // what SeedState::undo reads; other members are 0
  };

  // `ahead`: on a separate thread; otherwise they are decoded by next().
  EventBlocks(const TraceReader& reader, std::vector<BlockRef> refs, bool ahead,
              Columns columns = Columns::kAll, EventWatch watch = {});
  ~EventBlocks();
  EventBlocks(const EventBlocks&) = delete;
  EventBlocks& operator=(const EventBlocks&) = delete;

  // The rows of the next block, valid until the next call. Call once per block.
  std::span<const FrameworkEvent> next();

  // Of all blocks, after all are read.
  Damage damage() const;

 private:
  static constexpr size_t kSlots = 4;

  // A block's rows are stored in the decoder that read it.
  struct Slot {
    explicit Slot(const TraceReader& reader) : decoder(reader) {}
    BlockDecoder decoder;
    std::span<const FrameworkEvent> rows;
  };

  void decode_all();
  std::span<const FrameworkEvent> decode(BlockDecoder& decoder, const BlockRef& ref) const;
  std::span<const FrameworkEvent> rows_of(BlockDecoder& decoder, const BlockRef& ref) const;

  const TraceReader& reader_;
  std::vector<BlockRef> refs_;
  Columns columns_;
  EventWatch watch_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t decoded_ = 0;  // blocks
  size_t taken_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tidemark
