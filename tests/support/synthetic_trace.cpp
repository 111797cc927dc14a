#include "tests/support/synthetic_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "collector/snapshot/name_writer.h"
#include "proto/base/byte_sink.h"
#include "proto/write/trace_writer.h"

namespace tidemark::view {

namespace {

constexpr uint64_t kSlotBytes = 1 << 20;
constexpr uint32_t kSlotsPerSegment = 64;
constexpr uint64_t kBase = 0x7f00'0000'0000;

class RankWriter {
 public:
  RankWriter(TraceWriter& writer, const SyntheticOptions& options, uint32_t rank)
      : writer_(writer),
        names_(writer),
        options_(options),
        rank_(rank),
        random_(options.seed * 1000 + rank),
        size_(options.slots, 0),
        asked_(options.slots, 0) {}

  void write() {
    describe();
    const uint64_t step = options_.events_per_step;
    while (written_ < options_.events) {
      const uint64_t in_step = written_ % step;
      if (options_.marks && in_step < 2 && written_ >= next_mark_) mark_step();
      if (options_.spike_bytes != 0 && !spiked_ && written_ >= options_.events / 2) spike();
      const bool rising = in_step * 2 < step;
      const bool grow = (random_() % 100) < (rising ? 70U : 30U);
      if ((!grow && !used_.empty()) || !allocate()) release();
    }
    if (options_.oom) {
      event(FrameworkAction::kOutOfMemory, 512 << 20, uint64_t{3} << 30, stacks_.back());
    }
    close_mark();
  }

 private:
  void describe() {
    Process p{};
    p.start_ns = time_;
    p.pid = 1000 + rank_;
    p.rank = options_.ranks > 1 ? static_cast<int64_t>(rank_) : -1;
    p.world_size = options_.ranks;
    p.host = names_.string(fmt::format("node{}", rank_ / 8));
    p.source = options_.recorded ? Source::kCapture : Source::kSynthetic;
    writer_.append(p);
    Device d{};
    d.ordinal = rank_ % 8;
    d.total_bytes = uint64_t{2} << 30;
    d.name = names_.string("Synthetic 2 GiB");
    writer_.append(d);
    for (int i = 0; i < 40; ++i) {
      kernel_names_.push_back(names_.string(fmt::format("void gemm_kernel_{}<float>(float*)", i)));
    }
    const uint32_t module = names_.frame(frame("<module>", "/home/me/train.py", 120));
    const uint32_t root = names_.stack(0, module);
    const uint32_t step =
        names_.stack(root, names_.frame(frame("train_step", "/home/me/train.py", 80)));
    for (uint32_t i = 0; i < options_.stacks; ++i) {
      uint32_t s = names_.stack(step, names_.frame(frame(fmt::format("Block{}.forward", i % 24),
                                                         "/home/me/model.py", 10 + i % 24)));
      s = names_.stack(s, names_.frame(frame("linear",
                                             "/usr/lib/python3/site-packages/torch/nn/"
                                             "functional.py",
                                             1000 + i)));
      stacks_.push_back(s);
    }
  }

  Frame frame(const std::string& function, const std::string& file, int64_t line) {
    Frame f{};
    f.function = names_.string(function);
    f.file = names_.string(file);
    f.line = line;
    f.kind = FrameKind::kPython;
    return f;
  }

  static uint64_t address_of(uint32_t slot) { return kBase + slot * kSlotBytes; }

  void event(FrameworkAction action, uint64_t size, uint64_t address, uint32_t stack,
             uint64_t block_bytes = 0) {
    FrameworkEvent e{};
    // Several events may share a nanosecond, as they share a microsecond in real traces.
    if (random_() % 4 != 0) time_ += 200 + static_cast<int64_t>(random_() % 4000);
    e.time_ns = time_;
    e.action = action;
    e.size_bytes = size;
    e.block_bytes = block_bytes;
    e.address = address;
    e.stack = stack;
    e.device = rank_ % 8;
    e.category = static_cast<Category>(stack % 8);
    writer_.append(e);
    ++written_;
    for (uint32_t i = 0; i < options_.kernels_per_event; ++i) kernel(i);
    if (options_.card && time_ >= next_sample_) sample();
  }

  // One after the other on each of four streams.
  void kernel(uint32_t i) {
    Kernel k{};
    k.start_ns = time_ + 10 + 20 * static_cast<int64_t>(i);
    k.duration_ns = 10 + random_() % 10;
    k.stream = 7 + random_() % 4;
    k.device = rank_ % 8;
    k.name = kernel_names_[random_() % kernel_names_.size()];
    k.grid_x = k.grid_y = k.grid_z = 1;
    k.block_x = 256;
    k.block_y = k.block_z = 1;
    writer_.append(k);
  }

  void sample() {
    next_sample_ = time_ + 100'000'000;
    Counter c{};
    c.time_ns = time_;
    c.value = (uint64_t{1} << 30) + random_() % (uint64_t{200} << 20);
    c.device = rank_ % 8;
    c.kind = CounterKind::kDeviceUsed;
    writer_.append(c);
  }

