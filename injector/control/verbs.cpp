#include "injector/control/verbs.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "injector/capture/capture.h"
#include "injector/control/live_numbers.h"
#include "injector/process/complain.h"
#include "injector/process/options.h"
#include "injector/process/process_facts.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/recorder/recorder.h"
#include "injector/torch/events.h"
#include "injector/trace/seal_board.h"

namespace tidemark::injector {
namespace {

using control::Line;

// The bridge may have to be compiled first.
constexpr uint32_t kStatePatienceMs = 90'000;

int64_t g_end_ms = 0;  // monotonic; 0: the capture has no time limit

std::string_view state_name() {
  return recorder().on() ? control::kRecording : control::kArmed;
}

void say_error(Line& reply, std::string_view text) {
  reply = Line(control::kError);
  reply.text(text);
}

void say_last_complaint(Line& reply) {
  char text[1024];
  copy_last_complaint(text, sizeof text);
  say_error(reply, text[0] != '\0' ? text : "the recording could not be started");
}

// ---- options --------------------------------------------------------------------------------

// The request being answered, and a buffer for values parsed from it. A value in the request
// overrides the environment.
std::string_view g_request;
char g_values[control::kMaxLineBytes];
size_t g_values_used = 0;

const char* asked_or_environment(const char* name) {
  constexpr std::string_view kPrefix = "TIDEMARK_";
  const std::string_view variable = name;
  if (!variable.starts_with(kPrefix)) return process_environment(name);
  char key[32] = "";
  const size_t size = std::min(variable.size() - kPrefix.size(), sizeof key - 1);
  for (size_t i = 0; i < size; ++i) {
    const char c = variable[kPrefix.size() + i];
    key[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  char* const value = g_values + g_values_used;
  if (!control::find_value(g_request, {key, size}, value, sizeof g_values - g_values_used)) {
    return process_environment(name);
  }
  g_values_used += std::strlen(value) + 1;
  return value;
}

Options options_of(std::string_view request) {
  g_request = request;
  g_values_used = 0;
  return read_options(asked_or_environment);
}

// ---- verbs ----------------------------------------------------------------------------------

void add_place(Line& reply) {
  const JobPlace place = find_job_place(process_environment);
  if (place.rank >= 0) reply.add("rank", static_cast<uint64_t>(place.rank));
  if (place.local_rank >= 0) reply.add("local_rank", static_cast<uint64_t>(place.local_rank));
  if (place.world_size > 0) reply.add("world", place.world_size);
  char job[256];
  if (const auto id = find_job_id(process_environment, job, sizeof job); !id.empty()) {
    reply.add("job", id);
  }
}

void status(Line& reply) {
  reply.add("v", control::kVersion).add("pid", static_cast<uint64_t>(::getpid()));
  reply.add("state", state_name()).add("captures", capture_count());
  add_place(reply);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  reply.add("host", host);
  char command[1024];
  reply.add("command", own_command(command, sizeof command));
  if (const char* trace = recorder().trace_path(); *trace != '\0') reply.add("trace", trace);
}

bool refuse_second(Line& reply) {
  if (!recorder().on()) return false;
  char text[PATH_MAX + 64];
  std::snprintf(text, sizeof text, "already recording to %s", recorder().trace_path());
  say_error(reply, text);
  return true;
}

// True if recording started.
bool begin(const Options& options, Line& reply) {
  if (options.complaint != nullptr) {
    char text[128];
    std::snprintf(text, sizeof text, "%s has an invalid value", options.complaint);
    say_error(reply, text);
    return false;
  }
  if (!keeps_enough(options.keep)) {
    char text[64];
    std::snprintf(text, sizeof text, "keep is too little: keep at least %s", kLeastKeepText);
    say_error(reply, text);
    return false;
  }
  if (start_capture(options, Beginning::kLate)) return true;
  say_last_complaint(reply);
  return false;
}

void start(std::string_view request, Line& reply) {
  if (refuse_second(reply)) return;
  uint64_t for_ms = 0;
  char text[24];
  if (control::find_value(request, "for_ms", text, sizeof text) &&
      !control::find_number(request, "for_ms", for_ms)) {
    return say_error(reply, "for_ms is not a number");
  }
  if (!begin(options_of(request), reply)) return;
  constexpr uint64_t kLongestMs = uint64_t{1000} * 3600 * 24 * 365;
  g_end_ms = for_ms > 0 ? monotonic_ms() + static_cast<int64_t>(std::min(for_ms, kLongestMs)) : 0;
  // A program that records a part of itself wants the allocator's events from the beginning.
  uint64_t wait_ms = 0;
  if (control::find_number(request, "wait_ms", wait_ms)) {
    wait_for_torch_state(static_cast<uint32_t>(std::min<uint64_t>(wait_ms, kStatePatienceMs)));
  }
  reply.add("trace", recorder().trace_path()).add("capture", capture_count());
}

void end(Line& reply) {
  g_end_ms = 0;
  const RecordingEnd end = stop_capture();
  reply.add("trace", recorder().trace_path()).add("rows", end.rows).add("dropped", end.dropped);
  if (!end.finished) reply.add("unfinished", uint64_t{1});
}

void stop(Line& reply) {
  if (recorder().on()) return end(reply);
  say_error(reply, "nothing is being recorded");
}

void snapshot(std::string_view request, Line& reply) {
  if (refuse_second(reply)) return;
  Options options = options_of(request);
  // Only the state: no source that reports changes is started.
  options.cupti = false;
  options.kernels = false;
  options.nccl = false;
  if (!begin(options, reply)) return;
  record_tool_setting("history", "none");
  wait_for_torch_state(kStatePatienceMs);
  end(reply);
}

// DIRECTORY/NAME/TRACE
void sealed_path(const char* name, char (&out)[PATH_MAX]) {
  const std::string_view trace = recorder().trace_path();
  const size_t slash = std::min(trace.rfind('/'), trace.size());
  std::snprintf(out, sizeof out, "%.*s/%s%s", static_cast<int>(slash), trace.data(), name,
                trace.data() + slash);
}

SealOutcome seal_under(char (&name)[1024], const SealRequest& asked) {
  constexpr uint32_t kPatienceMs = 20'000;
  const bool named = name[0] != '\0';
  char made[kSealNameBytes] = "";
  if (!named) make_seal_name("seal", asked.asked_ns, made);
  SealOutcome outcome = SealOutcome::kTaken;
  for (int i = 1; outcome == SealOutcome::kTaken && i < 100; ++i) {
    if (!named) std::snprintf(name, sizeof name, i == 1 ? "%s" : "%s-%d", made, i);
    SealRequest request = asked;
    request.name = name;
    outcome = recorder().seal(request, kPatienceMs);
    if (named) break;
  }
  return outcome;
}

void seal(std::string_view request, Line& reply) {
  char name[1024] = "";
  uint64_t together = 0;
  control::find_number(request, "together", together);
  auto asked_ns = static_cast<uint64_t>(now_ns());
  control::find_number(request, "asked_ns", asked_ns);
  control::find_value(request, "name", name, sizeof name);
  uint64_t only_if_used = 0;
  control::find_number(request, "only_if_used", only_if_used);
  const SealOutcome outcome =
      seal_under(name, {nullptr, together != 0, only_if_used != 0, static_cast<int64_t>(asked_ns)});
  char path[PATH_MAX];
  sealed_path(name, path);
  switch (outcome) {
    case SealOutcome::kSealed:
      reply.add("trace", path);
      return;
    case SealOutcome::kUnused:
      return;
    case SealOutcome::kNoWindow:
      return say_error(reply, recorder().on()
                                  ? "it records everything, not a window; nothing has to be sealed "
                                    "(see tidemark run --keep)"
                                  : "nothing is being recorded");
    case SealOutcome::kBadName:
      return say_error(reply, "the name may have letters, digits, '-', '_' and '.' only");
    case SealOutcome::kTaken: {
      char text[PATH_MAX + 64];
      std::snprintf(text, sizeof text, "not sealed: %s exists; choose another name", path);
      return say_error(reply, text);
    }
    case SealOutcome::kBusy:
      return say_error(reply, "it is being sealed already");
    case SealOutcome::kFailed:
      return say_last_complaint(reply);
    case SealOutcome::kLate:
      return say_error(reply, "the file system did not answer in time; it may still be sealed");
  }
}

void live(std::string_view request, Line& reply) {
  uint64_t may_load = 0;
  control::find_number(request, "torch", may_load);
  reply.add("time_ns", static_cast<uint64_t>(now_ns())).add("state", state_name());
  if (!add_live_numbers(may_load != 0, reply)) {
    say_error(reply, "the driver or NVML did not answer within 2 s");
  }
}

}  // namespace

void answer(std::string_view request, control::Line& reply) noexcept {
  reply = Line(control::kOk);
  const std::string_view verb = control::first_word(request);
  if (verb == control::kStatus) return status(reply);
  if (verb == control::kStart) return start(request, reply);
  if (verb == control::kStop) return stop(reply);
  if (verb == control::kSnapshot) return snapshot(request, reply);
  if (verb == control::kLive) return live(request, reply);
  if (verb == control::kSeal) return seal(request, reply);
  say_error(reply,
            "unknown command; this version has status, start, stop, snapshot, live and seal");
}

int ms_until_due() noexcept {
  if (g_end_ms == 0 || !recorder().on()) return -1;
  return static_cast<int>(std::clamp<int64_t>(g_end_ms - monotonic_ms(), 0, INT_MAX));
}

void act_when_due() noexcept {
  if (g_end_ms == 0 || monotonic_ms() < g_end_ms) return;
  g_end_ms = 0;
  if (recorder().on()) stop_capture();
}

}  // namespace tidemark::injector
