#include "injector/trace/window.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "injector/process/complain.h"
#include "proto/ring_layout.h"

namespace tidemark::injector {

namespace {

constexpr uint64_t kMostSummaryPoints = uint64_t{1} << 18;  // three days of one device
constexpr uint64_t kLeastSummaryPoints = 1024;
constexpr uint64_t kBytesPerSummaryPoint = 8;  // compressed; measured 4 to 10

std::atomic_flag said_state_too_large;
std::atomic_flag said_no_replacement;

// Names, and what else has no time: needed whatever the window shows.
bool is_dictionary(uint32_t kind) {
  return kind < static_cast<uint32_t>(BlockKind::kDriverEvents);
}
bool is_summary(uint32_t kind) {
  return kind == static_cast<uint32_t>(BlockKind::kSummaries);
}

// Encoded frames in memory.
class MemorySink final : public ByteSink {
 public:
  bool write(std::span<const uint8_t> bytes) noexcept override {
    const size_t wanted = size_ + bytes.size();
    if (wanted > bytes_.capacity() && !bytes_.reserve(std::max(wanted, bytes_.capacity() * 2))) {
      errno = ENOMEM;
      return false;
    }
    std::copy(bytes.begin(), bytes.end(), bytes_.get() + size_);
    size_ = wanted;
    return true;
  }
  std::span<const uint8_t> bytes() const { return {bytes_.get(), size_}; }

 private:
  PageArray<uint8_t> bytes_;
  size_t size_ = 0;
};

// Calls add(point) for each device of which something is known: its point, and one of the driver's
// memory, as that of device -1 - n (FORMAT.md).
template <typename Add>
void for_each_point(int64_t now_ns, const LiveState& state, Add&& add) {
  for (size_t i = 0; i < kStateDevices; ++i) {
    const DeviceTotals& now = state.totals(i);
    const auto device = static_cast<int64_t>(i);
    // Readings miss short peaks, but the card has at least what the driver allocated.
    const uint64_t used = now.used == 0 ? 0 : std::max(now.highest_used, now.highest_driver);
    if (now.seen || now.used != 0 || now.has_driver) {
      add(Summary{now_ns, device, now.seen ? now.allocated : now.driver, now.highest_reserved, used,
                  now.seen ? now.lowest : now.lowest_driver,
                  now.seen ? now.highest : now.highest_driver, state.steps()});
    }
    if (now.seen && now.has_driver) {
      add(Summary{now_ns, -1 - device, now.driver, 0, 0, now.lowest_driver, now.highest_driver, 0});
    }
  }
}

size_t summary_points(uint64_t keep_bytes) {
  if (keep_bytes == 0) return kMostSummaryPoints;
  constexpr uint64_t kShare = 16;  // of the file
  return std::clamp(keep_bytes / kShare / kBytesPerSummaryPoint, kLeastSummaryPoints,
                    kMostSummaryPoints);
}

}  // namespace

// ---- the summary curve --------------------------------------------------------------------------

void SummaryCurve::tick(int64_t now_ns, LiveState& state, TraceWriter& trace) noexcept {
  if (++ticks_ < period_) return;
  ticks_ = 0;
  for_each_point(now_ns, state, [&](const Summary& point) {
    if (points_.size() == most_) halve();
    static_cast<void>(points_.add(point));
    trace.append(point);
  });
  state.begin_interval();
}

void SummaryCurve::add_unfinished(int64_t now_ns, const LiveState& state,
                                  TraceWriter& trace) const noexcept {
  for_each_point(now_ns, state, [&](const Summary& point) { trace.append(point); });
}

void SummaryCurve::halve() noexcept {
  constexpr size_t kNone = SIZE_MAX;
  size_t first_of_pair[2 * kStateDevices];
  std::fill(std::begin(first_of_pair), std::end(first_of_pair), kNone);
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    const Summary later = points_[i];
    const int64_t device = later.device;
    size_t& first = first_of_pair[device >= 0 ? 2 * device : 2 * (-1 - device) + 1];
    if (first == kNone) {
      first = kept;
      points_[kept++] = later;
      continue;
    }
    Summary& pair = points_[first];
    const Summary earlier = pair;
    pair = later;
    pair.reserved_bytes = std::max(pair.reserved_bytes, earlier.reserved_bytes);
    pair.device_used_bytes = std::max(pair.device_used_bytes, earlier.device_used_bytes);
    pair.lowest_bytes = std::min(pair.lowest_bytes, earlier.lowest_bytes);
    pair.highest_bytes = std::max(pair.highest_bytes, earlier.highest_bytes);
    first = kNone;
  }
  points_.truncate(kept);
  period_ *= 2;
}

