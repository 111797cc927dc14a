#include "injector/nccl/operations.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "injector/process/hook_time.h"
#include "injector/process/own_scope.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

enum class Kind : uint8_t { kNone, kApi, kOperation, kGroup, kVisit };

// A job with hundreds of process groups has hundreds of communicators per process.
constexpr uint32_t kMaxCommunicators = 2048;
struct CommunicatorSlot {
  std::atomic<bool> used{false};
  std::atomic<uint64_t> id{0};
  std::atomic<uint64_t> point_to_point{0};  // NCCL does not number these
  // For recordings that begin later; written before `id`.
  int ranks = 0;
  int rank = 0;
  int nodes = 0;
  char name[32] = "";
};
std::array<CommunicatorSlot, kMaxCommunicators + 1> g_communicators;  // [0]: none

// Slots are assigned in turn: a slot is reused after kSlots others, far longer than NCCL keeps a
// handle.
constexpr uint64_t kSlots = 4096;
struct Slot {
  std::atomic<bool> held{false};
  std::atomic<NcclHandle> handle{0};  // of what it holds; written only while it is held
  // Only while the slot is held:
  bool started = false;
  uint32_t session = 0;  // the recording that the string ids belong to
  NcclOperation row{};
};
// Holds a slot for a few instructions. Nobody waits for one: a slot that another thread holds is
// just being reused, or read for the last time.
class SlotHold {
 public:
  explicit SlotHold(Slot& slot) noexcept
      : slot_(slot), holds_(!slot.held.exchange(true, std::memory_order_acquire)) {}
  ~SlotHold() {
    if (holds_) slot_.held.store(false, std::memory_order_release);
  }
  SlotHold(const SlotHold&) = delete;
  SlotHold& operator=(const SlotHold&) = delete;

  bool holds(NcclHandle handle) const noexcept {
    return holds_ && handle != 0 && slot_.handle.load(std::memory_order_relaxed) == handle;
  }
  explicit operator bool() const noexcept { return holds_; }

 private:
  Slot& slot_;
  bool holds_;
};
std::array<Slot, kSlots> g_slots;
std::atomic<uint64_t> g_next_ticket{0};
std::atomic<bool> g_enabled{false};
std::atomic<bool> g_plugin_used{false};

// A handle is the ticket and the kind, so that a late handle can be recognised.
constexpr unsigned kKindBits = 3;
constexpr NcclHandle handle_of(uint64_t ticket, Kind kind) {
  return ticket << kKindBits | static_cast<uint64_t>(kind);
}
constexpr Kind kind_of(NcclHandle handle) {
  return static_cast<Kind>(handle & ((1U << kKindBits) - 1));
}

uint64_t draw_ticket() {
  return g_next_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
}

NcclHandle claim(Kind kind, const NcclOperation& row) {
  const uint64_t ticket = draw_ticket();
  Slot& slot = g_slots[ticket % kSlots];
  const SlotHold hold(slot);
  if (!hold) {
    recorder().count_dropped(BlockKind::kNcclOperations, 1);
    return 0;
  }
  slot.session = capture_session.load(std::memory_order_relaxed);
  slot.row = row;
  slot.started = false;
  slot.handle.store(handle_of(ticket, kind), std::memory_order_relaxed);
  return handle_of(ticket, kind);
}

// Gives the row of an operation, if its slot still has it (`known`), and marks it as recorded. True
// if it was not, and belongs to this recording.
bool take(NcclHandle handle, NcclOperation& row, bool& known) {
  Slot& slot = g_slots[(handle >> kKindBits) % kSlots];
  const SlotHold hold(slot);
  known = hold.holds(handle);
  if (!known) return false;
  row = slot.row;
  return !std::exchange(slot.started, true) &&
         slot.session == capture_session.load(std::memory_order_relaxed);
}

uint32_t text(const char* words) {
  return words != nullptr && *words != '\0' ? recorder().intern_string(words) : 0;
}

void record_communicator(const NcclCommunicator& communicator) {
  Communicator row{};
  row.time_ns = now_ns();
  row.id = communicator.id;
  row.ranks = communicator.ranks > 0 ? static_cast<uint64_t>(communicator.ranks) : 0;
  row.rank = communicator.rank;
  row.nodes = communicator.nodes > 0 ? static_cast<uint64_t>(communicator.nodes) : 0;
  row.device = -1;
  row.name = text(communicator.name);
  recorder().record(row);
}

