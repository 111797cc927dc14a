#include "injector/python/nn_modules.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/python/code.h"
#include "injector/python/exit_watch.h"
#include "injector/python/find_symbol.h"
#include "injector/python/memory.h"
#include "injector/python/walk.h"
#include "injector/recorder/hashed_ids.h"
#include "injector/recorder/recorder.h"
#include "proto/base/pages.h"

namespace tidemark::injector {
namespace {

constexpr uint32_t kSlots = 1U << 16;
constexpr uint32_t kMostModules = kSlots / 4 * 3;
// Each may have several stacks, and the dictionary of stacks must not be full of those of a program
// that creates nn.Modules all the time.
constexpr uint32_t kMostIds = 1U << 16;
constexpr uint32_t kParameters = 1U << 16;
constexpr size_t kMaxPath = 512;
constexpr size_t kDeepest = 64;  // levels of a tree
constexpr size_t kMaxRoots = 64;
constexpr size_t kMaxRunning = 128;
constexpr size_t kTypeName = 24;  // of a type

// Read without a lock; written under g_lock. Slots are never given back.
struct Slot {
  std::atomic<uintptr_t> address;
  std::atomic<uintptr_t> type;
  // The recording in the upper half; then the id and, in the lowest bit, whether its path is known.
  std::atomic<uint64_t> state;
  uint32_t root;  // id
  uint32_t pass;  // that visited it last
  uint64_t path_hash;
  uint64_t class_hash;
  bool is_root;
};

// Parameters of the trees that were visited last. Used with the GIL only.
struct Parameter {
  uintptr_t address;
  uint32_t owner;
  uint32_t pass;
};

struct Calls {
  PythonObject* (*instance_dict)(PythonObject*, void*) = nullptr;
  int (*dict_next)(PythonObject*, ptrdiff_t*, PythonObject**, PythonObject**) = nullptr;
  int (*is_subtype)(PythonObject*, PythonObject*) = nullptr;
  PythonObject* (*new_weak)(PythonObject*, PythonObject*) = nullptr;
  int (*weak_get)(PythonObject*, PythonObject**) = nullptr;  // from 3.13 on
  PythonObject* (*weak_object)(PythonObject*) = nullptr;     // before; borrowed
  void (*reference)(PythonObject*) = nullptr;
  PythonObject* dict_type = nullptr;
  PythonObject* none = nullptr;
};

const PythonRuntime* g_python = nullptr;
Calls g_calls;
std::atomic<bool> g_on{false};
Slot* g_slots = nullptr;
Parameter* g_parameters = nullptr;
std::atomic_flag g_lock;
uint32_t g_used = 0;  // slots
std::atomic<uint32_t> g_next_id{0};
std::atomic<bool> g_said_full{false};
uint32_t g_pass = 0;
struct Root {
  PythonObject* weak;
  uint32_t id;
};
Root g_roots[kMaxRoots];
size_t g_root_count = 0;
std::atomic<bool> g_visiting{false};  // a collection of garbage may let other threads run

bool find_calls(Calls& calls) {
  if (!find_symbol(calls.weak_get, "PyWeakref_GetRef"))
    find_symbol(calls.weak_object, "PyWeakref_GetObject");
  return find_symbol(calls.instance_dict, "PyObject_GenericGetDict") &&
         find_symbol(calls.dict_next, "PyDict_Next") &&
         find_symbol(calls.is_subtype, "PyType_IsSubtype") &&
         find_symbol(calls.new_weak, "PyWeakref_NewRef") &&
         find_symbol(calls.reference, "Py_IncRef") && find_symbol(calls.dict_type, "PyDict_Type") &&
         find_symbol(calls.none, "_Py_NoneStruct") &&
         (calls.weak_get != nullptr || calls.weak_object != nullptr);
}

class Locked {
 public:
  // Like the lock of HashedIds: rather lose a name than make the host wait.
  Locked() noexcept {
    constexpr int kCheapTries = 1000;
    constexpr int64_t kPatienceMs = 50;
    int64_t deadline_ms = 0;
    for (int tries = 0; g_lock.test_and_set(std::memory_order_acquire); ++tries) {
      if (tries >= kCheapTries) {
        const int64_t now_ms = monotonic_ms();
        if (deadline_ms == 0) deadline_ms = now_ms + kPatienceMs;
        if (now_ms >= deadline_ms) return;
      }
      sched_yield();
    }
    held_ = true;
  }
  ~Locked() {
    if (held_) g_lock.clear(std::memory_order_release);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  explicit operator bool() const noexcept { return held_; }

 private:
  bool held_ = false;
};

uint64_t recording() {
  return static_cast<uint64_t>(capture_session.load(std::memory_order_relaxed)) << 32;
}
constexpr uint64_t kRecordingBits = ~uint64_t{0xffffffff};
constexpr uint64_t kNamed = 1;
uint32_t id_in(uint64_t state) {
  return static_cast<uint32_t>(state) >> 1;
}

size_t first_slot(uintptr_t address, uint32_t slots) {
  return static_cast<size_t>((address >> 4) * 0x9E3779B97F4A7C15U >> 40) & (slots - 1);
}

// Null: it has none, and no more can be had.
Slot* slot_of(uintptr_t address, bool add) {
  for (size_t i = first_slot(address, kSlots);; i = (i + 1) & (kSlots - 1)) {
    const uintptr_t held = g_slots[i].address.load(std::memory_order_acquire);
    if (held == address) return &g_slots[i];
    if (held != 0) continue;
    if (!add || g_used >= kMostModules) return nullptr;
    ++g_used;
    g_slots[i].address.store(address, std::memory_order_release);
    return &g_slots[i];
  }
}

std::string_view class_text(const void* object) {
  const auto* const type = read_at<const void*>(object, kPythonTypeOffset);
  const auto* const name = read_at<const char*>(type, kTypeName);
  const std::string_view text = name != nullptr ? name : "";
  return text.substr(text.rfind('.') + 1);
}

uint64_t class_hash(std::string_view name) {
  return hash_bytes(name.data(), name.size()).a;
}

// fully_shard() and replicate() give an nn.Module another class, without a change of the object.
bool is_the_same(Slot& slot, const void* object) {
  const auto type = read_at<uintptr_t>(object, kPythonTypeOffset);
  if (slot.type.load(std::memory_order_relaxed) == type) [[likely]]
    return true;
  std::string_view name = class_text(object);
  for (const std::string_view prefix : {"FSDP", "Replicate"}) {
    if (!name.starts_with(prefix) || class_hash(name.substr(prefix.size())) != slot.class_hash)
      continue;
    slot.type.store(type, std::memory_order_relaxed);
    return true;
  }
  return false;
}

// Null: not of this recording, or another object was there.
Slot* known(const void* object) {
  Slot* const slot = slot_of(reinterpret_cast<uintptr_t>(object), false);
  if (slot == nullptr) return nullptr;
  const uint64_t state = slot->state.load(std::memory_order_acquire);
  const bool named = (state & kRecordingBits) == recording() && id_in(state) != 0;
  return named && is_the_same(*slot, object) ? slot : nullptr;
}

uint32_t class_of(const void* object) {
  return recorder().intern_string(class_text(object));
}

// Under the lock. A new id for the object in this slot; 0: there are too many.
uint32_t draw_id(Slot& slot, const void* object) {
  const uint32_t id = g_next_id.load(std::memory_order_relaxed) + 1;
  if (id > kMostIds) {
    if (!g_said_full.exchange(true)) {
      recorder().report(HealthKind::kSourceMissing, kMostIds,
                        "torch: the program creates so many nn.Modules that later ones are not "
                        "recorded");
    }
    return 0;
  }
  g_next_id.store(id, std::memory_order_relaxed);
  slot.state.store(0, std::memory_order_relaxed);
  slot.type.store(read_at<uintptr_t>(object, kPythonTypeOffset), std::memory_order_relaxed);
  slot.root = 0;
  slot.pass = 0;
  slot.path_hash = 0;
  slot.class_hash = class_hash(class_text(object));
  slot.is_root = false;
  return id;
}

// What has a path is of another object, where one is being made.
bool is_of_another(const Slot& slot, bool made) {
  return made && (slot.state.load(std::memory_order_relaxed) & kNamed) != 0;
}

uint32_t add_unnamed(const void* object, bool made) {
  const Locked locked;
  if (!locked) return 0;
  const Slot* const same = known(object);
  if (same != nullptr && !is_of_another(*same, made)) return id_in(same->state.load());
  Slot* const slot = slot_of(reinterpret_cast<uintptr_t>(object), true);
  const uint32_t id = slot != nullptr ? draw_id(*slot, object) : 0;
  if (id == 0 || !recorder().record(NnModule{id, 0, class_of(object), 0})) return 0;
  slot->state.store(recording() | (uint64_t{id} << 1), std::memory_order_release);
  return id;
}

// ---- paths: with the GIL ------------------------------------------------------------------------

struct Tree {
  uint32_t root = 0;
  bool parameters = false;
  char path[kMaxPath];
};

bool is_dict(PythonObject* object) {
  return object != nullptr && g_calls.is_subtype(read_at<PythonObject*>(object, kPythonTypeOffset),
                                                 g_calls.dict_type) != 0;
}

// Wrappers that leave the path of what they wrap unchanged. DataParallel and others that wrap a
// whole model call it "module".
bool is_wrapper_part(std::string_view name, bool only_child, size_t length) {
  return name == "_fsdp_wrapped_module" || name == "_checkpoint_wrapped_module" ||
         name == "_orig_mod" || (name == "module" && only_child && length == 0);
}

// Names the object. 0: it was visited in this pass already, under its first path.
uint32_t name_module(Tree& tree, const void* object, std::string_view path) {
  const Locked locked;
  if (!locked) return 0;
  Slot* slot = known(object);
  const bool fresh = slot == nullptr;
  if (fresh) slot = slot_of(reinterpret_cast<uintptr_t>(object), true);
  if (slot == nullptr || (!fresh && slot->pass == g_pass)) return 0;
  const uint64_t hash = hash_bytes(path.data(), path.size()).a;
  const bool named = !fresh && (slot->state.load() & kNamed) != 0;
  uint32_t id = fresh ? 0 : id_in(slot->state.load());
  // One that was seen alone has found its tree; a part that is run alone keeps its path.
  const bool better = !named || (slot->is_root && !path.empty());
  const bool another = named && !slot->is_root && !path.empty() && slot->path_hash != hash;
  if (fresh || another) id = draw_id(*slot, object);
  if (id == 0) return 0;
  slot->pass = g_pass;
  if (tree.root == 0) tree.root = named && !another ? slot->root : id;
  if (fresh || better || another) {
    slot->root = tree.root;
    slot->is_root = path.empty();
    slot->path_hash = hash;
    if (recorder().record(
            NnModule{id, recorder().intern_string(path), class_of(object), tree.root}))
      slot->state.store(recording() | (uint64_t{id} << 1) | kNamed, std::memory_order_release);
  }
  return id;
}

void note_parameters(PythonObject* parameters, uint32_t owner) {
  ptrdiff_t at = 0;
  PythonObject* name = nullptr;
  PythonObject* value = nullptr;
  while (g_calls.dict_next(parameters, &at, &name, &value) != 0) {
    if (value == nullptr || value == g_calls.none) continue;
    const auto address = reinterpret_cast<uintptr_t>(value);
    size_t i = first_slot(address, kParameters);
    for (size_t tries = 0; tries < 64; ++tries, i = (i + 1) & (kParameters - 1)) {
      Parameter& slot = g_parameters[i];
      if (slot.pass == g_pass && slot.address != address) continue;
      if (slot.pass != g_pass) slot = {address, owner, g_pass};  // else shared: the first one's
      break;
    }
  }
}

void visit(Tree& tree, PythonObject* object, size_t length, size_t depth);

void visit_children(Tree& tree, PythonObject* children, size_t length, size_t depth) {
  ptrdiff_t at = 0;
  PythonObject* key = nullptr;
  PythonObject* value = nullptr;
  size_t count = 0;
  while (g_calls.dict_next(children, &at, &key, &value) != 0) ++count;
  at = 0;
  while (g_calls.dict_next(children, &at, &key, &value) != 0) {
    if (value == nullptr || value == g_calls.none) continue;
    char text[256];
    const std::string_view name = read_python_text(*g_python, key, text, sizeof text);
    size_t end = length;
    if (!is_wrapper_part(name, count == 1, length)) {
      if (length + 1 + name.size() > kMaxPath) continue;
      if (length != 0) tree.path[end++] = '.';
      end = static_cast<size_t>(std::copy(name.begin(), name.end(), tree.path + end) - tree.path);
    }
    g_calls.reference(value);
    visit(tree, value, end, depth + 1);
    python_calls.unreference(value);
  }
}

void visit(Tree& tree, PythonObject* object, size_t length, size_t depth) {
  if (depth > kDeepest) return;
  PythonObject* const members = g_calls.instance_dict(object, nullptr);
  if (members == nullptr) return python_calls.clear_error();
  PythonObject* const children = python_calls.dict_get(members, "_modules");
  // What has no such dictionary is no nn.Module.
  const uint32_t id = is_dict(children) ? name_module(tree, object, {tree.path, length}) : 0;
  if (id != 0) {
    PythonObject* const parameters = python_calls.dict_get(members, "_parameters");
    if (tree.parameters && is_dict(parameters)) note_parameters(parameters, id);
    visit_children(tree, children, length, depth);
  }
  python_calls.unreference(members);
}

// Called by the interpreter when a root is freed: its tree is no more, and other objects may take
// the places of its parts.
PythonObject* on_root_freed(PythonObject*, PythonObject* arguments) {
  const PythonObject* const weak = python_calls.tuple_item(arguments, 0);
  const auto* const root =
      std::find_if(g_roots, g_roots + g_root_count, [&](const Root& r) { return r.weak == weak; });
  if (const Locked locked; locked && root != g_roots + g_root_count) {
    for (size_t i = 0; i < kSlots; ++i) {
      if (g_slots[i].root == root->id) g_slots[i].state.store(0, std::memory_order_relaxed);
    }
  }
  python_calls.clear_error();
  return python_calls.from_bool(1);
}
PythonMethod g_root_freed = {"_root_freed", on_root_freed};
PythonObject* g_callback = nullptr;

void remember_root(PythonObject* object, uint32_t id) {
  if (id == 0 || g_root_count == kMaxRoots) return;
  if (g_callback == nullptr)
    g_callback = python_calls.function_new(&g_root_freed, nullptr, nullptr);
  PythonObject* const weak = g_callback != nullptr ? g_calls.new_weak(object, g_callback) : nullptr;
  if (weak == nullptr) return python_calls.clear_error();
  g_roots[g_root_count++] = {weak, id};
}

// A new reference; null: it is gone.
PythonObject* strong(PythonObject* weak) {
  PythonObject* object = nullptr;
  if (g_calls.weak_get != nullptr) {
    if (g_calls.weak_get(weak, &object) < 0) python_calls.clear_error();
    return object;
  }
  object = g_calls.weak_object(weak);
  if (object == nullptr || object == g_calls.none) return nullptr;
  g_calls.reference(object);
  return object;
}

// Its root's id; 0: its path is not known.
uint32_t root_of(const void* object) {
  const Slot* const slot = known(object);
  return slot != nullptr && (slot->state.load() & kNamed) != 0 ? slot->root : 0;
}

void visit_tree(PythonObject* root, bool parameters) {
  Tree tree;
  tree.parameters = parameters;
  visit(tree, root, 0, 0);
}

// All of them, or only the tree of one.
void visit_roots(uint32_t only, bool parameters) {
  size_t kept = 0;
  for (size_t i = 0; i < g_root_count; ++i) {
    PythonObject* const weak = g_roots[i].weak;
    PythonObject* const object = strong(weak);
    if (object == nullptr) {
      python_calls.unreference(weak);
      continue;
    }
    if (only == 0 || only == root_of(object)) visit_tree(object, parameters);
    g_roots[kept++] = {weak, root_of(object)};  // a new recording has other ids
    python_calls.unreference(object);
  }
  g_root_count = kept;
}

// ---- asking -------------------------------------------------------------------------------------

// A visit comes again only after 300 times the time it took, and if it found nothing to
// visit, after a pause that doubles.
constexpr int64_t kShare = 300;
constexpr int64_t kFirstPauseNs = 1'000'000;
constexpr int64_t kLongestPauseNs = 1'000'000'000;
std::atomic<bool> g_asked{false};
std::atomic<int64_t> g_next_ns{0};
int64_t g_pause_ns = kFirstPauseNs;

void visit_running(const uint8_t* const* running, size_t count) {
  if (g_visiting.exchange(true)) return;
  ++g_pass;
  for (size_t i = count; i > 0; --i) {  // the outermost first
    auto* const object = const_cast<uint8_t*>(running[i - 1]);
    if (const uint32_t root = root_of(object); root != 0) {
      visit_roots(root, false);  // parts may have been added to its tree
    } else {
      visit_tree(object, false);
      remember_root(object, root_of(object));
    }
  }
  g_visiting.store(false);
}

int learn_paths(void*) {
  const uint8_t* running[kMaxRunning];
  size_t count = 0;
  const int64_t began = now_ns();
  {
    const PythonWalk walk(*g_python);
    if (walk.thread() != nullptr && recorder().on() && g_on.load()) {
      count = running_nn_modules(*g_python, walk.thread(), running, kMaxRunning);
    }
  }
  // They stay alive: their frames wait for this function.
  if (count > 0) visit_running(running, count);
  python_calls.clear_error();
  const int64_t now = now_ns();
  g_pause_ns = count > 0 ? kFirstPauseNs : std::min(2 * g_pause_ns, kLongestPauseNs);
  g_next_ns.store(now + std::max(g_pause_ns, kShare * (now - began)));
  g_asked.store(false);
  return 0;
}

void ask_for_paths() {
  if (g_asked.load(std::memory_order_relaxed) || now_ns() < g_next_ns.load()) return;
  if (g_asked.exchange(true)) return;
  if (ask_python_to_run(learn_paths)) return;
  g_next_ns.store(now_ns() + kLongestPauseNs);
  g_asked.store(false);
}

}  // namespace

void start_nn_modules(const PythonRuntime& python, const Options& options) noexcept {
  Calls calls;
  if (!options.modules || !python.layout_known || python.layout.frame_locals == 0 ||
      !find_python_calls() || !find_calls(calls)) {
    return;
  }
  g_python = &python;
  g_calls = calls;
  if (g_slots == nullptr) {
    g_slots = static_cast<Slot*>(map_pages(kSlots * sizeof(Slot)));
    g_parameters = static_cast<Parameter*>(map_pages(kParameters * sizeof(Parameter)));
  }
  g_on.store(g_slots != nullptr && g_parameters != nullptr);
}

void reset_nn_modules() noexcept {
  g_on.store(false);
  g_lock.clear();
  g_asked.store(false);
  g_visiting.store(false);
  forget_nn_module_methods();
}

void clear_nn_modules() noexcept {
  g_next_id.store(0);
  g_said_full.store(false);
  g_next_ns.store(0);
}

uint32_t made_nn_module_id(const void* nn_module) noexcept {
  if (!g_on.load(std::memory_order_acquire)) return 0;
  const Slot* const slot = known(nn_module);
  if (slot == nullptr || is_of_another(*slot, true)) return add_unnamed(nn_module, true);
  return id_in(slot->state.load(std::memory_order_relaxed));
}

uint32_t nn_module_id(const void* nn_module) noexcept {
  if (!g_on.load(std::memory_order_acquire)) return 0;
  const Slot* const slot = known(nn_module);
  uint32_t id = 0;
  bool named = false;
  if (slot != nullptr) [[likely]] {
    const uint64_t state = slot->state.load(std::memory_order_relaxed);
    id = id_in(state);
    named = (state & kNamed) != 0;
  } else {
    id = add_unnamed(nn_module, false);
  }
  if (!named && id != 0) [[unlikely]]
    ask_for_paths();
  return id;
}

void visit_nn_modules() noexcept {
  if (!g_on.load() || !recorder().on() || g_visiting.exchange(true)) return;
  ++g_pass;
  visit_roots(0, true);
  python_calls.clear_error();
  g_visiting.store(false);
}

uint32_t owner_of(uint64_t parameter) noexcept {
  if (!g_on.load() || parameter == 0) return 0;
  size_t i = first_slot(parameter, kParameters);
  for (size_t tries = 0; tries < 64; ++tries, i = (i + 1) & (kParameters - 1)) {
    const Parameter& slot = g_parameters[i];
    if (slot.pass != g_pass) return 0;
    if (slot.address == parameter) return slot.owner;
  }
  return 0;
}

}  // namespace tidemark::injector
