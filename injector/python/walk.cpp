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
#include "proto/base/pages.h"

namespace tidemark::injector {
namespace {

constexpr size_t kHashOffset = 24;   // of a string
constexpr size_t kCellContent = 16;  // of a cell
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

const uint8_t* outward_of(const PythonLayout& layout, const uint8_t* frame) {
  return read_at<const uint8_t*>(frame, layout.frame_previous);
}

uintptr_t position_of(const PythonLayout& layout, const uint8_t* frame) {
  if (!layout.position_is_number) return read_at<uintptr_t>(frame, layout.frame_position);
  return static_cast<uintptr_t>(read_at<int32_t>(frame, layout.frame_position));
}

uint32_t unit_of(const PythonLayout& layout, uintptr_t position, const uint8_t* code) {
  if (layout.position_is_number) {
    const auto number = static_cast<int32_t>(position);
    if (number < 0) return 0;
    return static_cast<uint32_t>(layout.minor == 9 ? number / 2 : number);
  }
  const auto first = reinterpret_cast<uintptr_t>(code + layout.code_instructions);
  // A frame that has not started is positioned before its first instruction.
  return position < first ? 0 : static_cast<uint32_t>((position - first) / 2);
}

// Tells a code object from another one that is later created at the same address: by its version,
// which the interpreter gives out once, and from versions without one (or when it has run out of
// them) by the hash of its name, its first line and its size. Never 0.
[[gnu::always_inline]] inline uint64_t identity_of(const PythonLayout& layout,
                                                   const uint8_t* code) {
  const auto line = read_at<uint32_t>(code, layout.code_first_line);
  if (layout.code_version != 0) {
    const auto version = read_at<uint32_t>(code, layout.code_version);
    if (version != 0) return static_cast<uint64_t>(version) << 32 | line;
  }
  const auto* const name = read_at<const uint8_t*>(code, layout.code_name);
  const auto size = layout.code_size != 0 ? read_at<uint64_t>(code, layout.code_size) : 0;
  const uint64_t identity = read_at<uint64_t>(name, kHashOffset) ^ (size << 32) ^ line;
  return identity != 0 ? identity : 1;
}

// What a frame tells of its first argument.
enum class Method : uint8_t { kNone, kRuns, kMakes };

// Code objects of methods of nn.Modules, found by their address. One may be freed and another take
// its place, which has another identity. Entries are never removed.
class Methods {
 public:
  Method of(const uint8_t* code, uint64_t identity) const noexcept {
    for (size_t i = first_of(code);; i = (i + 1) % kSlots) {
      const uintptr_t held = slots_[i].code.load(std::memory_order_acquire);
      if (held == 0) return Method::kNone;
      if ((held & ~kMakes) != reinterpret_cast<uintptr_t>(code)) continue;
      if (slots_[i].identity.load(std::memory_order_relaxed) != identity) return Method::kNone;
      return (held & kMakes) != 0 ? Method::kMakes : Method::kRuns;
    }
  }

  // False: there are too many.
  bool add(const uint8_t* code, uint64_t identity, Method method) noexcept {
    const uintptr_t word =
        reinterpret_cast<uintptr_t>(code) | (method == Method::kMakes ? kMakes : 0);
    for (size_t i = first_of(code);; i = (i + 1) % kSlots) {
      uintptr_t held = slots_[i].code.load(std::memory_order_acquire);
      if (held == 0) {
        if (used_.load() >= kMost) return false;
        if (slots_[i].code.compare_exchange_strong(held, word)) used_.fetch_add(1);
      }
      if (held != 0 && ((held ^ word) & ~kMakes) != 0) continue;
      slots_[i].code.store(word, std::memory_order_release);
      slots_[i].identity.store(identity, std::memory_order_release);
      return true;
    }
  }

  void clear() noexcept {
    for (Slot& slot : slots_) {
      slot.code.store(0);
      slot.identity.store(0);
    }
    used_.store(0);
  }

 private:
  static constexpr size_t kSlots = 1024;
  static constexpr size_t kMost = kSlots / 2;
  static constexpr uintptr_t kMakes = 1;  // in the word; code objects are aligned

