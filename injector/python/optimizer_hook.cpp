#include "injector/python/optimizer_hook.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/marks/step_levels.h"
#include "injector/process/own_scope.h"
#include "injector/python/nn_modules.h"
#include "injector/python/own_code.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

enum class Stage : uint32_t { kIdle, kAsked, kInstalled, kImpossible };
std::atomic<Stage> g_stage{Stage::kIdle};

// Exceptions raised here must not surface in the program.
constexpr char kHook[] = R"(
def install(register, step, due, done, tag):
    def look_through(optimizer):
        found = {}

        # A DTensor holds its shard in another tensor. One storage may hold several parameters.
        def note(tensor, category, parameter):
            tensor = getattr(tensor, "_local_tensor", tensor)
            if tensor is None or not tensor.is_cuda:
                return
            storage = tensor.untyped_storage()
            key = storage.data_ptr()
            owner = id(parameter)
            if key in found and found[key][4] != owner:
                owner = 0
            found[key] = (key, storage.nbytes(), tensor.device.index or 0, category, owner)

        for group in optimizer.param_groups:
            for parameter in group["params"]:
                note(parameter, 1, parameter)
                note(parameter.grad, 2, parameter)
        for parameter, state in optimizer.state.items():
            if isinstance(state, dict):
                for value in state.values():
                    if hasattr(value, "untyped_storage"):
                        note(value, 3, parameter)
        for row in found.values():
            tag(*row)

    def after_step(optimizer, args, kwargs):
        try:
            step()
            if due():
                look_through(optimizer)
                done()
        except Exception:
            pass

    register(after_step)

install(_given, _step, _due, _done, _tag)
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

PythonObject* on_step(PythonObject*, PythonObject*) {
  Mark mark{};
  mark.time_ns = now_ns();
  mark.device = -1;
  mark.name = recorder().intern_string("optimizer step");
  mark.thread = current_thread();
  mark.phase = MarkPhase::kInstant;
  mark.kind = MarkKind::kOptimizerStep;
  if (recorder().record(mark)) step_levels().end_step(MarkKind::kOptimizerStep);
  return python_calls.from_bool(1);
}

PythonObject* on_due(PythonObject*, PythonObject*) {
  const int64_t now = now_ns();
  const bool due =
      recorder().on() && (g_pace.passes.load() < kFirstSteps || now >= g_pace.next_ns.load());
  if (due) {
    g_pace.began_ns.store(now);
    visit_nn_modules();
  }
  return python_calls.from_bool(due ? 1 : 0);
}

PythonObject* on_done(PythonObject*, PythonObject*) {
  const int64_t now = now_ns();
  g_pace.passes.fetch_add(1);
  g_pace.next_ns.store(now + kShare * std::max<int64_t>(now - g_pace.began_ns.load(), 1));
  return python_calls.from_bool(1);
}

PythonObject* on_tag(PythonObject*, PythonObject* arguments) {
  uint64_t numbers[5] = {};
  for (ptrdiff_t i = 0; i < 5; ++i) {
    PythonObject* const item = python_calls.tuple_item(arguments, i);
    if (item != nullptr) numbers[i] = python_calls.to_number(item);
  }
  if (python_calls.error_occurred() != nullptr) {
    python_calls.clear_error();
  } else if (numbers[0] != 0) {
    TensorTag tag{};
    tag.time_ns = now_ns();
    tag.address = numbers[0];
    tag.size_bytes = numbers[1];
    tag.device = static_cast<int64_t>(numbers[2]);
    tag.category = static_cast<Category>(numbers[3]);
    tag.nn_module = owner_of(numbers[4]);
    recorder().record(tag);
  }
  return python_calls.from_bool(1);
}

PythonMethod g_methods[] = {
    {"_step", on_step}, {"_due", on_due}, {"_done", on_done}, {"_tag", on_tag}};

int install(void*) {
  PythonObject* const module =
      python_calls.dict_get(python_calls.modules(), "torch.optim.optimizer");
  PythonObject* const registrar =
      module != nullptr ? python_calls.attribute(module, "register_optimizer_step_post_hook")
                        : nullptr;
  Stage stage = Stage::kIdle;  // not imported yet, or only partly
  if (registrar != nullptr) {
    stage = run_python_lines(kHook, g_methods, registrar) ? Stage::kInstalled : Stage::kImpossible;
    python_calls.unreference(registrar);
  }
  python_calls.clear_error();
  g_stage.store(stage);
  return 0;
}

}  // namespace

void look_for_optimizers(const Options& options) noexcept {
  if (!options.optimizer || g_stage.load() != Stage::kIdle) return;
  if (!find_python_calls()) return;
  g_stage.store(Stage::kAsked);
  if (!ask_python_to_run(install)) g_stage.store(Stage::kIdle);
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
