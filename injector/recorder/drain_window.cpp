// What Drain does to keep a limited window of the recording (window.h) and to seal it.
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "injector/process/complain.h"
#include "injector/recorder/drain.h"

namespace tidemark::injector {

namespace {

// A program may run out of memory again and again, and catch it: nobody asked for these copies.
constexpr int64_t kSealPauseNs = 30'000'000'000;
constexpr uint32_t kMostSeals = 16;

std::atomic_flag said_not_sealed;

// "oom-20260131-235959", in UTC, so that ranks in one second get one name.
void make_name(const char* reason, int64_t time_ns, char (&out)[kSealNameBytes]) {
  const auto seconds = static_cast<time_t>(time_ns / 1'000'000'000);
  struct tm utc {};
  gmtime_r(&seconds, &utc);
  char when[32] = "";
  strftime(when, sizeof when, "%Y%m%d-%H%M%S", &utc);
  std::snprintf(out, sizeof out, "%s-%s", reason, when);
}

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

bool Drain::seal(const char* name) noexcept {
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
  if (flush() && window_->seal(name)) return true;
  complain(said_not_sealed, "cannot seal %s as %s: %s", session_.trace_path, name,
           std::strerror(errno));
  return false;
}

// Other ranks may have been faster; then this rank joins them.
void Drain::seal_together(const char* reason) noexcept {
  const int64_t now = now_ns();
  seal_as_others();
  if (seals_ == kMostSeals || (last_seal_ns_ != 0 && now - last_seal_ns_ < kSealPauseNs)) return;
  ++seals_;
  char name[kSealNameBytes];
  make_name(reason, now, name);
  board_->announce(name, now);
  seal(name);
}

void Drain::seal_as_others() noexcept {
  char name[kSealNameBytes];
  int64_t time_ns = 0;
  while (board_->next(name, time_ns)) seal(name);
}

void Drain::seal_if_asked(bool look_around) noexcept {
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
  const uint32_t errors = session_.errors_to_seal.load(std::memory_order_relaxed);
  if (errors != errors_seen_) {
    errors_seen_ = errors;
    seal_together("oom");
  }
  if (!look_around) return;
  if (window_->passed_limit()) seal_together("above");
  seal_as_others();
}

}  // namespace tidemark::injector
