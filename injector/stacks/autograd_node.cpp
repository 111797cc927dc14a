#include "injector/stacks/autograd_node.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <limits.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "injector/process/own_scope.h"
#include "injector/recorder/recorder.h"
#include "injector/stacks/got_slot.h"
#include "injector/stacks/torch_version.h"
#include "proto/base/pages.h"

namespace tidemark::injector {
namespace {

// The first torch whose function returns one word.
constexpr int kCountedMajor = 2;
constexpr int kCountedMinor = 13;

using GetCurrentNode = std::shared_ptr<void> (*)();
std::atomic<GetCurrentNode> g_get_current_node{nullptr};
std::atomic<TidemarkTorchNode> g_ask_bridge{nullptr};
// The number of the next node that the calling thread makes, and that thread's number. Both exist
// with this signature since 1.13.
using TorchNumber = uint64_t (*)();
std::atomic<TorchNumber> g_next_sequence{nullptr};
std::atomic<TorchNumber> g_torch_thread{nullptr};
std::atomic<bool> g_unknown_shape{false};  // there is an engine, and only a bridge can ask it
std::atomic<uint32_t> g_said_in{0};        // the recording that has been told

// Two words that are returned through a hidden pointer, as both smart pointers are: a class with a
// destructor.
constexpr uintptr_t kUntouched = ~uintptr_t{0};
struct ReturnedWords {
  ReturnedWords(const ReturnedWords&) = delete;
  ~ReturnedWords() {}
  uintptr_t node;
  uintptr_t count;
};

// A shared_ptr writes both words even if no node runs, an intrusive_ptr only the first. (If it is
// one and a node runs right now, that node is never freed; but then the version was wrong.)
bool returns_two_words(void* function) {
  alignas(ReturnedWords) unsigned char place[sizeof(ReturnedWords)];
  std::memset(place, 0xff, sizeof place);
  asm volatile("" : : "r"(place) : "memory");  // the compiler takes the call to write all of it
  // Placement new of a returned class passes its address as the hidden pointer.
  auto* const words = reinterpret_cast<ReturnedWords*>(place);
  new (words) ReturnedWords(reinterpret_cast<ReturnedWords (*)()>(function)());
  const bool both = words->node != kUntouched && words->count != kUntouched;
  if (both) std::destroy_at(reinterpret_cast<std::shared_ptr<void>*>(place));
  return both;
}

void say_unknown_shape() {
  const uint32_t recording = capture_session.load(std::memory_order_relaxed);
  if (g_said_in.exchange(recording, std::memory_order_relaxed) == recording) return;
  recorder().report(HealthKind::kSourceMissing, 0,
                    "torch: without the bridge, backward nodes of this version have no names");
}

const char* mangled_name_of(const void* node) {
  // Itanium ABI: the word before a vtable's first function points to its type_info, whose second
  // word is the mangled name.
  const uint8_t* vtable = nullptr;
  std::memcpy(&vtable, node, sizeof vtable);
  const char* const* info = nullptr;
  std::memcpy(&info, vtable - sizeof(void*), sizeof info);
  return info != nullptr ? info[1] : nullptr;
}

// Members of a node up to 2.12, after its vtable and the weak pointer to itself (function.h):
// sequence_nr_, topological_nr_, has_parent_, thread_id_.
constexpr size_t kNodeSequence = 24;
constexpr size_t kNodeThread = 48;

uint64_t number_at(const void* node, size_t offset) {
  uint64_t number = 0;
  std::memcpy(&number, static_cast<const uint8_t*>(node) + offset, sizeof number);
  return number;
}

// ---- notes of the forward pass ------------------------------------------------------------------

// By thread and sequence number. An older note is overwritten after a quarter of a million nodes.
constexpr size_t kNotes = size_t{1} << 18;
// How many nodes in a row may have allocated nothing.
constexpr uint64_t kFarthest = 64;
std::atomic<std::atomic<uint64_t>*> g_notes{nullptr};

struct NotePlace {
  size_t index;
  uint64_t tag;  // in the upper half
};
NotePlace place_of(uint64_t thread, uint64_t sequence) {
  const uint64_t tag = (sequence ^ (thread * 0x9E3779B97F4A7C15U)) & 0xffffffff;
  return {static_cast<size_t>(sequence + thread * 0x5851F42D4C957F2DU) & (kNotes - 1), (tag | 1)
                                                                                           << 32};
}

}  // namespace

void note_forward(uint32_t nn_module) noexcept {
  const TorchNumber next = g_next_sequence.load(std::memory_order_acquire);
  if (next == nullptr) return;
  std::atomic<uint64_t>* notes = g_notes.load(std::memory_order_acquire);
  const NotePlace place = place_of(g_torch_thread.load(std::memory_order_relaxed)(), next());
  constexpr uint64_t kTag = ~uint64_t{0xffffffff};
  // The first after a node was made is that of its operation; what runs outside of all nn.Modules
  // may be seen once more when it is known how to see one.
  const uint64_t note = notes[place.index].load(std::memory_order_relaxed);
  if ((note & kTag) == place.tag && note != place.tag) return;
  notes[place.index].store(place.tag | nn_module, std::memory_order_relaxed);
}

uint32_t nn_module_of(const AutogradNode& node) noexcept {
  const std::atomic<uint64_t>* const notes = g_notes.load(std::memory_order_acquire);
  // A node that accumulates a gradient has the highest number.
  if (notes == nullptr || node.type == nullptr || node.sequence > UINT64_MAX / 2) return 0;
  for (uint64_t back = 0; back < kFarthest && back <= node.sequence; ++back) {
    const NotePlace place = place_of(node.thread, node.sequence + 1 - back);
    const uint64_t note = notes[place.index].load(std::memory_order_relaxed);
    if (note >> 32 == place.tag >> 32) return static_cast<uint32_t>(note);
  }
  return 0;
}

void clear_forward_notes() noexcept {
  std::atomic<uint64_t>* const notes = g_notes.load();
  if (notes != nullptr) ::madvise(static_cast<void*>(notes), kNotes * sizeof *notes, MADV_DONTNEED);
}

void find_autograd() noexcept {
  if (g_get_current_node.load(std::memory_order_relaxed) != nullptr || g_unknown_shape.load()) {
    return;
  }
  char path[PATH_MAX];
  if (!loaded_path("libtorch_cpu.so", path, sizeof path)) return;
  void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  // The handle stays open: the function is called until the process ends.
  const auto next = dlsym(library, "_ZN2at15sequence_number4peekEv");
  const auto thread = dlsym(library, "_ZN2at14RecordFunction15currentThreadIdEv");
  if (next != nullptr && thread != nullptr && g_notes.load() == nullptr) {
    g_notes.store(static_cast<std::atomic<uint64_t>*>(map_pages(kNotes * sizeof(uint64_t))));
  }
  if (g_notes.load() != nullptr) {
    g_torch_thread.store(reinterpret_cast<TorchNumber>(thread));
    g_next_sequence.store(reinterpret_cast<TorchNumber>(next), std::memory_order_release);
  }
  void* const function = dlsym(library, "_ZN5torch8autograd16get_current_nodeEv");
  if (function == nullptr || read_torch_version(path).at_least(kCountedMajor, kCountedMinor) ||
      !returns_two_words(function)) {
    g_unknown_shape.store(true);
    return;
  }
  g_get_current_node.store(reinterpret_cast<GetCurrentNode>(function), std::memory_order_release);
}

void find_autograd_in_bridge(TidemarkTorchNode ask) noexcept {
  g_ask_bridge.store(ask, std::memory_order_release);
}

AutogradNode current_autograd_node() noexcept {
  AutogradNode found;
  if (const auto ask = g_ask_bridge.load(std::memory_order_acquire)) {
    found.type = ask(&found.sequence, &found.thread);
    return found;
  }
  const GetCurrentNode get = g_get_current_node.load(std::memory_order_relaxed);
  if (get == nullptr) {
    if (g_unknown_shape.load(std::memory_order_relaxed)) say_unknown_shape();
    return found;
  }
  const std::shared_ptr<void> node = get();
  if (node == nullptr) return found;
  found.type = mangled_name_of(node.get());
  found.sequence = number_at(node.get(), kNodeSequence);
  found.thread = number_at(node.get(), kNodeThread);
  return found;
}

std::string_view autograd_type_name(const char* type, char* buffer, size_t capacity) noexcept {
  const char* mangled = type;
  if (*mangled == '*') ++mangled;  // a name that is compared by address
  int status = 0;
  char* const readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string_view name = status == 0 && readable != nullptr ? readable : mangled;
  if (name.find('<') == std::string_view::npos) {
    if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
      name.remove_prefix(colon + 1);
    }
  }
  const size_t size = std::min(name.size(), capacity);
  std::memcpy(buffer, name.data(), size);
  std::free(readable);
  return {buffer, size};
}

}  // namespace tidemark::injector
