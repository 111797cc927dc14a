#include "injector/python/optimizer_hook.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/process/own_scope.h"
#include "injector/python/find_symbol.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

using Object = void;

// CPython's declarations, unchanged since 3.0.
struct MethodDefinition {
  const char* name;
  Object* (*call)(Object* self, Object* arguments);
  int flags;
  const char* documentation;
};
constexpr int kVariableArguments = 1;
constexpr int kFileInput = 257;

struct PythonApi {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // may be missing
  int (*add_pending_call)(int (*)(void*), void*) = nullptr;
  Object* (*modules)() = nullptr;                       // borrowed
  Object* (*dict_get)(Object*, const char*) = nullptr;  // borrowed
  Object* (*dict_new)() = nullptr;
  int (*dict_set)(Object*, const char*, Object*) = nullptr;
  Object* (*builtins)() = nullptr;  // borrowed
  Object* (*attribute)(Object*, const char*) = nullptr;
  Object* (*function_new)(MethodDefinition*, Object*, Object*) = nullptr;
  Object* (*compile)(const char*, const char*, int) = nullptr;
  Object* (*evaluate)(Object*, Object*, Object*) = nullptr;
  Object* (*tuple_item)(Object*, ptrdiff_t) = nullptr;  // borrowed
  unsigned long long (*to_number)(Object*) = nullptr;
  Object* (*from_bool)(long) = nullptr;
  void (*unreference)(Object*) = nullptr;
  void (*clear_error)() = nullptr;
  Object* (*error_occurred)() = nullptr;
};
PythonApi g_api;

enum class Stage : uint32_t { kIdle, kAsked, kInstalled, kImpossible };
std::atomic<Stage> g_stage{Stage::kIdle};

bool find_api() {
  PythonApi api;
  const bool all = find_symbol(api.is_initialized, "Py_IsInitialized") &&
                   find_symbol(api.add_pending_call, "Py_AddPendingCall") &&
                   find_symbol(api.modules, "PyImport_GetModuleDict") &&
                   find_symbol(api.dict_get, "PyDict_GetItemString") &&
                   find_symbol(api.dict_new, "PyDict_New") &&
                   find_symbol(api.dict_set, "PyDict_SetItemString") &&
                   find_symbol(api.builtins, "PyEval_GetBuiltins") &&
                   find_symbol(api.attribute, "PyObject_GetAttrString") &&
                   find_symbol(api.function_new, "PyCFunction_NewEx") &&
                   find_symbol(api.compile, "Py_CompileString") &&
                   find_symbol(api.evaluate, "PyEval_EvalCode") &&
                   find_symbol(api.tuple_item, "PyTuple_GetItem") &&
                   find_symbol(api.to_number, "PyLong_AsUnsignedLongLong") &&
                   find_symbol(api.from_bool, "PyBool_FromLong") &&
                   find_symbol(api.unreference, "Py_DecRef") &&
                   find_symbol(api.clear_error, "PyErr_Clear") &&
                   find_symbol(api.error_occurred, "PyErr_Occurred");
  if (!find_symbol(api.is_finalizing, "Py_IsFinalizing"))
    find_symbol(api.is_finalizing, "_Py_IsFinalizing");
  if (all) g_api = api;
  return all;
}

// An interpreter that has ended, or is about to, must not be called: it would crash.
bool takes_calls() {
  return g_api.is_initialized() != 0 &&
         (g_api.is_finalizing == nullptr || g_api.is_finalizing() == 0);
}

// Exceptions raised here must not surface in the program.
constexpr char kHook[] = R"(
def install(register, step, due, done, tag):
    def tag_tensor(tensor, category):
        if tensor is not None and tensor.is_cuda:
            storage = tensor.untyped_storage()
            tag(storage.data_ptr(), storage.nbytes(), tensor.device.index or 0, category)

    def look_through(optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                tag_tensor(parameter, 1)
                tag_tensor(parameter.grad, 2)
        for state in optimizer.state.values():
            if isinstance(state, dict):
                for value in state.values():
                    if hasattr(value, "untyped_storage"):
                        tag_tensor(value, 3)

    def after_step(optimizer, args, kwargs):
        try:
            step()
            if due():
                look_through(optimizer)
                done()
        except Exception:
            pass

    register(after_step)

install(_register, _step, _due, _done, _tag)
)";

// The first steps show all tensors. After that the tensors are visited again only when a visit
// costs less than 1 / kShare of the time since the last one.
constexpr uint32_t kFirstSteps = 3;
constexpr int64_t kShare = 2000;
struct Pace {
  std::atomic<uint32_t> passes{0};
  std::atomic<int64_t> next_ns{0};
  std::atomic<int64_t> began_ns{0};
};
Pace g_pace;

