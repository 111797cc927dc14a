#include "injector/python/walk.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "injector/python/code.h"
#include "injector/python/memory.h"

namespace tidemark::injector {
namespace {

constexpr size_t kHashOffset = 24;  // of a string
// Frames with this owner or a higher one are internal frames of the interpreter on the C stack.
constexpr uint8_t kFirstForeignOwner = 3;
// 3.14 stores flags in the lowest bits of references.
constexpr uintptr_t kTagBits = 3;

const uint8_t* innermost_frame(const PythonLayout& layout, const void* thread) {
  const auto* at = read_at<const uint8_t*>(thread, layout.thread_frame);
  if (layout.frame_holder < 0 || at == nullptr) return at;
  return read_at<const uint8_t*>(at, static_cast<size_t>(layout.frame_holder));
}

const uint8_t* code_of(const PythonLayout& layout, const uint8_t* frame) {
  const auto word = read_at<uintptr_t>(frame, layout.frame_code);
  return reinterpret_cast<const uint8_t*>(word & ~kTagBits);
}

uint32_t unit_of(const PythonLayout& layout, const uint8_t* frame, const uint8_t* code) {
  if (layout.position_is_number) {
    const auto number = read_at<int32_t>(frame, layout.frame_position);
    if (number < 0) return 0;
    return static_cast<uint32_t>(layout.minor == 9 ? number / 2 : number);
  }
  const auto* const position = read_at<const uint8_t*>(frame, layout.frame_position);
  const uint8_t* const first = code + layout.code_instructions;
  // A frame that has not started is positioned before its first instruction.
  return position < first ? 0 : static_cast<uint32_t>((position - first) / 2);
}

// A method of nn.Module. Its code object is that of the module torch.nn, which is never freed. If
// it were, another one with the same name object would have to take its place to be mistaken.
struct Method {
  std::atomic<const uint8_t*> code{nullptr};
  std::atomic<const uint8_t*> name{nullptr};
};
constexpr std::string_view kMethods[] = {"_wrapped_call_impl", "_call_impl", "_apply"};
constexpr std::string_view kMethodsFile = "torch/nn/modules/module.py";
Method g_methods[std::size(kMethods)];

struct KnownMethods {
  const uint8_t* code[std::size(kMethods)];

  KnownMethods() {
    for (size_t i = 0; i < std::size(code); ++i) {
      code[i] = g_methods[i].code.load(std::memory_order_acquire);
    }
  }
  bool has(const uint8_t* called, const uint8_t* name) const {
    for (size_t i = 0; i < std::size(code); ++i) {
      if (code[i] == called) return g_methods[i].name.load(std::memory_order_relaxed) == name;
    }
    return false;
  }
};

// The first argument. Since torch 2.5 that of _call_impl is a cell: the frame outside of it, which
// is known as well, has the same one without.
const uint8_t* argument_of(const PythonRuntime& python, const uint8_t* frame) {
  const auto word = read_at<uintptr_t>(frame, python.layout.frame_locals) & ~kTagBits;
  const auto* const argument = reinterpret_cast<const uint8_t*>(word);
  if (argument == nullptr ||
      read_at<const void*>(argument, kPythonTypeOffset) == python.cell_type) {
    return nullptr;
  }
  return argument;
}

bool is_foreign(const PythonLayout& layout, const uint8_t* frame) {
  return layout.frame_owner >= 0 &&
         read_at<uint8_t>(frame, static_cast<size_t>(layout.frame_owner)) >= kFirstForeignOwner;
}

}  // namespace

void walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& out) noexcept {
  const PythonLayout& layout = python.layout;
  const KnownMethods methods;
  Hasher hasher(seed);
  out.count = 0;
  out.nn_module = nullptr;
  for (const uint8_t* frame = innermost_frame(layout, thread);
       frame != nullptr && out.count < kMaxPythonFrames;
       frame = read_at<const uint8_t*>(frame, layout.frame_previous)) {
    if (is_foreign(layout, frame)) continue;
    const uint8_t* const code = code_of(layout, frame);
    if (code == nullptr || read_at<const void*>(code, kPythonTypeOffset) != python.code_type)
      continue;
    const uint32_t unit = unit_of(layout, frame, code);
    const auto* const name = read_at<const uint8_t*>(code, layout.code_name);
    const auto size = layout.code_size != 0 ? read_at<uint64_t>(code, layout.code_size) : 0;
    const auto line = read_at<uint32_t>(code, layout.code_first_line);
    hasher.take(reinterpret_cast<uintptr_t>(code) ^ (static_cast<uint64_t>(unit) << 44),
                read_at<uint64_t>(name, kHashOffset) ^ (size << 32) ^ line);
    out.frames[out.count++] = {code, unit};
    if (out.nn_module == nullptr && methods.has(code, name)) {
      out.nn_module = argument_of(python, frame);
    }
  }
  out.key = hasher.finish();
}