void SummaryCurve::write(TraceWriter& out) const noexcept {
  for (const Summary& point : points_) out.append(point);
}

// ---- cuts ---------------------------------------------------------------------------------------

Window::Window(const WindowLimits& limits, const char* trace_path, TraceFile& file,
               TraceWriter& trace) noexcept
    : limits_(limits),
      trace_path_(trace_path),
      file_(file),
      trace_(trace),
      summary_(summary_points(limits.bytes)) {
  std::snprintf(next_path_, sizeof next_path_, "%s%s", trace_path, ring::kNextSuffix.data());
}

bool Window::cut_due(int64_t now_ns) const noexcept {
  if (!state_.settled()) return false;
  const Cut* const last = cut_count_ > 0 ? &cuts_[cut_count_ - 1] : nullptr;
  const uint64_t since = trace_.bytes_written() - (last != nullptr ? last->offset : 0);
  const uint64_t state_bytes = last != nullptr ? last->state_bytes : 0;
  // A large state is not encoded again for a few events.
  if (since < 2 * state_bytes) return false;
  if (limits_.bytes != 0 && since >= limits_.bytes / kParts) return true;
  return limits_.ns != 0 &&
         (last == nullptr || now_ns - last->time_ns >= limits_.ns / static_cast<int64_t>(kParts));
}

bool Window::needs_fresh_cut() const noexcept {
  const uint64_t limit = limits_.bytes;
  return state_.settled() && limit != 0 &&
         (cut_count_ == 0 || size_from(cuts_[cut_count_ - 1]) > limit / 8 * 7);
}

void Window::cut(int64_t now_ns, const StateNames& names) noexcept {
  if (cut_count_ == kMostCuts) forget_cuts(1);
  MemorySink memory;
  TraceWriter state(memory);
  // What happened since the last point is in no other once this state is the beginning.
  summary_.add_unfinished(state_.time_ns(), state_, state);
  state_.write(state, names);
  state.flush();
  const auto frames = memory.bytes().subspan(std::min(sizeof(FileHeader), memory.bytes().size()));
  auto* const kept = static_cast<uint8_t*>(frames.empty() ? nullptr : map_pages(frames.size()));
  if (state.failed() || state_.incomplete() || (kept == nullptr && !frames.empty())) return;
  std::copy(frames.begin(), frames.end(), kept);
  cuts_[cut_count_++] = {trace_.bytes_written(), now_ns, kept, frames.size()};
}

void Window::forget_cuts(size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) unmap_pages(cuts_[i].state, cuts_[i].state_bytes);
  std::copy(cuts_ + count, cuts_ + cut_count_, cuts_);
  cut_count_ -= count;
}

// An upper bound: dictionaries behind the cut are counted twice.
uint64_t Window::size_from(const Cut& cut) const noexcept {
  uint64_t size = sizeof(FileHeader) + cut.state_bytes + trace_.bytes_written() - cut.offset;
  for (const IndexEntry& frame : trace_.index()) {
    if (is_dictionary(frame.block_kind) || is_summary(frame.block_kind)) {
      size += sizeof(FrameHeader) + frame.stored_bytes;
    }
  }
  return size;
}