Object* on_step(Object*, Object*) {
  Mark mark{};
  mark.time_ns = now_ns();
  mark.device = -1;
  mark.name = recorder().intern_string("optimizer step");
  mark.thread = current_thread();
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kOptimizerStep;
  recorder().record(mark);
  return g_api.from_bool(1);
}

Object* on_due(Object*, Object*) {
  const int64_t now = now_ns();
  const bool due =
      recorder().on() && (g_pace.passes.load() < kFirstSteps || now >= g_pace.next_ns.load());
  if (due) g_pace.began_ns.store(now);
  return g_api.from_bool(due ? 1 : 0);
}

Object* on_done(Object*, Object*) {
  const int64_t now = now_ns();
  g_pace.passes.fetch_add(1);
  g_pace.next_ns.store(now + kShare * std::max<int64_t>(now - g_pace.began_ns.load(), 1));
  return g_api.from_bool(1);
}

Object* on_tag(Object*, Object* arguments) {
  uint64_t numbers[4] = {};
  for (ptrdiff_t i = 0; i < 4; ++i) {
    Object* const item = g_api.tuple_item(arguments, i);
    if (item != nullptr) numbers[i] = g_api.to_number(item);
  }
  if (g_api.error_occurred() != nullptr) {
    g_api.clear_error();
  } else if (numbers[0] != 0) {
    TensorTag tag{};
    tag.time_ns = now_ns();
    tag.address = numbers[0];
    tag.size_bytes = numbers[1];
    tag.device = static_cast<int64_t>(numbers[2]);
    tag.category = static_cast<Category>(numbers[3]);
    recorder().record(tag);
  }
  return g_api.from_bool(1);
}

MethodDefinition g_methods[] = {{"_step", on_step, kVariableArguments, nullptr},
                                {"_due", on_due, kVariableArguments, nullptr},
                                {"_done", on_done, kVariableArguments, nullptr},
                                {"_tag", on_tag, kVariableArguments, nullptr}};

bool put(Object* globals, const char* name, Object* value) {
  if (value == nullptr) return false;
  const bool stored = g_api.dict_set(globals, name, value) == 0;
  g_api.unreference(value);
  return stored;
}

bool run_hook(Object* registrar) {
  Object* const globals = g_api.dict_new();
  if (globals == nullptr) return false;
  bool ready = g_api.dict_set(globals, "__builtins__", g_api.builtins()) == 0 &&
               g_api.dict_set(globals, "_register", registrar) == 0;
  for (MethodDefinition& method : g_methods) {
    ready = ready && put(globals, method.name, g_api.function_new(&method, nullptr, nullptr));
  }
  Object* const code = ready ? g_api.compile(kHook, "<tidemark>", kFileInput) : nullptr;
  Object* const result = code != nullptr ? g_api.evaluate(code, globals, globals) : nullptr;
  if (result != nullptr) g_api.unreference(result);
  if (code != nullptr) g_api.unreference(code);
  g_api.unreference(globals);
  return result != nullptr;
}

// Runs on the main thread with the GIL, between two instructions of the running program.
int install(void*) {
  Object* const module = g_api.dict_get(g_api.modules(), "torch.optim.optimizer");
  Object* const registrar =
      module != nullptr ? g_api.attribute(module, "register_optimizer_step_post_hook") : nullptr;
  Stage stage = Stage::kIdle;  // not imported yet, or only partly
  if (registrar != nullptr) {
    stage = run_hook(registrar) ? Stage::kInstalled : Stage::kImpossible;
    g_api.unreference(registrar);
  }
  g_api.clear_error();
  g_stage.store(stage);
  return 0;
}

}  // namespace

void look_for_optimizers(const Options& options) noexcept {
  if (!options.optimizer || g_stage.load() != Stage::kIdle) return;
  if (g_api.add_pending_call == nullptr && !find_api()) {
    g_stage.store(Stage::kImpossible);
    return;
  }
  if (!takes_calls()) return;
  g_stage.store(Stage::kAsked);
  if (g_api.add_pending_call(install, nullptr) != 0) g_stage.store(Stage::kIdle);
}

void restart_optimizer_hook() noexcept {
  g_pace.passes.store(0);
  g_pace.next_ns.store(0);
}

void reset_optimizer_hook() noexcept {
  // The hook that the parent installed keeps working in a forked child; a pending call does not.
  if (g_stage.load() == Stage::kAsked) g_stage.store(Stage::kIdle);
  g_pace.passes.store(0);
}

}  // namespace tidemark::injector
