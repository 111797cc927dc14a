// What Drain does to keep a limited window of the recording (window.h) and to seal it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

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

constexpr char kOom[] = "oom";
constexpr char kAbove[] = "above";

bool is_unasked_name(std::string_view name) {
  const std::string_view reason = name.substr(0, name.find('-'));
  return reason == kOom || reason == kAbove;
}

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
      state_names_ = {new_string("tidemark"),           new_string(kTorchStateMark),
                      new_string("kept window"),        new_string("earlier errors"),
                      new_string("earlier iterations"), new_string("earlier optimizer steps")};
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
  window_->add_unfinished_point();
  if (flush() && window_->seal(name)) {
    std::snprintf(last_seal_, sizeof last_seal_, "%s", name);
    last_seal_told_ = false;
    return true;
  }
  complain(said_not_sealed, "cannot seal %s as %s: %s", session_.trace_path, name,
           std::strerror(errno));
  return false;
}

bool Drain::used_memory() noexcept {
  collect();
  return window_->used_memory();
}

// A command for the whole job asks every rank, and so does the first rank that it asks. When all
// ranks call the Python function, others may be a little faster.
SealOutcome Drain::seal_as_asked() noexcept {
  const SealRequest request{session_.seal_name, session_.seal_together, session_.seal_only_if_used,
                            session_.seal_asked_ns};
  if (window_->has_sealed(request.name)) {
    const int64_t since = request.asked_ns - (last_seal_told_ ? kJoinNs : 0);
    const bool same = std::strcmp(request.name, last_seal_) == 0 && last_seal_ns_ >= since;
    return same ? SealOutcome::kSealed : SealOutcome::kTaken;
  }
  if (request.together) board_->announce(request.name, now_ns());
  if (request.only_if_used && !used_memory()) return SealOutcome::kUnused;
  return seal(request.name) ? SealOutcome::kSealed : SealOutcome::kFailed;
}

// Whether it was tried.
bool Drain::seal_together(const char* reason, int64_t last_ns, int64_t pause_ns) noexcept {
  const int64_t now = now_ns();
  if (last_ns != 0 && now - last_ns < pause_ns) return false;
  char name[kSealNameBytes];
  make_seal_name(reason, now, name);
  if (window_->has_sealed(name)) return false;  // within this second
  board_->announce(name, now);
  seal(name);
  return true;
}

// Other ranks may have been faster; then this rank joins them.
void Drain::seal_unasked(const char* reason) noexcept {
  seal_as_others();
  if (unasked_ == kMostSeals || !seal_together(reason, last_unasked_ns_, kSealPauseNs)) return;
  last_unasked_ns_ = last_seal_ns_;
  ++unasked_;
}

void Drain::seal_as_others() noexcept {
  char name[kSealNameBytes];
  int64_t time_ns = 0;
  while (board_->next(name, time_ns)) {
    // A launcher is a process of the job, too.
    if (!used_memory() || window_->has_sealed(name) || !seal(name)) continue;
    last_seal_told_ = true;
    if (is_unasked_name(name)) last_unasked_ns_ = last_seal_ns_;
  }
}

void Drain::seal_if_asked(bool ending) noexcept {
  if (window_ == nullptr || failed_ || arena_.lost()) return;
  if (session_.seal_state.load(std::memory_order_acquire) == Session::kSealAsked) {
    const SealOutcome outcome = seal_as_asked();
    session_.seal_outcome.store(static_cast<uint32_t>(outcome), std::memory_order_relaxed);
    session_.seal_state.store(Session::kSealIdle, std::memory_order_release);
    session_.seals_done.fetch_add(1, std::memory_order_release);
    wake_all(session_.seals_done);
  }
  if (const uint32_t signals = seal_signals(); signals != signals_seen_) {
    signals_seen_ = signals;
    seal_as_others();
    seal_together("seal", last_seal_ns_, kJoinNs);
  }
  const uint32_t errors = session_.errors_to_seal.load(std::memory_order_relaxed);
  if (errors != errors_seen_) {
    errors_seen_ = errors;
    seal_unasked(kOom);
  }
  if (!board_->look_due(monotonic_ms()) && !ending) return;
  if (window_->passed_limit()) seal_unasked(kAbove);
  seal_as_others();
}

}  // namespace tidemark::injector