// The cut that becomes the beginning; cut_count_: none is needed or none helps.
size_t Window::choose_cut(int64_t now_ns) const noexcept {
  size_t chosen = cut_count_;
  if (limits_.ns != 0) {
    for (size_t i = 0; i < cut_count_ && now_ns - cuts_[i].time_ns >= limits_.ns; ++i) chosen = i;
  }
  if (limits_.bytes == 0) return chosen;
  const size_t by_time = chosen == cut_count_ ? 0 : chosen;
  for (size_t i = by_time; i < cut_count_; ++i) {
    if (size_from(cuts_[i]) <= limits_.bytes / 4 * 3) return i;
  }
  return cut_count_ == 0 ? 0 : cut_count_ - 1;
}

// ---- replacing the file -------------------------------------------------------------------------

bool Window::replacement_due(int64_t now_ns, uint64_t more_bytes) const noexcept {
  const uint64_t size = trace_.bytes_written();
  if (limits_.bytes != 0 && size + more_bytes > limits_.bytes) {
    // If what must be kept is larger than the limit, replacing the file again does not help.
    return size + more_bytes - last_replaced_bytes_ > limits_.bytes / kParts;
  }
  return limits_.ns != 0 && cut_count_ > 1 && now_ns - cuts_[1].time_ns >= limits_.ns;
}

bool Window::copy_frame_at(uint64_t offset, TraceWriter& out) noexcept {
  FrameHeader header;
  const std::span<uint8_t> head(reinterpret_cast<uint8_t*>(&header), sizeof header);
  if (!file_.read(offset, head) || !plausible(header) ||
      !buffer_.reserve(std::max<size_t>(header.stored_bytes, 1))) {
    return false;
  }
  const std::span<uint8_t> payload(buffer_.get(), header.stored_bytes);
  if (!file_.read(offset + sizeof header, payload)) return false;
  header.sequence = out.next_sequence();
  out.copy_frame(header, payload, header.process);
  return !out.failed();
}

bool Window::copy_state(const Cut& cut, TraceWriter& out) noexcept {
  for (size_t at = 0; at < cut.state_bytes;) {
    FrameHeader header;
    std::memcpy(&header, cut.state + at, sizeof header);
    header.sequence = out.next_sequence();
    out.copy_frame(header, {cut.state + at + sizeof header, header.stored_bytes}, header.process);
    at += sizeof header + header.stored_bytes;
  }
  return !out.failed();
}

// `offsets`: where the blocks behind each cut begin in the new file.
bool Window::build(size_t chosen, TraceWriter& out, uint64_t (&offsets)[kMostCuts]) noexcept {
  for (const IndexEntry& frame : trace_.index()) {
    if (is_dictionary(frame.block_kind) && !copy_frame_at(frame.offset, out)) return false;
  }
  summary_.write(out);
  out.flush();
  if (!copy_state(cuts_[chosen], out)) return false;
  size_t next_cut = chosen;
  for (const IndexEntry& frame : trace_.index()) {
    for (; next_cut < cut_count_ && cuts_[next_cut].offset <= frame.offset; ++next_cut) {
      offsets[next_cut] = out.bytes_written();
    }
    if (frame.offset < cuts_[chosen].offset || is_dictionary(frame.block_kind) ||
        is_summary(frame.block_kind)) {
      continue;
    }
    if (!copy_frame_at(frame.offset, out)) return false;
  }
  for (; next_cut < cut_count_; ++next_cut) offsets[next_cut] = out.bytes_written();
  return !out.failed();
}

