#include "injector/python/stack.h"

#include <sys/prctl.h>

#include <atomic>
#include <cstring>
#include <new>

#include "injector/process/complain.h"
#include "injector/process/own_scope.h"
#include "injector/python/code.h"
#include "injector/python/exit_watch.h"
#include "injector/python/gil.h"
#include "injector/python/nn_modules.h"
#include "injector/python/walk.h"
#include "injector/recorder/recorder.h"
#include "injector/stacks/autograd_node.h"

namespace tidemark::injector {
namespace {

enum class Way : uint32_t {
  kUnknown,   // no interpreter yet
  kUntested,  // the layout is known but not yet checked against live frames
  kWalk,
  kGil,
  kNone,
};

constexpr uint32_t kStacksLog2 = 18;

PythonRuntime g_python;  // written once, before g_way leaves kUnknown
std::atomic<Way> g_way{Way::kUnknown};
std::atomic<bool> g_finding{false};
HashedIds g_stacks;  // walked frames to stack id; the seed separates recordings
bool g_have_table = false;
std::atomic<bool> g_modules{false};  // whether stacks name the nn.Module that runs

bool with_modules() noexcept {
  return g_modules.load(std::memory_order_relaxed);
}

// The first thread with frames decides.
Way test_layout(const void* thread) noexcept {
  switch (check_python_layout(g_python, thread)) {
    case LayoutCheck::kNothingToSee:
      return Way::kUntested;
    case LayoutCheck::kRight:
      g_way.store(Way::kWalk, std::memory_order_release);
      return Way::kWalk;
    case LayoutCheck::kWrong:
      break;
  }
  const Way other = find_python_api() ? Way::kGil : Way::kNone;
  recorder().report(
      HealthKind::kSourceDisabled, 0,
      "python: the frames of this interpreter have an unknown layout; stacks need the GIL");
  g_way.store(other, std::memory_order_release);
  return other;
}

FrameKey key_of(const PythonFrame& frame) noexcept {
  char text[512];
  const auto intern = [&](size_t offset) {
    const void* object = nullptr;
    std::memcpy(&object, frame.code + offset, sizeof object);
    return recorder().intern_string(read_python_text(g_python, object, text, sizeof text));
  };
  FrameKey key;
  key.kind = FrameKind::kPython;
  key.function = intern(g_python.layout.code_name);
  key.file = intern(g_python.layout.code_filename);
  key.line = python_line(g_python, frame.code, frame.unit);
  return key;
}

// For a thread that Python does not know: its autograd node, or at least its name.
uint32_t stack_without_python() noexcept {
  const AutogradNode node = current_autograd_node();
  const char* const type = node.type;
  const uint32_t nn_module = with_modules() ? nn_module_of(node) : 0;
  Hasher hasher(capture_session.load(std::memory_order_relaxed));
  hasher.take(reinterpret_cast<uintptr_t>(type), type != nullptr ? nn_module : current_thread());
  return g_stacks.find_or_add(hasher.finish(), [&]() -> uint32_t {
    char name[256] = {};
    FrameKey key;
    if (type != nullptr) {
      key.kind = FrameKind::kAutograd;
      key.function = recorder().intern_string(autograd_type_name(type, name, sizeof name));
    } else {
      ::prctl(PR_GET_NAME, name);
      key.kind = FrameKind::kThread;
      key.function = recorder().intern_string(name);
    }
    return recorder().intern_stack({&key, 1}, nn_module);
  });
}

// The nn.Module that runs or is made, or else whose backward pass runs. Nodes that the forward pass
// makes meanwhile belong to it.
uint32_t module_of(const PythonFrames& walked) noexcept {
  if (!with_modules()) return 0;
  if (walked.nn_module == nullptr) {
    const AutogradNode node = current_autograd_node();
    if (node.type != nullptr) return nn_module_of(node);
    note_forward(0);  // what a program computes outside of its model belongs to none
    return 0;
  }
  const uint32_t id =
      walked.makes ? made_nn_module_id(walked.nn_module) : nn_module_id(walked.nn_module);
  note_forward(walked.makes ? 0 : id);
  return id;
}

// A stack that was not seen before may show how to see an nn.Module.
uint32_t intern_walked(const void* thread, PythonFrames& walked) noexcept {
  uint32_t nn_module = module_of(walked);
  HashKey key = nn_module != 0 ? extended(walked.key, nn_module) : walked.key;
  if (const uint32_t known = g_stacks.find(key); known != 0) return known;
  if (with_modules() && find_nn_module_methods(g_python, thread)) {
    walk_python(g_python, thread, capture_session.load(std::memory_order_relaxed), walked);
    nn_module = module_of(walked);
    key = nn_module != 0 ? extended(walked.key, nn_module) : walked.key;
  }
  return g_stacks.find_or_add(key, [&]() -> uint32_t {
    FrameKey keys[kMaxPythonFrames];
    size_t count = 0;
    each_python_frame(walked, [&](const PythonFrame& frame) {
      keys[count++] = key_of(frame);
      return true;
    });
    return recorder().intern_stack({keys, count}, nn_module);
  });
}

uint32_t stack_with_gil(const void* thread) noexcept {
  if (thread == nullptr) return stack_without_python();
  FrameKey keys[kMaxPythonFrames];
  const size_t count = python_frames_with_gil(keys, kMaxPythonFrames);
  return count > 0 ? recorder().intern_stack({keys, count}) : stack_without_python();
}

Way way_for(const void* thread) noexcept {
  const Way way = g_way.load(std::memory_order_acquire);
  return way == Way::kUntested && thread != nullptr ? test_layout(thread) : way;
}

// Only by the thread that has set g_finding.
Way find_way(const Options& options) noexcept {
  PythonRuntime found;
  if (!find_python(found) || !watch_python_exit()) return Way::kUnknown;
  if (!g_have_table) g_have_table = g_stacks.create(kStacksLog2);
  if (!g_have_table) return Way::kUnknown;
  g_python = found;
  find_autograd();
  g_modules = options.modules;
  start_nn_modules(g_python, options);
  Way way = found.layout_known ? Way::kUntested : Way::kGil;
  if (!found.layout_known) {
    recorder().report(HealthKind::kSourceDisabled, static_cast<uint64_t>(found.minor),
                      "python: this version is not known; stacks need the GIL");
  }
  if (options.python_gil) way = Way::kGil;
  return way == Way::kGil && !find_python_api() ? Way::kNone : way;
}

}  // namespace

void find_python_stacks(const Options& options) noexcept {
  const auto unknown = [] { return g_way.load(std::memory_order_acquire) == Way::kUnknown; };
  if (!unknown() || g_finding.exchange(true)) return;
  if (unknown()) g_way.store(find_way(options), std::memory_order_release);
  g_finding.store(false);
}

void set_nn_modules(bool on) noexcept {
  g_modules.store(on);
}

void clear_python_stacks() noexcept {
  if (g_have_table) g_stacks.clear();
  clear_nn_modules();
  clear_forward_notes();
}

void reset_python_stacks() noexcept {
  // The parent may have been adding an entry, or looking, when the child was forked.
  g_way.store(Way::kUnknown);
  g_finding.store(false);
  g_have_table = false;
  reset_python_exit_watch();
  reset_nn_modules();
  new (&g_stacks) HashedIds();
}

uint32_t capture_python_stack(bool may_take_gil) noexcept {
  if (g_way.load(std::memory_order_acquire) == Way::kUnknown) return 0;
  const PythonWalk walk(g_python);
  const void* const thread = walk.thread();
  const Way way = way_for(thread);
  if (way == Way::kGil) return may_take_gil ? stack_with_gil(thread) : 0;
  if (way == Way::kNone) return 0;
  if (thread == nullptr || way != Way::kWalk) return stack_without_python();
  PythonFrames* const walked = frames_of(walk.writer());
  const bool found =
      walked != nullptr &&
      walk_python(g_python, thread, capture_session.load(std::memory_order_relaxed), *walked);
  return found ? intern_walked(thread, *walked) : stack_without_python();
}

size_t append_python_frames(FrameKey* frames, size_t count, size_t capacity,
                            uint32_t* nn_module) noexcept {
  if (g_way.load(std::memory_order_acquire) == Way::kUnknown) return count;
  const PythonWalk walk(g_python);
  const void* const thread = walk.thread();
  if (thread == nullptr || way_for(thread) != Way::kWalk) {
    if (nn_module != nullptr && with_modules()) *nn_module = nn_module_of(current_autograd_node());
    return count;
  }
  PythonFrames* const walked = frames_of(walk.writer());
  if (walked == nullptr || !walk_python(g_python, thread, 0, *walked)) return count;
  if (nn_module != nullptr && with_modules()) {
    if (walked->nn_module == nullptr && find_nn_module_methods(g_python, thread)) {
      walk_python(g_python, thread, 0, *walked);
    }
    *nn_module = module_of(*walked);
  }
  each_python_frame(*walked, [&](const PythonFrame& frame) {
    if (count == capacity) return false;
    frames[count++] = key_of(frame);
    return true;
  });
  return count;
}

}  // namespace tidemark::injector