namespace {

// Reads through the kernel, which returns an error where we would fault.
template <typename T>
bool safe_read(const void* object, size_t offset, T& value) {
  const iovec local{&value, sizeof value};
  const iovec remote{const_cast<uint8_t*>(static_cast<const uint8_t*>(object) + offset),
                     sizeof value};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(sizeof value);
}

bool has_type(const void* object, const void* type) {
  const void* found = nullptr;
  return object != nullptr && safe_read(object, kPythonTypeOffset, found) && found == type;
}

// Checks everything that is read from a code object later.
bool check_code(const PythonRuntime& python, const uint8_t* frame, const uint8_t* code) {
  const PythonLayout& layout = python.layout;
  const void* name = nullptr;
  const void* file = nullptr;
  const void* lines = nullptr;
  if (!safe_read(code, layout.code_name, name) || !has_type(name, python.text_type)) return false;
  if (!safe_read(code, layout.code_filename, file) || !has_type(file, python.text_type)) {
    return false;
  }
  if (!safe_read(code, layout.code_lines, lines) || !has_type(lines, python.bytes_type)) {
    return false;
  }
  int32_t first_line = -1;
  if (!safe_read(code, layout.code_first_line, first_line) || first_line < 0 ||
      first_line > 10'000'000) {
    return false;
  }
  if (layout.position_is_number) return true;
  uint64_t size = 0;
  const uint8_t* position = nullptr;
  if (!safe_read(code, layout.code_size, size) || size > (1u << 24)) return false;
  if (!safe_read(frame, layout.frame_position, position)) return false;
  const uint8_t* const first = code + layout.code_instructions;
  return position >= first - 2 && position < first + 2 * size;
}

// An object whose type is a type: what the first argument of a method must be.
bool is_instance(const PythonRuntime& python, const uint8_t* frame) {
  constexpr size_t kTypeFlags = 168;
  constexpr uint64_t kIsType = 1U << 31;
  uintptr_t word = 0;
  const void* type = nullptr;
  const void* meta = nullptr;
  uint64_t flags = 0;
  if (python.cell_type == nullptr || !safe_read(frame, python.layout.frame_locals, word)) {
    return false;
  }
  const auto* const object = reinterpret_cast<const uint8_t*>(word & ~kTagBits);
  return object != nullptr && safe_read(object, kPythonTypeOffset, type) && type != nullptr &&
         safe_read(type, kPythonTypeOffset, meta) && meta != nullptr &&
         safe_read(meta, kTypeFlags, flags) && (flags & kIsType) != 0;
}

// Which of kMethods the code is; their number if none.
size_t method_of(const PythonRuntime& python, const uint8_t* code) {
  char text[512];
  std::string_view name = read_python_text(
      python, read_at<const void*>(code, python.layout.code_name), text, sizeof text);
  name.remove_prefix(name.rfind('.') + 1);  // of a qualified name
  const size_t which =
      static_cast<size_t>(std::find(std::begin(kMethods), std::end(kMethods), name) - kMethods);
  if (which == std::size(kMethods)) return which;
  const std::string_view file = read_python_text(
      python, read_at<const void*>(code, python.layout.code_filename), text, sizeof text);
  return file.ends_with(kMethodsFile) ? which : std::size(kMethods);
}

// Calls use(frame, code) for each frame, until it returns false.
template <typename Use>
void for_each_frame(const PythonRuntime& python, const void* thread, Use&& use) {
  const PythonLayout& layout = python.layout;
  for (const uint8_t* frame = innermost_frame(layout, thread); frame != nullptr;
       frame = read_at<const uint8_t*>(frame, layout.frame_previous)) {
    if (is_foreign(layout, frame)) continue;
    const uint8_t* const code = code_of(layout, frame);
    if (code == nullptr || read_at<const void*>(code, kPythonTypeOffset) != python.code_type)
      continue;
    if (!use(frame, code)) return;
  }
}

}  // namespace