// Before v4 only the operations name their communicator.
uint64_t communicator_of(CommunicatorSlot& slot, const NcclCall& call) {
  uint64_t known = slot.id.load(std::memory_order_relaxed);
  if (known != 0 || call.communicator_id == 0) return known;
  if (slot.id.compare_exchange_strong(known, call.communicator_id)) {
    record_communicator({call.communicator_name, call.communicator_id, 0, call.rank, 0});
  }
  return call.communicator_id;
}

NcclOperation row_of(NcclContext context, const NcclCall& call) {
  CommunicatorSlot& communicator = g_communicators[context <= kMaxCommunicators ? context : 0];
  NcclOperation row{};
  row.start_ns = now_ns();
  row.communicator = communicator_of(communicator, call);
  row.sequence = call.sequence;
  row.count = call.count;
  row.size_bytes = call.count * nccl_type_bytes(call.datatype);
  row.send_address = reinterpret_cast<uintptr_t>(call.send);
  row.receive_address = reinterpret_cast<uintptr_t>(call.receive);
  row.stream = reinterpret_cast<uintptr_t>(call.stream);
  row.peer = call.peer;
  row.device = -1;
  row.function = text(call.function);
  row.datatype = text(call.datatype);
  row.algorithm = text(call.algorithm);
  row.protocol = text(call.protocol);
  row.channels = call.channels;
  row.thread = current_thread();
  row.kind = call.kind;
  return row;
}

// An int inside NCCL, which outlives its communicators but not its library: written only while a
// communicator is open.
struct Mask {
  std::atomic<int*> place{nullptr};
  std::atomic<int> wanted{0};
};
std::array<Mask, 4> g_masks;
std::atomic<uint32_t> g_open{0};

void write_masks(bool on) {
  if (g_open.load() == 0) return;
  for (Mask& mask : g_masks) {
    int* const place = mask.place.load();
    if (place == nullptr) continue;
    std::atomic_ref(*place).store(on ? mask.wanted.load() : 0, std::memory_order_relaxed);
  }
}

void record_open_communicators() {
  for (uint32_t i = 1; i <= kMaxCommunicators; ++i) {
    const CommunicatorSlot& slot = g_communicators[i];
    const uint64_t id = slot.id.load(std::memory_order_acquire);
    if (!slot.used.load() || id == 0) continue;
    record_communicator({slot.name, id, slot.ranks, slot.rank, slot.nodes});
  }
}

void record_ended(NcclOperation row) {
  const int64_t now = now_ns();
  row.duration_ns = now > row.start_ns ? static_cast<uint64_t>(now - row.start_ns) : 0;
  recorder().record(row);
}

}  // namespace

void enable_nccl(bool wanted) noexcept {
  const bool before = g_enabled.exchange(wanted, std::memory_order_relaxed);
  if (wanted && !before) record_open_communicators();
  write_masks(wanted);
}

void note_mask(int* mask, int wanted) noexcept {
  for (Mask& known : g_masks) {
    int* none = nullptr;
    if (known.place.load() != mask && !known.place.compare_exchange_strong(none, mask)) continue;
    known.wanted.store(wanted);
    return;
  }
}

bool nccl_enabled() noexcept {
  return g_enabled.load(std::memory_order_relaxed) && recorder().on();
}

NcclContext open_communicator(const NcclCommunicator& communicator) noexcept {
  g_plugin_used.store(true, std::memory_order_relaxed);
  for (uint32_t i = 1; i <= kMaxCommunicators; ++i) {
    CommunicatorSlot& slot = g_communicators[i];
    if (slot.used.exchange(true)) continue;
    slot.point_to_point.store(0);
    slot.ranks = communicator.ranks;
    slot.rank = communicator.rank;
    slot.nodes = communicator.nodes;
    std::snprintf(slot.name, sizeof slot.name, "%s",
                  communicator.name != nullptr ? communicator.name : "");
    slot.id.store(communicator.id, std::memory_order_release);
    g_open.fetch_add(1);
    if (communicator.id != 0 && nccl_enabled()) record_communicator(communicator);
    return i;
  }
  recorder().count_dropped(BlockKind::kCommunicators, 1);
  return 0;
}

void close_communicator(NcclContext context) noexcept {
  if (context == 0 || context > kMaxCommunicators) return;
  if (g_communicators[context].used.exchange(false)) g_open.fetch_sub(1);
}

NcclHandle begin_api(NcclContext context, const NcclCall& call) noexcept {
  const HookTime time;
  return claim(Kind::kApi, row_of(context, call));
}