bool Window::replace(int64_t now_ns, uint32_t generation) noexcept {
  const size_t chosen = choose_cut(now_ns);
  if (chosen >= cut_count_ || !trace_.index_complete()) return false;
  TraceFile next;
  ::unlink(next_path_);  // of an attempt that failed
  uint64_t offsets[kMostCuts] = {};
  bool built = next.create(next_path_);
  TraceWriter out(next, BlockEncoder::kDefaultLevel, generation);
  built = built && build(chosen, out, offsets);
  if (!built) {
    complain(said_no_replacement, "cannot shorten %s: %s; it grows until that is possible",
             trace_path_, std::strerror(out.failed() ? out.error_number() : errno));
    next.close();
    ::unlink(next_path_);
    last_replaced_bytes_ = trace_.bytes_written();  // not again at once
    return false;
  }
  for (size_t i = chosen; i < cut_count_; ++i) cuts_[i].offset = offsets[i];
  forget_cuts(chosen);
  old_.swap(file_);
  file_.swap(next);
  trace_.continue_after(out);
  last_replaced_bytes_ = trace_.bytes_written();
  const uint64_t limit = limits_.bytes;
  if (limit != 0 && last_replaced_bytes_ > limit) {
    complain(said_state_too_large,
             "names and live memory alone need %llu KiB, more than the size to keep "
             "(TIDEMARK_KEEP); %s is larger than that",
             static_cast<unsigned long long>(last_replaced_bytes_ >> 10), trace_path_);
  }
  return true;
}

void Window::take_name() noexcept {
  // If it fails, recovery finds the file by its generation.
  static_cast<void>(file_.rename_to(trace_path_));
  old_.close();
  old_ = TraceFile();
}

// ---- sealing ------------------------------------------------------------------------------------

bool Window::passed_limit() noexcept {
  const uint64_t limit = limits_.seal_above_bytes;
  if (limit == 0) return false;
  uint64_t most = 0;
  for (size_t i = 0; i < kStateDevices; ++i) most = std::max(most, state_.totals(i).reserved);
  const bool passed = !above_ && most > limit;
  above_ = above_ ? most > limit / 10 * 9 : passed;  // again only after it fell clearly below
  return passed;
}

bool Window::write_sealed(const char* path) noexcept {
  TraceFile file;
  if (!file.create(path)) return false;
  TraceWriter out(file);
  bool whole = trace_.index_complete();
  for (const IndexEntry& frame : trace_.index()) whole = whole && copy_frame_at(frame.offset, out);
  whole = whole && out.finish();
  const int error = out.failed() ? out.error_number() : errno;
  file.close();
  if (!whole) ::unlink(path);
  errno = error;
  return whole;
}

bool Window::sealed_path(const char* name, char (&path)[PATH_MAX]) const noexcept {
  const char* const slash = std::strrchr(trace_path_, '/');
  const auto directory = static_cast<int>(slash - trace_path_);
  const int size =
      std::snprintf(path, sizeof path, "%.*s/%s%s", directory, trace_path_, name, slash);
  errno = ENAMETOOLONG;
  return size < static_cast<int>(sizeof path);
}

bool Window::has_sealed(const char* name) const noexcept {
  char path[PATH_MAX];
  return sealed_path(name, path) && ::access(path, F_OK) == 0;
}

bool Window::seal(const char* name) noexcept {
  char path[PATH_MAX];
  char part[PATH_MAX];
  if (!sealed_path(name, path)) return false;
  char* const slash = std::strrchr(path, '/');
  *slash = '\0';
  if (::mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  *slash = '/';
  if (std::snprintf(part, sizeof part, "%s.part", path) >= static_cast<int>(sizeof part)) {
    errno = ENAMETOOLONG;
    return false;
  }
  ::unlink(part);
  return write_sealed(part) && ::rename(part, path) == 0;
}

uint64_t Window::memory_bytes() const noexcept {
  uint64_t bytes = state_.memory_bytes() + buffer_.capacity();
  for (size_t i = 0; i < cut_count_; ++i) bytes += cuts_[i].state_bytes;
  return bytes;
}

}  // namespace tidemark::injector