bool find_nn_module_methods(const PythonRuntime& python, const void* thread) noexcept {
  const int host_errno = errno;
  bool found = false;
  size_t frames = 0;
  for_each_frame(python, thread, [&](const uint8_t* frame, const uint8_t* code) {
    const size_t which = method_of(python, code);
    if (which < std::size(kMethods) && g_methods[which].code.load() != code &&
        is_instance(python, frame)) {
      g_methods[which].name.store(read_at<const uint8_t*>(code, python.layout.code_name));
      g_methods[which].code.store(code, std::memory_order_release);
      found = true;
    }
    return ++frames < kMaxPythonFrames;
  });
  errno = host_errno;
  return found;
}

void forget_nn_module_methods() noexcept {
  for (Method& method : g_methods) method.code.store(nullptr);
}

size_t running_nn_modules(const PythonRuntime& python, const void* thread, const uint8_t** out,
                          size_t capacity) noexcept {
  const KnownMethods methods;
  size_t count = 0;
  for_each_frame(python, thread, [&](const uint8_t* frame, const uint8_t* code) {
    if (!methods.has(code, read_at<const uint8_t*>(code, python.layout.code_name))) return true;
    const uint8_t* const running = argument_of(python, frame);
    if (running != nullptr && (count == 0 || out[count - 1] != running)) out[count++] = running;
    return count < capacity;
  });
  return count;
}

LayoutCheck check_python_layout(const PythonRuntime& python, const void* thread) noexcept {
  constexpr size_t kFramesToCheck = 64;
  const PythonLayout& layout = python.layout;
  const int host_errno = errno;
  const uint8_t* frame = nullptr;
  bool readable = safe_read(thread, layout.thread_frame, frame);
  if (readable && layout.frame_holder >= 0) {
    readable =
        frame != nullptr && safe_read(frame, static_cast<size_t>(layout.frame_holder), frame);
  }
  size_t codes = 0;
  for (size_t i = 0; readable && frame != nullptr && i < kFramesToCheck; ++i) {
    uintptr_t word = 0;
    uint8_t owner = 0;
    readable = safe_read(frame, layout.frame_code, word);
    if (readable && layout.frame_owner >= 0) {
      readable = safe_read(frame, static_cast<size_t>(layout.frame_owner), owner);
    }
    const auto* const code = reinterpret_cast<const uint8_t*>(word & ~kTagBits);
    if (readable && owner < kFirstForeignOwner) {
      readable = has_type(code, python.code_type) && check_code(python, frame, code);
      ++codes;
    }
    if (readable) readable = safe_read(frame, layout.frame_previous, frame);
  }
  errno = host_errno;
  if (!readable) return LayoutCheck::kWrong;
  return codes > 0 ? LayoutCheck::kRight : LayoutCheck::kNothingToSee;
}

}  // namespace tidemark::injector
