#include "collector/job/frame_stream.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "collector/snapshot/snapshot_file.h"
#include "proto/read/block_decoder.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

namespace {

constexpr size_t kBatchBytes = size_t{4} << 20;
constexpr size_t kBatchesAhead = 4;

// A header for a frame whose own header cannot be trusted: a reader of the copy finds a checksum
// that does not match, as it would in the original.
FrameHeader damaged_header(const BlockRef& ref, std::span<const uint8_t> payload) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(ref.kind);
  header.stored_bytes = ref.stored_bytes;
  header.raw_bytes = std::max(ref.stored_bytes, ref.rows);
  header.rows = ref.rows;
  header.process = ref.process;
  header.first_ns = ref.first_ns;
  header.last_ns = ref.last_ns;
  header.payload_crc = ~crc32(payload.data(), payload.size());
  return header;
}

void append_damaged(const TraceReader& reader, const BlockRef& ref, FrameBatch& batch) {
  const size_t at = batch.bytes.size();
  batch.bytes.resize(at + ref.stored_bytes);
  const std::span<uint8_t> payload(batch.bytes.data() + at, ref.stored_bytes);
  if (!reader.read_at(ref.offset + sizeof(FrameHeader), payload.data(), payload.size())) {
    std::fill(payload.begin(), payload.end(), uint8_t{0});
  }
  batch.frames.push_back(damaged_header(ref, payload));
  ++batch.damaged;
}

}  // namespace

struct FrameStream::State {
  struct Lane {
    std::deque<FrameBatch> batches;
    bool done = false;
  };

  // Blocks while the lane is full. False if the stream was stopped.
  bool push(size_t file, FrameBatch batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stopped || lanes[file].batches.size() < kBatchesAhead; });
    if (stopped) return false;
    lanes[file].batches.push_back(std::move(batch));
    changed.notify_all();
    return true;
  }

  void finish(size_t file) {
    const std::lock_guard lock(mutex);
    lanes[file].done = true;
    changed.notify_all();
  }

  void read_file(size_t file) {
    const Result<TraceReader> reader =
        is_snapshot(files[file]) ? open_snapshot(files[file]) : TraceReader::open(files[file]);
    FrameBatch batch;
    if (!reader) {
      batch.error = reader.error().message;
      push(file, std::move(batch));
      return;
    }
    BlockDecoder decoder(*reader);
    for (const BlockRef& ref : reader->blocks()) {
      FrameHeader header;
      const auto payload = decoder.payload(ref, header);
      if (payload.data() == nullptr) {
        append_damaged(*reader, ref, batch);
      } else {
        batch.frames.push_back(header);
        batch.bytes.insert(batch.bytes.end(), payload.begin(), payload.end());
      }
      if (batch.bytes.size() < kBatchBytes) continue;
      if (!push(file, std::exchange(batch, {}))) return;
    }
    if (!batch.frames.empty()) push(file, std::move(batch));
  }

  void read_files(size_t first, size_t step) {
    for (size_t file = first; file < files.size(); file += step) {
      {
        // At most one file ahead of the one being consumed, or memory would grow.
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stopped || file < taken + 2 * step; });
        if (stopped) return;
      }
      read_file(file);
      finish(file);
    }
  }

  std::vector<std::string> files;
  std::vector<Lane> lanes;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  size_t taken = 0;
  std::vector<std::thread> threads;
};

FrameStream::FrameStream(std::vector<std::string> files, unsigned threads)
    : state_(std::make_unique<State>()) {
  state_->files = std::move(files);
  state_->lanes.resize(state_->files.size());
  const size_t count = std::min<size_t>(threads, state_->files.size());
  for (size_t i = 0; i < count; ++i) {
    state_->threads.emplace_back([this, i, count] { state_->read_files(i, count); });
  }
}

FrameStream::~FrameStream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    state_->changed.notify_all();
  }
  for (std::thread& thread : state_->threads) thread.join();
}

bool FrameStream::next(size_t file, FrameBatch& batch) {
  State& state = *state_;
  State::Lane& lane = state.lanes[file];
  std::unique_lock lock(state.mutex);
  state.taken = file;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return !lane.batches.empty() || lane.done; });
  if (lane.batches.empty()) return false;
  batch = std::move(lane.batches.front());
  lane.batches.pop_front();
  state.changed.notify_all();
  return true;
}

}  // namespace tidemark