  // Like a real allocator, takes the beginning of a free range. False when the randomly chosen
  // place is taken.
  bool allocate() {
    auto slot = static_cast<uint32_t>(random_() % options_.slots);
    if (size_[slot] != 0) slot = used_.empty() ? slot : free_slot_near(slot);
    if (size_[slot] != 0) return false;
    const uint32_t segment = slot / kSlotsPerSegment;
    const uint32_t segment_begin = segment * kSlotsPerSegment;
    while (slot > segment_begin && size_[slot - 1] == 0) --slot;
    uint32_t length = 1 + static_cast<uint32_t>(random_() % 3);
    const uint32_t end = std::min(segment_begin + kSlotsPerSegment, options_.slots);
    for (uint32_t i = 0; i < length; ++i) {
      if (slot + i >= end || size_[slot + i] != 0) length = i;
    }
    if (segment >= segments_.size()) segments_.resize(segment + 1, false);
    if (!segments_[segment]) {
      segments_[segment] = true;
      event(FrameworkAction::kSegmentAlloc, kSlotBytes * kSlotsPerSegment,
            address_of(segment_begin), stacks_.front());
    }
    for (uint32_t i = 0; i < length; ++i) size_[slot + i] = length;
    asked_[slot] = length * kSlotBytes - random_() % (kSlotBytes / 2);
    used_.push_back(slot);
    const uint32_t stack = stacks_[random_() % stacks_.size()];
    if (options_.repeat_sizes) asked_[slot] = length * kSlotBytes - stack % 61 * 8192;
    event(FrameworkAction::kAlloc, asked_[slot], address_of(slot), stack, length * kSlotBytes);
    return true;
  }

  uint32_t free_slot_near(uint32_t slot) const {
    for (uint32_t i = 1; i < 64; ++i) {
      const uint32_t next = (slot + i) % options_.slots;
      if (size_[next] == 0) return next;
    }
    return slot;
  }

  void release() {
    const size_t i = random_() % used_.size();
    const uint32_t slot = used_[i];
    used_[i] = used_.back();
    used_.pop_back();
    const uint32_t length = size_[slot];
    for (uint32_t k = 0; k < length; ++k) size_[slot + k] = 0;
    event(FrameworkAction::kFreeRequested, asked_[slot], address_of(slot), 0);
    event(FrameworkAction::kFreeCompleted, asked_[slot], address_of(slot), 0);
  }

  void spike() {
    spiked_ = true;
    const uint64_t address = kBase - (uint64_t{1} << 40);
    event(FrameworkAction::kSegmentAlloc, options_.spike_bytes, address, stacks_.front());
    event(FrameworkAction::kAlloc, options_.spike_bytes, address, stacks_.front());
    event(FrameworkAction::kFreeRequested, options_.spike_bytes, address, 0);
    event(FrameworkAction::kFreeCompleted, options_.spike_bytes, address, 0);
    event(FrameworkAction::kSegmentFree, options_.spike_bytes, address, 0);
  }

  void mark_step() {
    close_mark();
    next_mark_ = written_ + options_.events_per_step / 2;
    Mark m{};
    m.time_ns = time_;
    m.name = names_.string(fmt::format("step {}", step_++));
    m.phase = MarkPhase::kBegin;
    m.kind = MarkKind::kIteration;
    open_mark_ = m;
    writer_.append(m);
  }

  void close_mark() {
    if (open_mark_.name == 0) return;
    open_mark_.phase = MarkPhase::kEnd;
    open_mark_.time_ns = time_;
    writer_.append(open_mark_);
    open_mark_ = {};
  }

  TraceWriter& writer_;
  NameWriter names_;
  const SyntheticOptions& options_;
  uint32_t rank_;
  std::minstd_rand random_;
  std::vector<uint32_t> size_;   // per slot: slots of the block in it, 0 when free
  std::vector<uint64_t> asked_;  // per first slot of a block: requested bytes
  std::vector<uint32_t> used_;
  std::vector<bool> segments_;
  std::vector<uint32_t> stacks_;
  std::vector<uint32_t> kernel_names_;
  int64_t next_sample_ = 0;
  Mark open_mark_{};
  int64_t time_ = 1'700'000'000'000'000'000;
  uint64_t written_ = 0;
  uint64_t next_mark_ = 0;
  uint32_t step_ = 0;
  bool spiked_ = false;
};

}  // namespace

namespace {

bool write_ranks(const SyntheticOptions& options, int fd) {
  FdSink sink(fd);
  TraceWriter writer(sink);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    writer.begin_process(rank + 1);
    RankWriter(writer, options, rank).write();
  }
  return writer.finish();
}

}  // namespace

bool write_synthetic_trace(const SyntheticOptions& options, const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const bool written = write_ranks(options, fd);
  return ::close(fd) == 0 && written;
}

TraceReader synthetic_trace(const SyntheticOptions& options) {
  const int fd = ::memfd_create("synthetic", MFD_CLOEXEC);
  if (fd < 0 || !write_ranks(options, fd)) std::abort();
  Result<TraceReader> reader = TraceReader::from_fd(fd, "synthetic.tmk");
  if (!reader) std::abort();
  return std::move(*reader);
}

TraceModel synthetic_model(const SyntheticOptions& options) {
  const TraceReader reader = synthetic_trace(options);
  Result<TraceModel> model = load_trace({&reader, 1});
  if (!model) std::abort();
  return std::move(*model);
}

}  // namespace tidemark::view
