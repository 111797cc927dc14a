// Rows that Drain itself writes: what tidemark reports about itself. They go straight into the
// TraceWriter, not through the ring, so a checkpoint contains them together with the counters they
// report.
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "injector/recorder/drain.h"
#include "injector/recorder/thread_register.h"

namespace tidemark::injector {

namespace {

int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The best of a few samples of one clock between two readings of the other.
ClockSample sample_clocks() {
  ClockSample best{0, 0, UINT64_MAX};
  for (int i = 0; i < 5; ++i) {
    const int64_t before = read_clock(CLOCK_MONOTONIC);
    const int64_t realtime = read_clock(CLOCK_REALTIME);
    const int64_t after = read_clock(CLOCK_MONOTONIC);
    const auto width = static_cast<uint64_t>(after - before);
    if (width < best.uncertainty_ns) best = {realtime, before + (after - before) / 2, width};
  }
  best.uncertainty_ns = (best.uncertainty_ns + 1) / 2;
  return best;
}

}  // namespace

uint32_t Drain::new_string(std::string_view text) noexcept {
  uint32_t id =
      std::atomic_ref(arena_.header().strings_used).fetch_add(1, std::memory_order_relaxed) + 1;
  if (arena_.lost()) id = highest_string_ + 1;  // the header counts from zero again
  highest_string_ = std::max(highest_string_, id);
  trace_.append_string(id, text);
  return id;
}

void Drain::append_housekeeping() noexcept {
  if (failed_) return;
  const ClockSample clocks = sample_clocks();
  trace_.append(clocks);
  std::atomic_ref(arena_.header().heartbeat_ns)
      .store(clocks.realtime_ns, std::memory_order_relaxed);

  const uint64_t touched = ring::chunks_offset(arena_.chunk_count()) +
                           uint64_t{arena_.high_water()} * arena_.chunk_bytes();
  const int64_t captures = session_.own_host_bytes.load(std::memory_order_relaxed);
  const uint64_t own = touched + session_.dictionaries.memory_bytes(session_) + buffer_bytes_ +
                       encoder_bytes_ + static_cast<uint64_t>(captures) +
                       (window_ != nullptr ? window_->memory_bytes() : 0);
  trace_.append(Counter{clocks.realtime_ns, own, 0, -1, CounterKind::kOwnHost});
  session_.host_bytes.store(own, std::memory_order_relaxed);

  if (window_ != nullptr) window_->tick();
  if (writer_name_ == 0) {
    writer_name_ = new_string("writer thread");
    callbacks_name_ = new_string("callbacks");
  }
  const int64_t cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
  append(Health{clocks.realtime_ns, static_cast<uint64_t>(cpu_ns - cpu_ns_), writer_name_,
                       HealthKind::kOverheadNs});
  cpu_ns_ = cpu_ns;
  session_.writer_ns.store(static_cast<uint64_t>(cpu_ns), std::memory_order_relaxed);
  const uint64_t overhead = session_.overhead_ns.load(std::memory_order_relaxed);
  if (overhead != host_overhead_ns_) {
    append(Health{clocks.realtime_ns, overhead - host_overhead_ns_, callbacks_name_,
                         HealthKind::kOverheadNs});
    host_overhead_ns_ = overhead;
  }
}

// Each row gives the number lost since the previous row, so that the sum is the total loss.
void Drain::append_dropped() noexcept {
  for (size_t kind = 0; kind < ring::kKinds; ++kind) {
    if (const uint64_t lost = take_turned_away(static_cast<BlockKind>(kind)); lost != 0) {
      session_.count_dropped(static_cast<BlockKind>(kind), lost);
    }
    const uint64_t dropped =
        std::atomic_ref(arena_.header().dropped[kind]).load(std::memory_order_relaxed);
    if (dropped <= dropped_written_[kind]) continue;  // less: the ring is lost
    if (dropped_names_[kind] == 0)
      dropped_names_[kind] = new_string(table_name(static_cast<BlockKind>(kind)));
    append(Health{now_ns(), dropped - dropped_written_[kind], dropped_names_[kind],
                         HealthKind::kEventsDropped});
    dropped_written_[kind] = dropped;
  }
}

void Drain::note_thread(uint32_t thread) noexcept {
  uint32_t slot = thread * 2654435761U % kMaxThreads;
  for (uint32_t probe = 0; probe < 32; ++probe, slot = (slot + 1) % kMaxThreads) {
    if (threads_[slot] == thread) return;
    if (threads_[slot] != 0) continue;
    if (new_thread_count_ == std::size(new_threads_)) return;  // noticed again at its next chunk
    threads_[slot] = thread;
    new_threads_[new_thread_count_++] = thread;
    return;
  }
}

// A thread's name is read at the flush after its first record: late enough for the host to have set
// it, and not on the recording thread.
void Drain::append_threads() noexcept {
  for (uint32_t i = 0; i < new_thread_count_; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/comm", new_threads_[i]);
    char name[32] = {};
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;  // the thread has ended
    const ssize_t n = ::read(fd, name, sizeof name - 1);
    ::close(fd);
    const std::string_view text(name, std::strcspn(name, "\n"));
    if (n > 0 && !text.empty()) trace_.append(Thread{new_threads_[i], new_string(text)});
  }
  new_thread_count_ = 0;
}

}  // namespace tidemark::injector