NcclHandle begin_operation(NcclContext context, const NcclCall& call) noexcept {
  const HookTime time;
  NcclOperation row = row_of(context, call);
  if (call.kind == NcclKind::kPointToPoint) {
    row.sequence = g_communicators[context <= kMaxCommunicators ? context : 0].point_to_point++;
  }
  NcclOperation api{};
  bool known = false;
  if (kind_of(call.api) == Kind::kApi) take(call.api, api, known);
  if (known) {
    row.start_ns = api.start_ns;
    row.thread = api.thread;
    if (row.stream == 0) row.stream = api.stream;
  }
  row.group = call.group >> kKindBits;
  return claim(Kind::kOperation, row);
}

NcclHandle begin_group(NcclContext) noexcept {
  return handle_of(draw_ticket(), Kind::kGroup);
}

NcclHandle begin_visit(NcclContext) noexcept {
  capture_thread.inside_nccl = true;
  return handle_of(draw_ticket(), Kind::kVisit);
}

void end(NcclHandle handle) noexcept {
  const HookTime time;
  const Kind kind = kind_of(handle);
  if (kind == Kind::kVisit) capture_thread.inside_nccl = false;
  if (kind != Kind::kOperation) return;
  NcclOperation row{};
  bool known = false;
  if (take(handle, row, known)) record_ended(row);
  if (!known) recorder().count_dropped(BlockKind::kNcclOperations, 1);
}

void record_waiting_calls(int64_t patience_ns) noexcept {
  const int64_t since = now_ns() - patience_ns;
  for (Slot& slot : g_slots) {
    NcclOperation row{};
    {
      // Only calls are held here: an operation must not be lost because it ends at this moment.
      const NcclHandle handle = slot.handle.load(std::memory_order_relaxed);
      if (kind_of(handle) != Kind::kApi) continue;
      const SlotHold hold(slot);
      if (!hold.holds(handle) || slot.started || slot.row.start_ns > since) continue;
      if (slot.session != capture_session.load(std::memory_order_relaxed)) continue;
      slot.started = true;
      row = slot.row;
    }
    recorder().record(row);
  }
}

void record_named_call(const char* name, size_t size, int64_t start_ns, int64_t end_ns) noexcept {
  constexpr std::string_view kMoves[] = {"AllReduce",     "AllGather", "Broadcast", "Bcast",
                                         "Reduce",        "AllToAll",  "AlltoAll",  "Gather",
                                         "ReduceScatter", "Scatter",   "Send",      "Recv"};
  constexpr std::string_view kPrefix = "nccl";
  std::string_view function(name, size);
  if (!nccl_enabled() || g_plugin_used.load(std::memory_order_relaxed)) return;
  if (!function.starts_with(kPrefix)) return;
  function.remove_prefix(kPrefix.size());
  if (std::find(std::begin(kMoves), std::end(kMoves), function) == std::end(kMoves)) return;
  NcclOperation row{};
  row.start_ns = start_ns;
  row.duration_ns = static_cast<uint64_t>(end_ns - start_ns);
  row.function = recorder().intern_string(function);
  row.thread = current_thread();
  row.peer = -1;
  row.device = -1;
  row.kind =
      function == "Send" || function == "Recv" ? NcclKind::kPointToPoint : NcclKind::kCollective;
  recorder().record(row);
}

uint64_t nccl_type_bytes(const char* datatype) noexcept {
  if (datatype == nullptr) return 0;
  // The first number in the name is the number of bits: ncclFloat8e4m3 has 8.
  const char* digit = datatype;
  while (*digit != '\0' && (*digit < '0' || *digit > '9')) ++digit;
  uint64_t bits = 0;
  for (; *digit >= '0' && *digit <= '9' && bits < 1000; ++digit) {
    bits = bits * 10 + static_cast<uint64_t>(*digit - '0');
  }
  return bits / 8;
}

bool inside_nccl() noexcept {
  if (capture_thread.inside_nccl) return true;
  char name[16] = {};
  return prctl(PR_GET_NAME, name) == 0 && std::strncmp(name, "NCCL ", 5) == 0;
}

void reset_nccl() noexcept {
  for (CommunicatorSlot& slot : g_communicators) slot.used.store(false);
  for (Mask& mask : g_masks) mask.place.store(nullptr);
  g_open.store(0);
  for (Slot& slot : g_slots) {
    slot.handle.store(0);
    slot.held.store(false);
  }
  capture_thread.inside_nccl = false;
}

}  // namespace tidemark::injector