  struct Slot {
    std::atomic<uintptr_t> code{0};
    std::atomic<uint64_t> identity{0};
  };

  static size_t first_of(const uint8_t* code) noexcept {
    return (reinterpret_cast<uintptr_t>(code) >> 4) * 0x9E3779B97F4A7C15U >> 54;
  }

  Slot slots_[kSlots];
  std::atomic<uint32_t> used_{0};
};
Methods g_methods;
std::atomic<uint32_t> g_methods_found{0};  // changes with g_methods

// The first argument. One that a nested function uses, too, is in a cell: as that of _call_impl
// since torch 2.5.
const uint8_t* argument_of(const PythonRuntime& python, const uint8_t* frame) {
  const auto word = read_at<uintptr_t>(frame, python.layout.frame_locals) & ~kTagBits;
  const auto* const argument = reinterpret_cast<const uint8_t*>(word);
  if (argument == nullptr || read_at<const void*>(argument, kPythonTypeOffset) != python.cell_type)
    return argument;
  return read_at<const uint8_t*>(argument, kCellContent);
}

bool is_foreign(const PythonLayout& layout, const uint8_t* frame) {
  return layout.frame_owner >= 0 &&
         read_at<uint8_t>(frame, static_cast<size_t>(layout.frame_owner)) >= kFirstForeignOwner;
}

bool has_code(const PythonRuntime& python, const uint8_t* frame, const uint8_t* code) {
  return !is_foreign(python.layout, frame) && code != nullptr &&
         read_at<const void*>(code, kPythonTypeOffset) == python.code_type;
}

// `known` is of a frame that was at this address, where a live one is. An internal frame has a code
// of its own, or none.
bool is_unchanged(const PythonLayout& layout, const uint8_t* frame, const PythonFrame& known) {
  return code_of(layout, frame) == known.code && position_of(layout, frame) == known.position &&
         (known.identity == 0 || identity_of(layout, known.code) == known.identity);
}

// Where a frame at this address is known, at `from` or somewhat outward of it: frames of calls that
// have returned since may be between. -1: nowhere.
int32_t find_known(const PythonFrames& walked, const uint8_t* frame, int32_t from) {
  constexpr int32_t kReach = 16;
  for (int32_t i = from; i >= 0 && i > from - kReach; --i) {
    if (walked.addresses[i] == frame) return i;
  }
  return -1;
}

// The first frame outward of `from` that is not as it was; -1: none, out to the last. `from` is
// alive, at its address.
int32_t find_changed(const PythonLayout& layout, const PythonFrames& walked, int32_t from) {
  for (int32_t i = from; i >= 0; --i) {
    const uint8_t* const frame = walked.addresses[i];
    if (!is_unchanged(layout, frame, walked.frames[i])) return i;
    // No read depends on the one before: the next address is the known one.
    const uint8_t* const outward = i > 0 ? walked.addresses[i - 1] : nullptr;
    if (outward_of(layout, frame) != outward) return i;
  }
  return -1;
}

// Lists the frames that have changed since the last walk, or may have, in walked.changed. Returns
// how many of the outermost ones have not. Those that are too many are left out, outermost first.
uint32_t find_unchanged(const PythonLayout& layout, const void* thread, PythonFrames& walked,
                        uint32_t& changed) {
  changed = 0;
  int32_t near = static_cast<int32_t>(walked.count) - 1;
  for (const uint8_t* frame = innermost_frame(layout, thread);
       frame != nullptr && changed < PythonFrames::kCapacity; frame = outward_of(layout, frame)) {
    const int32_t known = find_known(walked, frame, near);
    if (known >= 0) {
      near = find_changed(layout, walked, known);
      if (near < 0 && static_cast<uint32_t>(known) + 1 + changed <= PythonFrames::kCapacity) {
        return static_cast<uint32_t>(known) + 1;
      }
      for (int32_t i = known; i > near && changed < PythonFrames::kCapacity; --i) {
        walked.changed[changed++] = walked.addresses[i];
      }
      if (near < 0 || changed == PythonFrames::kCapacity) return 0;
      frame = walked.addresses[near--];
    }
    walked.changed[changed++] = frame;
  }
  return 0;
}

// `inner` is the frame outward of it, and becomes this one.
void read_frame(const PythonRuntime& python, const uint8_t* frame, PythonFrame& inner) {
  const PythonLayout& layout = python.layout;
  inner.code = code_of(layout, frame);
  inner.position = position_of(layout, frame);
  inner.identity = has_code(python, frame, inner.code) ? identity_of(layout, inner.code) : 0;
  if (inner.identity == 0) return;
  inner.unit = unit_of(layout, inner.position, inner.code);
  inner.hash.take(
      reinterpret_cast<uintptr_t>(inner.code) ^ (static_cast<uint64_t>(inner.unit) << 44),
      inner.identity);
  ++inner.depth;
}

// A module that is made while another one runs is a part of that one's work.
void note_method(PythonFrame& frame, Method method, uint32_t at) {
  const bool inside_a_call = frame.module_call >= 0 && !frame.makes;
  if (method == Method::kNone || (method == Method::kMakes && inside_a_call)) return;
  frame.module_call = static_cast<int32_t>(at);
  frame.makes = method == Method::kMakes;
}

void find_nn_module(const PythonRuntime& python, PythonFrames& walked) {
  walked.nn_module = nullptr;
  walked.makes = false;
  for (int32_t i = static_cast<int32_t>(walked.count) - 1; i >= 0; --i) {
    i = walked.frames[i].module_call;
    if (i < 0) break;
    walked.nn_module = argument_of(python, walked.addresses[i]);
    walked.makes = walked.frames[i].makes;
    if (walked.nn_module != nullptr) break;
  }
}

}  // namespace

PythonFrames* frames_of(ThreadWriter& writer) noexcept {
  if (writer.python_frames == nullptr) [[unlikely]] {
    const int host_errno = errno;
    writer.python_frames = static_cast<PythonFrames*>(map_pages(sizeof(PythonFrames)));
    errno = host_errno;
  }
  return writer.python_frames;
}

bool walk_python(const PythonRuntime& python, const void* thread, uint64_t seed,
                 PythonFrames& walked) noexcept {
  const uint32_t methods_found = g_methods_found.load(std::memory_order_acquire);
  if (walked.methods != methods_found) walked.count = 0;
  uint32_t changed = 0;
  uint32_t at = find_unchanged(python.layout, thread, walked, changed);
  PythonFrame frame{nullptr, 0, 0, Hasher(0), 0, 0, -1, false};
  if (at > 0) frame = walked.frames[at - 1];
  for (uint32_t i = changed; i-- > 0; ++at) {
    walked.addresses[at] = walked.changed[i];
    read_frame(python, walked.changed[i], frame);
    if (frame.identity != 0) note_method(frame, g_methods.of(frame.code, frame.identity), at);
    walked.frames[at] = frame;
  }
  walked.count = at;
  walked.methods = methods_found;
  find_nn_module(python, walked);
  frame.hash.take(seed, frame.depth);
  walked.key = frame.hash.finish();
  return frame.depth > 0;
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

// The first argument, if it is an object whose type is a type; else null.
const uint8_t* instance_of(const PythonRuntime& python, const uint8_t* frame) {
  constexpr size_t kTypeFlags = 168;
  constexpr uint64_t kIsType = 1U << 31;
  uintptr_t word = 0;
  if (python.cell_type == nullptr || !safe_read(frame, python.layout.frame_locals, word)) {
    return nullptr;
  }
  const auto* object = reinterpret_cast<const uint8_t*>(word & ~kTagBits);
  if (has_type(object, python.cell_type) && !safe_read(object, kCellContent, object)) {
    return nullptr;
  }
  const void* type = nullptr;
  const void* meta = nullptr;
  uint64_t flags = 0;
  const bool is_instance = object != nullptr && safe_read(object, kPythonTypeOffset, type) &&
                           type != nullptr && safe_read(type, kPythonTypeOffset, meta) &&
                           meta != nullptr && safe_read(meta, kTypeFlags, flags) &&
                           (flags & kIsType) != 0;
  return is_instance ? object : nullptr;
}

// Whether it is of a class that has an ancestor of this name. Reads the classes in the order in
// which the interpreter looks for methods.
bool has_ancestor(const PythonRuntime& python, const uint8_t* object, std::string_view name) {
  constexpr size_t kTypeName = 24;
  constexpr size_t kTypeOrder = 344;
  constexpr size_t kTupleSize = 16;
  constexpr uint64_t kMostAncestors = 256;
  const size_t first_item = python.minor < 14 ? 24 : 32;
  const void* type = nullptr;
  const void* order = nullptr;
  uint64_t count = 0;
  if (!safe_read(object, kPythonTypeOffset, type) || !safe_read(type, kTypeOrder, order) ||
      order == nullptr || !safe_read(order, kTupleSize, count)) {
    return false;
  }
  for (uint64_t i = 0; i < std::min(count, kMostAncestors); ++i) {
    const void* ancestor = nullptr;
    const char* text = nullptr;
    char read[16] = {};
    if (safe_read(order, first_item + i * sizeof(void*), ancestor) && ancestor != nullptr &&
        safe_read(ancestor, kTypeName, text) && text != nullptr && safe_read(text, 0, read) &&
        name == std::string_view(read, strnlen(read, sizeof read))) {
      return true;
    }
  }
  return false;
}

Method method_of(const PythonRuntime& python, const uint8_t* frame, const uint8_t* code) {
  constexpr std::string_view kCalls[] = {"_wrapped_call_impl", "_call_impl", "_apply"};
  constexpr std::string_view kCallsFile = "torch/nn/modules/module.py";
  char text[512];
  std::string_view name = read_python_text(
      python, read_at<const void*>(code, python.layout.code_name), text, sizeof text);
  name.remove_prefix(name.rfind('.') + 1);  // of a qualified name
  if (name == "__init__") {
    const uint8_t* const made = instance_of(python, frame);
    return made != nullptr && has_ancestor(python, made, "Module") ? Method::kMakes : Method::kNone;
  }
  if (std::find(std::begin(kCalls), std::end(kCalls), name) == std::end(kCalls))
    return Method::kNone;
  const std::string_view file = read_python_text(
      python, read_at<const void*>(code, python.layout.code_filename), text, sizeof text);
  return file.ends_with(kCallsFile) && instance_of(python, frame) != nullptr ? Method::kRuns
                                                                             : Method::kNone;
}

// Calls use(frame, code) for each frame, until it returns false.
template <typename Use>
void for_each_frame(const PythonRuntime& python, const void* thread, Use&& use) {
  const PythonLayout& layout = python.layout;
  for (const uint8_t* frame = innermost_frame(layout, thread); frame != nullptr;
       frame = outward_of(layout, frame)) {
    const uint8_t* const code = code_of(layout, frame);
    if (has_code(python, frame, code) && !use(frame, code)) return;
  }
}

}  // namespace

bool find_nn_module_methods(const PythonRuntime& python, const void* thread) noexcept {
  const int host_errno = errno;
  bool found = false;
  size_t frames = 0;
  for_each_frame(python, thread, [&](const uint8_t* frame, const uint8_t* code) {
    const uint64_t identity = identity_of(python.layout, code);
    if (g_methods.of(code, identity) == Method::kNone) {
      const Method method = method_of(python, frame, code);
      found |= method != Method::kNone && g_methods.add(code, identity, method);
    }
    return ++frames < kMaxPythonFrames;
  });
  errno = host_errno;
  if (found) g_methods_found.fetch_add(1, std::memory_order_release);
  return found;
}

void forget_nn_module_methods() noexcept {
  g_methods.clear();
  g_methods_found.fetch_add(1);
}

size_t running_nn_modules(const PythonRuntime& python, const void* thread, const uint8_t** out,
                          size_t capacity) noexcept {
  size_t count = 0;
  for_each_frame(python, thread, [&](const uint8_t* frame, const uint8_t* code) {
    if (g_methods.of(code, identity_of(python.layout, code)) != Method::kRuns) return true;
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
