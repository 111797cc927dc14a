#include "analysis/steps/stack_roles.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "analysis/names/program_places.h"

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What one frame indicates. The sign latest in this list wins among a stack's frames.
enum class Sign : uint8_t {
  kNothing,
  kLoading,
  kForward,
  kModuleCall,
  kModuleSetUp,
  kData,
  kCommunication,
  kSharding,
  kBackward,
  kOptimizer,
  kOptimizerInit,
  kSaving,
};

bool saves(std::string_view function, std::string_view file) {
  if (contains(file, "torch/serialization.py")) return contains(function, "save");
  if (contains(file, "torch/distributed/checkpoint/")) return !contains(function, "load");
  return function == "state_dict" || function == "save_checkpoint" ||
         function == "_save_checkpoint" || function == "save_pretrained";
}

// Also of the program's own functions, if their names say that they load a model: most load data.
bool loads(std::string_view function, std::string_view file) {
  constexpr std::array<std::string_view, 7> kModel = {"state_dict", "weight",     "model", "param",
                                                      "checkpoint", "pretrained", "ckpt"};
  if (contains(file, "safetensors/") || contains(file, "torch/serialization.py")) return true;
  if (function == "from_pretrained") return true;
  if (!function.starts_with("load") && !function.starts_with("_load")) return false;
  return std::any_of(kModel.begin(), kModel.end(),
                     [&](std::string_view part) { return contains(function, part); });
}

// FSDP's own part of each parameter; what it gathers and exchanges is communication.
bool shards_parameters(std::string_view function, std::string_view file) {
  return contains(file, "fsdp") &&
         (function == "_init_sharded_param" || function == "flatten_tensors" ||
          function == "_shard_handle" || function == "shard");
}

bool makes_optimizer_state(std::string_view function) {
  return function == "_init_group" || function == "_init_state" || function == "init_state" ||
         function == "_initialize_state";
}

// Of a program's own optimizer, whose constructor makes its states: optimizers.py, adamw.py.
bool is_named_for_optimizer(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  return (name.starts_with("optim") && !name.starts_with("optimized")) || name.starts_with("adam");
}

// Recordings name functions in full, "Module._apply", snapshots do not.
std::string_view last_part(std::string_view function) {
  const size_t dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

Sign python_sign(std::string_view qualified, std::string_view file) {
  const std::string_view function = last_part(qualified);
  if (saves(function, file)) return Sign::kSaving;
  if (contains(file, "torch/optim/")) {
    return makes_optimizer_state(function) ? Sign::kOptimizerInit : Sign::kOptimizer;
  }
  if (function == "__init__" && is_named_for_optimizer(file)) return Sign::kOptimizerInit;
  if (function == "backward") return Sign::kBackward;  // also of a function defined by the program
  if (contains(file, "torch/autograd/")) {
    const bool runs = contains(function, "backward") || function == "grad";
    return runs ? Sign::kBackward : Sign::kNothing;
  }
  // FSDP reduces the last gradients after the last node of the graph.
  if (contains(file, "fsdp") && contains(function, "post_backward")) return Sign::kBackward;
  // The forward pass of a wrapped model goes through distributed/: only allocations made there
  // directly are communication.
  if (contains(file, "torch/distributed/") && !contains(function, "forward") &&
      !contains(file, "run.py") && !contains(file, "elastic")) {
    return shards_parameters(function, file) ? Sign::kSharding : Sign::kCommunication;
  }
  if (contains(file, "torch/nn/parallel/distributed.py") &&
      (function == "_ddp_init_helper" || function == "_pre_forward")) {
    return Sign::kCommunication;  // the buckets of gradients
  }
  // Copies of the weights that DataParallel makes on each device, and each device's part of a
  // batch.
  if (contains(file, "torch/nn/parallel/") &&
      (function == "replicate" || contains(function, "broadcast_coalesced"))) {
    return Sign::kSharding;
  }
  if (contains(file, "data_parallel.py") && contains(function, "scatter")) return Sign::kData;
  if (contains(file, "torch/utils/data/")) return Sign::kData;
  if (contains(file, "torch/nn/modules/module.py")) {
    if (function == "_apply" || function == "cuda" || function == "to") return Sign::kModuleSetUp;
    if (contains(function, "_call_impl")) return Sign::kModuleCall;
  }
  if (contains(file, "torch/nn/modules/") && function == "__init__") return Sign::kModuleSetUp;
  if (contains(file, "torch/nn/functional.py")) return Sign::kModuleCall;
  // A program may also call a module's forward() itself. In a compiled backward pass it is only the
  // name of the code that was differentiated.
  if (function == "forward") return Sign::kForward;
  return loads(function, file) ? Sign::kLoading : Sign::kNothing;
}

Sign native_sign(std::string_view function) {
  if (contains(function, "torch::autograd::Engine")) return Sign::kBackward;
  if (contains(function, "c10d::")) return Sign::kCommunication;
  return Sign::kNothing;
}

// Whether blocks were freed in the history and none of them has a stack.
bool freed_lack_stacks(const ProcessModel& process) {
  bool any_freed = false;
  for (const AllocationHistory& model : process.framework) {
    for (const Allocation& a : model.allocations) {
      if (a.seeded || a.release == kNever) continue;
      any_freed = true;
      if (a.stack != 0) return false;
    }
  }
  return any_freed;
}

StackRole role_of(Sign sign) {
  constexpr std::array<StackRole, 12> kRoles = {
      StackRole::kUser,          StackRole::kLoading,       StackRole::kForward,
      StackRole::kForward,       StackRole::kModuleSetUp,   StackRole::kData,
      StackRole::kCommunication, StackRole::kModuleSetUp,   StackRole::kBackward,
      StackRole::kOptimizer,     StackRole::kOptimizerInit, StackRole::kSaving,
  };
  return kRoles[static_cast<size_t>(sign)];
}

}  // namespace

