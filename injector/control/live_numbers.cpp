#include "injector/control/live_numbers.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "injector/driver/objects.h"
#include "injector/marks/step_levels.h"
#include "injector/recorder/recorder.h"
#include "injector/sampling/live_reading.h"
#include "injector/stacks/owner.h"
#include "injector/torch/bridge_loader.h"
#include "injector/torch/events.h"
#include "injector/torch/pinned.h"

namespace tidemark::injector {
namespace {

using control::Line;

static_assert(static_cast<size_t>(Owner::kCount) <= HeldBytes::kOwners);

class DeviceKeys {
 public:
  DeviceKeys(Line& reply, size_t index) noexcept : reply_(reply), index_(index) {}

  void add(const char* what, uint64_t value, bool known = true) noexcept {
    if (known) reply_.add(key_of(what), value);
  }
  void add(const char* what, std::string_view text) noexcept { reply_.add(key_of(what), text); }

 private:
  const char* key_of(const char* what) noexcept {
    std::snprintf(key_, sizeof key_, "d%zu%s", index_, what);
    return key_;
  }
  Line& reply_;
  size_t index_;
  char key_[48] = "";
};

// False: out-of-memory errors of PyTorch are not known.
bool add_torch(DeviceKeys& keys, int64_t device, bool may_load_bridge) {
  TidemarkTorchNumbers now{};
  TidemarkTorchNumbers reported{};
  const bool has_reported = recorder().on() && latest_torch_numbers(device, reported);
  if (!ask_torch_numbers(device, may_load_bridge, now)) {
    if (!has_reported) return false;
    now = reported;
  }
  if (now.ooms == TIDEMARK_TORCH_UNKNOWN && has_reported) now.ooms = reported.ooms;
  const auto add = [&](const char* what, uint64_t value) {
    keys.add(what, value, value != TIDEMARK_TORCH_UNKNOWN);
  };
  add("_allocated", now.allocated);
  add("_requested", now.requested);
  add("_reserved", now.reserved);
  add("_largest_hole", now.largest_free);
  add("_retries", now.retries);
  add("_ooms", now.ooms);
  return now.ooms != TIDEMARK_TORCH_UNKNOWN;
}

// The least allocated in each of the last steps, separated by commas.
void add_lows(DeviceKeys& keys, int64_t device) {
  std::array<uint64_t, StepLevels::kKept> lows;
  const size_t count = step_levels().lows(device, lows);
  char text[StepLevels::kKept * 21];
  char* at = text;
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) *at++ = ',';
    at = std::to_chars(at, text + sizeof text, lows[i]).ptr;
  }
  if (count != 0) keys.add("_lows", std::string_view(text, static_cast<size_t>(at - text)));
}

void add_recorded(DeviceKeys& keys, int64_t device, const HeldBytes& held, bool knows_errors) {
  for (size_t owner = 0; owner < static_cast<size_t>(Owner::kCount); ++owner) {
    const std::string_view name = owner_name(static_cast<Owner>(owner));
    char what[32];
    std::snprintf(what, sizeof what, "_by_%.*s", static_cast<int>(name.size()), name.data());
    const uint64_t bytes = held.on_card[device][owner];
    keys.add(owner != 0 ? what : "_by_unknown", bytes, bytes != 0);
  }
  // The backend cudaMallocAsync does not count its errors, and has nothing to retry with.
  const Refusals& refusals = driver_objects().refusals;
  keys.add("_refusals",
           refusals.of(device, false) + (knows_errors ? 0 : refusals.of(device, true)));
  add_lows(keys, device);
}

void add_recording(Line& reply, const HeldBytes& held) {
  RecordingCost cost;
  if (!recorder().cost(cost)) return;
  reply.add("steps", step_levels().steps()).add("lost", cost.lost_rows);
  reply.add("callbacks_ns", cost.callbacks_ns).add("writer_ns", cost.writer_ns);
  reply.add("host_bytes", cost.host_bytes).add("pinned", held.pinned);
  reply.add("uncounted", driver_objects().live.uncounted());
}

void add_pinned(Line& reply) {
  uint64_t held = 0;
  uint64_t in_use = 0;
  if (!ask_torch_pinned(held, in_use)) return;
  reply.add("torch_pinned", held);
  if (in_use != TIDEMARK_TORCH_UNKNOWN) reply.add("torch_pinned_in_use", in_use);
}

}  // namespace

bool add_live_numbers(bool may_load_bridge, Line& reply) noexcept {
  static LiveReading reading;  // too large for the stack; only the control thread uses them
  static HeldBytes held;
  if (!read_live(reading)) return false;
  const bool recording = recorder().on();
  held = {};
  if (recording) driver_objects().live.add_up(held);
  // First of all: the line may become too long where many devices are in use.
  if (recording) add_recording(reply, held);
  add_pinned(reply);
  reply.add("devices", reading.count);
  for (size_t i = 0; i < reading.count; ++i) {
    const LiveDevice& device = reading.devices[i];
    DeviceKeys keys(reply, i);
    keys.add("", static_cast<uint64_t>(device.ordinal));
    keys.add("_name", device.name);
    keys.add("_uuid", device.uuid);
    keys.add("_total", device.total_bytes, device.total_bytes != 0);
    keys.add("_used", device.used_bytes, device.used_known);
    keys.add("_process", device.process_bytes, device.process_known);
    const bool knows_errors = add_torch(keys, device.ordinal, may_load_bridge);
    if (recording) add_recorded(keys, device.ordinal, held, knows_errors);
  }
  return true;
}

}  // namespace tidemark::injector
