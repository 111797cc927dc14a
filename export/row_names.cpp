#include "export/row_names.h"

#include <cxxabi.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tidemark {

namespace {

using Words = std::string_view;

constexpr std::array<Words, 22> kDriverOperations = {
    "unknown",       "allocate",    "free",           "create",          "release",
    "retain",        "map",         "unmap",          "reserve address", "free address",
    "import",        "export",      "register",       "unregister",      "pool create",
    "pool destroy",  "pool trim",   "context create", "context destroy", "module load",
    "module unload", "graph launch"};
static_assert(kDriverOperations.size() == size_t(DriverOperation::kGraphLaunch) + 1);

constexpr std::array<Words, 15> kMemoryKindWords = {
    "unknown", "device",         "pitched",   "managed", "pinned",
    "array",   "stream_ordered", "virtual",   "ipc",     "external",
    "static",  "graph",          "multicast", "context", "code"};
static_assert(kMemoryKindWords.size() == size_t(MemoryKind::kCode) + 1);

constexpr std::array<Words, 8> kCopyKinds = {
    "copy", "host to device", "device to host", "device to device", "peer to peer", "host to host",
    "set",  "other copy"};
static_assert(kCopyKinds.size() == size_t(CopyKind::kOther) + 1);

constexpr std::array<Words, 22> kCounterKinds = {"unknown",
                                                 "device_used",
                                                 "device_free",
                                                 "device_reserved",
                                                 "process_used",
                                                 "pool_reserved",
                                                 "pool_used",
                                                 "graph_reserved",
                                                 "graph_used",
                                                 "torch_allocated",
                                                 "torch_reserved",
                                                 "host_resident",
                                                 "host_pinned",
                                                 "own_device",
                                                 "own_host",
                                                 "reading_at_rest",
                                                 "pool_reserved_high",
                                                 "pool_used_high",
                                                 "graph_reserved_high",
                                                 "graph_used_high",
                                                 "torch_pinned",
                                                 "torch_pinned_in_use"};
static_assert(kCounterKinds.size() == size_t(CounterKind::kTorchPinnedInUse) + 1);

constexpr std::array<Words, 4> kNcclKinds = {"unknown", "collective", "point_to_point",
                                             "copy_engine"};
static_assert(kNcclKinds.size() == size_t(NcclKind::kCopyEngine) + 1);

constexpr std::array<Words, 10> kHealthKinds = {
    "unknown",     "events_dropped", "records_dropped_by_cupti", "bytes_unwritten",
    "overhead_ns", "source_missing", "source_disabled",          "history_truncated",
    "recovered",   "input_skipped"};
static_assert(kHealthKinds.size() == size_t(HealthKind::kInputSkipped) + 1);

constexpr std::array<Words, 4> kSources = {"unknown", "capture", "torch_snapshot", "synthetic"};
static_assert(kSources.size() == size_t(Source::kSynthetic) + 1);

constexpr std::array<Words, 5> kScopes = {"unknown", "environment", "allocator", "tool",
                                          "imported"};
static_assert(kScopes.size() == size_t(SettingScope::kImported) + 1);

// Values come from files: a later version may have values that are not listed here.
template <typename Kind, size_t N>
Words word(const std::array<Words, N>& words, Kind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < N ? words[index] : Words("unknown");
}

}  // namespace

std::string_view driver_operation_name(DriverOperation operation) {
  return word(kDriverOperations, operation);
}
std::string_view memory_kind_name(MemoryKind kind) {
  return word(kMemoryKindWords, kind);
}
std::string_view copy_kind_name(CopyKind kind) {
  return word(kCopyKinds, kind);
}
std::string_view counter_kind_name(CounterKind kind) {
  return word(kCounterKinds, kind);
}
std::string_view nccl_kind_name(NcclKind kind) {
  return word(kNcclKinds, kind);
}
std::string_view health_kind_name(HealthKind kind) {
  return word(kHealthKinds, kind);
}
std::string_view source_name(Source source) {
  return word(kSources, source);
}
std::string_view setting_scope_name(SettingScope scope) {
  return word(kScopes, scope);
}

std::string kernel_name(std::string_view name) {
  std::string text(name);
  if (!name.starts_with("_Z")) return text;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> source(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), std::free);
  if (status == 0 && source != nullptr) text = source.get();
  return text;
}

}  // namespace tidemark
