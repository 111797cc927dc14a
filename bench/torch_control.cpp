// Functions with which torch_bench.py turns parts of the injector on and off. Only the benchmark's
// build of libtidemark.so contains them.
#include "injector/python/stack.h"
#include "injector/torch/bridge_loader.h"
#include "injector/torch/events.h"

using namespace tidemark::injector;

extern "C" {

// 0: nothing, 1: tier 1, 2: both tiers.
__attribute__((visibility("default"))) void tidemark_bench_listen(int tier, int stacks) {
  set_torch_listening(static_cast<TorchListening>(tier), stacks != 0);
}

// Whether stacks name the nn.Module that runs.
__attribute__((visibility("default"))) void tidemark_bench_modules(int on) {
  set_nn_modules(on != 0);
}

// An attached bridge cannot be detached: hold it back until the modes without it are measured.
__attribute__((visibility("default"))) int tidemark_bench_hold_bridge(int hold) {
  static bool held = false;
  if (hold != 0) {
    held = bridge_loaded_not_attached.exchange(false);
  } else if (held) {
    bridge_loaded_not_attached.store(true);
  }
  return held ? 1 : 0;
}

}  // extern "C"