StackRole role_without_frames(const ProcessModel& process) {
  const Dictionary& names = process.names;
  bool python = false;
  for (uint32_t f = 0; f < names.frame_count() && !python; ++f) {
    python = names.string(names.frame(f).file).ends_with(".py");
  }
  return python && !freed_lack_stacks(process) ? StackRole::kBackward : StackRole::kNone;
}

StackRoles::StackRoles(const ProcessModel& process) {
  const Dictionary& names = process.names;
  // A stack's parent may have any id: find the signs of single frames first, then memoize each
  // chain.
  const size_t count = names.stack_count();
  std::vector<Sign> sign(count, Sign::kNothing);
  std::vector<uint8_t> done(count, 0);
  std::vector<bool> in_step(count, false);
  callers_.assign(count, 0);
  std::vector<uint32_t> chain;
  for (uint32_t id = 1; id < count; ++id) {
    chain.clear();
    uint32_t at = id;
    for (; at != 0 && at < count && done[at] == 0; at = names.stack(at).parent) {
      chain.push_back(at);
      done[at] = 1;
    }
    Sign outer = at != 0 && at < count ? sign[at] : Sign::kNothing;
    bool steps = at != 0 && at < count && in_step[at];
    uint32_t caller = at != 0 && at < count ? callers_[at] : 0;
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      const Frame& f = names.frame(names.stack(*it).frame);
      const std::string_view file = names.string(f.file);
      const bool is_python = file.ends_with(".py");
      // A node of autograd's graph replaces the frames of the backward pass, which has no Python
      // frames.
      const Sign own = f.kind == FrameKind::kAutograd ? Sign::kBackward
                       : is_python                    ? python_sign(names.string(f.function), file)
                                                      : native_sign(names.string(f.function));
      // The program's code that an optimizer of PyTorch calls in its step is a closure, which runs
      // the model and its backward pass. One of the program's own is called by optimizer.py.
      const bool of_torch = contains(file, "torch/");
      if (steps && is_python && !of_torch && outer == Sign::kOptimizer) outer = Sign::kNothing;
      steps = contains(file, "torch/optim/") ? !file.ends_with("optimizer.py")
                                             : steps && (of_torch || !is_python);
      in_step[*it] = steps;
      // Code inside a recomputed or hooked module still belongs to the outer phase, except that a
      // module's call inside a backward pass is a repeated forward pass.
      outer = own == Sign::kModuleCall && outer == Sign::kBackward ? own : std::max(own, outer);
      sign[*it] = outer;
      if (caller == 0 && (own == Sign::kModuleCall || own == Sign::kForward)) {
        const uint32_t parent = names.stack(*it).parent;
        caller = parent != 0 ? parent : *it;
      }
      callers_[*it] = caller;
    }
  }
  unite_callers(names);
  roles_.resize(std::max<size_t>(count, 1));
  for (size_t id = 0; id < count; ++id) roles_[id] = role_of(sign[id]);
  roles_[0] = role_without_frames(process);
}

// Snapshots with native frames place these differently among the lines of Python from one call to
// the next.
void StackRoles::unite_callers(const Dictionary& names) {
  const Places places(names);
  std::unordered_map<uint32_t, uint32_t> first;  // by place
  for (uint32_t& caller : callers_) {
    const uint32_t place = places.of(caller);
    if (place != 0) caller = first.try_emplace(place, caller).first->second;
    if (caller == 0 || caller_frames_.contains(caller)) continue;
    uint32_t at = caller;
    while (at != 0 && names.frame(names.stack(at).frame).kind == FrameKind::kNative) {
      at = names.stack(at).parent;
    }
    caller_frames_[caller] = at == 0 ? 0 : names.stack(at).frame;
  }
}

}  // namespace tidemark
