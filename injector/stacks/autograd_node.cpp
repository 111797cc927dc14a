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

namespace tidemark::injector {
namespace {

// The first torch whose function returns one word.
constexpr int kCountedMajor = 2;
constexpr int kCountedMinor = 13;

using GetCurrentNode = std::shared_ptr<void> (*)();
std::atomic<GetCurrentNode> g_get_current_node{nullptr};
std::atomic<TidemarkTorchNodeType> g_ask_bridge{nullptr};
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

}  // namespace

void find_autograd() noexcept {
  if (g_get_current_node.load(std::memory_order_relaxed) != nullptr || g_unknown_shape.load()) {
    return;
  }
  char path[PATH_MAX];
  if (!loaded_path("libtorch_cpu.so", path, sizeof path)) return;
  void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  // The handle stays open: the function is called until the process ends.
  void* const function = dlsym(library, "_ZN5torch8autograd16get_current_nodeEv");
  if (function == nullptr || read_torch_version(path).at_least(kCountedMajor, kCountedMinor) ||
      !returns_two_words(function)) {
    g_unknown_shape.store(true);
    return;
  }
  g_get_current_node.store(reinterpret_cast<GetCurrentNode>(function), std::memory_order_release);
}

void find_autograd_in_bridge(TidemarkTorchNodeType ask) noexcept {
  g_ask_bridge.store(ask, std::memory_order_release);
}

const char* current_autograd_type() noexcept {
  if (const auto ask = g_ask_bridge.load(std::memory_order_acquire)) return ask();
  const GetCurrentNode get = g_get_current_node.load(std::memory_order_relaxed);
  if (get == nullptr) {
    if (g_unknown_shape.load(std::memory_order_relaxed)) say_unknown_shape();
    return nullptr;
  }
  const std::shared_ptr<void> node = get();
  return node != nullptr ? mangled_name_of(node.get()) : nullptr;
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
