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

#include "injector/stacks/got_slot.h"

namespace tidemark::injector {
namespace {

using GetCurrentNode = std::shared_ptr<void> (*)();
std::atomic<GetCurrentNode> g_get_current_node{nullptr};

}  // namespace

void find_autograd() noexcept {
  if (g_get_current_node.load(std::memory_order_relaxed) != nullptr) return;
  char path[PATH_MAX];
  if (!loaded_path("libtorch_cpu.so", path, sizeof path)) return;
  void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  // The handle stays open: the function is called until the process ends.
  g_get_current_node.store(
      reinterpret_cast<GetCurrentNode>(dlsym(library, "_ZN5torch8autograd16get_current_nodeEv")),
      std::memory_order_release);
}

const void* current_autograd_type() noexcept {
  const GetCurrentNode get = g_get_current_node.load(std::memory_order_relaxed);
  if (get == nullptr) return nullptr;
  const std::shared_ptr<void> node = get();
  if (node == nullptr) return nullptr;
  const void* vtable = nullptr;
  std::memcpy(&vtable, node.get(), sizeof vtable);
  return vtable;
}

std::string_view autograd_type_name(const void* type, char* buffer, size_t capacity) noexcept {
  // Itanium ABI: the word before a vtable's first function points to its type_info, whose second
  // word is the mangled name.
  const char* const* info = nullptr;
  std::memcpy(&info, static_cast<const uint8_t*>(type) - sizeof(void*), sizeof info);
  if (info == nullptr || info[1] == nullptr) return {};
  const char* mangled = info[1];
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
