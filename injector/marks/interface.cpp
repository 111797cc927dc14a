// The functions behind include/tidemark.h and the Python package: a program says what it does.
//
// They may be called on any thread at any time, and return at once while nothing is recorded.
#include <atomic>

#include "injector/marks/record_mark.h"
#include "injector/marks/step_levels.h"

namespace tidemark::injector {
namespace {

// A range is known by its number, not by its place on a stack: it may end on another thread, and
// ranges of coroutines interleave. The upper bits say in which recording it began.
constexpr int kSessionShift = 40;
std::atomic<uint64_t> g_last_range{0};

uint64_t session_bits() noexcept {
  return static_cast<uint64_t>(capture_session.load(std::memory_order_relaxed)) << kSessionShift;
}

uint32_t id_of(const char* text) noexcept {
  return text != nullptr ? recorder().intern_string(text) : 0;
}

}  // namespace
}  // namespace tidemark::injector

#define TIDEMARK_EXPORT extern "C" __attribute__((visibility("default")))

using namespace tidemark;            // NOLINT(google-build-using-namespace)
using namespace tidemark::injector;  // NOLINT(google-build-using-namespace)

TIDEMARK_EXPORT uint64_t tidemark_range_begin(const char* name) {
  if (!recorder().on()) return 0;
  const uint64_t number = g_last_range.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t range = session_bits() | (number & ((uint64_t{1} << kSessionShift) - 1));
  record_mark(MarkKind::kUser, MarkPhase::kBegin, id_of(name), 0, range);
  return range;
}

TIDEMARK_EXPORT void tidemark_range_end(uint64_t range) {
  if (range == 0 || !recorder().on()) return;
  if ((range >> kSessionShift) != (session_bits() >> kSessionShift)) return;
  record_mark(MarkKind::kUser, MarkPhase::kEnd, 0, 0, range);
}

TIDEMARK_EXPORT void tidemark_mark(const char* name) {
  if (recorder().on()) record_mark(MarkKind::kUser, MarkPhase::kInstant, id_of(name), 0, 0);
}

// The number is not part of the name: a job of a million steps would fill the dictionary.
TIDEMARK_EXPORT void tidemark_step(uint64_t number) {
  if (!recorder().on()) return;
  record_mark(MarkKind::kIteration, MarkPhase::kInstant, id_of("step"), 0, number + 1);
  step_levels().end_step(MarkKind::kIteration);
}

TIDEMARK_EXPORT void tidemark_name(const void* address, const char* label) {
  if (address == nullptr || label == nullptr || !recorder().on()) return;
  TensorTag tag{};
  tag.time_ns = now_ns();
  tag.address = reinterpret_cast<uint64_t>(address);
  tag.device = -1;  // addresses are unique among the devices of a process
  tag.name = id_of(label);
  recorder().record(tag);
}
