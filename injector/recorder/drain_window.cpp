// What Drain does to keep a limited window of the recording (window.h) and to seal it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "injector/process/complain.h"
#include "injector/process/seal_signal.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/drain.h"

namespace tidemark::injector {

namespace {

// A program may run out of memory again and again, and catch it: nobody asked for these copies.
constexpr int64_t kSealPauseNs = 30'000'000'000;
constexpr uint32_t kMostSeals = 16;
// A signal is often sent to all ranks at once.
constexpr int64_t kJoinNs = 2'000'000'000;

std::atomic_flag said_not_sealed;

}  // namespace

void Drain::make_window() noexcept {
  void* const window = map_pages(sizeof(Window));
  void* const board = map_pages(sizeof(SealBoard));
  if (window == nullptr || board == nullptr) {
    failed_ = true;
    return;
  }
  const RecorderOptions& options = session_.options;
  const WindowLimits limits{options.keep_bytes, options.keep_ns, options.seal_above_bytes};
  window_ = new (window) Window(limits, session_.trace_path, session_.file, trace_);
  board_ = new (board) SealBoard(session_.trace_path, session_.job);
  signals_seen_ = seal_signals();
}

void Drain::keep_window(bool between_rounds, uint64_t more_bytes) noexcept {
  if (failed_ || arena_.lost()) return;
  const int64_t now = now_ns();
  const bool full = window_->replacement_due(now, more_bytes);
  if (between_rounds && (window_->cut_due(now) || (full && window_->needs_fresh_cut()))) {
    if (state_names_.tidemark == 0) {
      state_names_ = {new_string("tidemark"), new_string("torch state")};
    }
    if (!flush()) return;
    window_->cut(now, state_names_);
  }
  if (!full || !flush()) return;
  if (!window_->replace(now, generation_ + 1)) return;
  ++generation_;
  checkpoint();
  window_->take_name();
}

// Asked by a command and by another rank, or by two of them: once is enough.
bool Drain::seal(const char* name) noexcept {
  if (std::strcmp(name, last_seal_) == 0) return true;
  collect();  // what was recorded since this round began, such as the error itself
  char text[kSealNameBytes + 16];
  std::snprintf(text, sizeof text, "sealed as %s", name);
  Mark mark{};
  mark.time_ns = now_ns();
  mark.device = -1;
  mark.name = new_string(text);
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kUser;
  append(mark);
  last_seal_ns_ = mark.time_ns;
  if (flush() && window_->seal(name)) {
    std::snprintf(last_seal_, sizeof last_seal_, "%s", name);
    return true;
  }
  complain(said_not_sealed, "cannot seal %s as %s: %s", session_.trace_path, name,
           std::strerror(errno));
  return false;
}

// Other ranks may have been faster; then this rank joins them.
void Drain::seal_together(const char* reason, int64_t pause_ns) noexcept {
  const int64_t now = now_ns();
  seal_as_others();
  if (last_seal_ns_ != 0 && now - last_seal_ns_ < pause_ns) return;
  char name[kSealNameBytes];
  make_seal_name(reason, now, name);
  board_->announce(name, now);
  seal(name);
}

void Drain::seal_unasked(const char* reason) noexcept {
  if (seals_ == kMostSeals) return;
  ++seals_;
  seal_together(reason, kSealPauseNs);
}

void Drain::seal_as_others() noexcept {
  char name[kSealNameBytes];
  int64_t time_ns = 0;
  while (board_->next(name, time_ns)) seal(name);
}

void Drain::seal_if_asked(bool ending) noexcept {
  if (window_ == nullptr || failed_ || arena_.lost()) return;
  if (session_.seal_state.load(std::memory_order_acquire) == Session::kSealAsked) {
    char name[kSealNameBytes];
    std::memcpy(name, session_.seal_name, sizeof name);
    if (session_.seal_together) board_->announce(name, now_ns());
    const SealOutcome outcome = seal(name) ? SealOutcome::kSealed : SealOutcome::kFailed;
    session_.seal_outcome.store(static_cast<uint32_t>(outcome), std::memory_order_relaxed);
    session_.seal_state.store(Session::kSealIdle, std::memory_order_release);
    session_.seals_done.fetch_add(1, std::memory_order_release);
    wake_all(session_.seals_done);
  }
  if (const uint32_t signals = seal_signals(); signals != signals_seen_) {
    signals_seen_ = signals;
    seal_together("seal", kJoinNs);
  }
  const uint32_t errors = session_.errors_to_seal.load(std::memory_order_relaxed);
  if (errors != errors_seen_) {
    errors_seen_ = errors;
    seal_unasked("oom");
  }
  if (!board_->look_due(monotonic_ms()) && !ending) return;
  if (window_->passed_limit()) seal_unasked("above");
  seal_as_others();
}

}  // namespace tidemark::injector
