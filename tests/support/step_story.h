// Programs whose loops are told line by line, and the steps that are found in them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/story.h"

namespace tidemark {

inline const AllocationHistory& framework(const Trace& trace) {
  return trace.model().processes[0].framework[0];
}

inline Steps found_in(const ProcessModel& process, const AllocationHistory& model) {
  return find_steps(process, model, StackRoles(process));
}

inline constexpr const char* kMainOfTrain = "<module> train.py:90";

// A program with the stacks of a real one: main calls train, whose loop calls the model's layers,
// the backward pass and the optimizer. The history has no marks.
class Looping {
 public:
  explicit Looping(Story& s) : s_(s) {}

  // Layers keep their activations if they are to be followed by a backward pass.
  std::vector<uint64_t> forward(int line, bool keep = true) {
    std::vector<uint64_t> kept;
    for (int layer = 0; layer < 12; ++layer) {
      for (const int in_layer : {7, 8}) {
        const uint64_t a = s_.alloc(
            kMiB, s_.stack({"forward model.py:" + std::to_string(in_layer),
                            "_call_impl torch/nn/modules/module.py:1500", "forward model.py:20",
                            "_call_impl torch/nn/modules/module.py:1500", at(line), kMain}));
        if (keep) kept.push_back(a);
        if (!keep) s_.free(a);
      }
    }
    return kept;
  }
  // Frees what the forward pass kept, and leaves gradients.
  std::vector<uint64_t> backward(const std::vector<uint64_t>& kept, bool first) {
    std::vector<uint64_t> gradients;
    for (size_t i = 0; i < kept.size(); ++i) {
      const uint64_t a = s_.alloc(kMiB / 2, 0);
      first&& i % 2 == 0 ? gradients.push_back(a) : s_.free(a);
      s_.free(kept[i]);
    }
    return gradients;
  }
  void optimizer(int line) {
    for (int i = 0; i < 6; ++i) {
      s_.free(s_.alloc(kMiB, s_.stack({"_multi_tensor_adam torch/optim/adam.py:400",
                                       "step torch/optim/adam.py:200", at(line), kMain})));
    }
  }
  void step(int micro_batches, bool optimizer_allocates) {
    std::vector<uint64_t> gradients;
    for (int i = 0; i < micro_batches; ++i) {
      const uint64_t input = s_.alloc(2 * kMiB, s_.stack({at(12), kMain}));
      const auto made = backward(forward(14), i == 0);
      gradients.insert(gradients.end(), made.begin(), made.end());
      s_.free(input);
    }
    if (optimizer_allocates) optimizer(18);
    for (const uint64_t g : gradients) s_.free(g);
  }
  void validate() {
    for (int i = 0; i < 3; ++i) forward(31, false);
  }

 private:
  static inline constexpr const char* kMain = kMainOfTrain;
  static std::string at(int line) { return "train train.py:" + std::to_string(line); }

  Story& s_;
};

template <typename Tell>
Steps steps_told(Tell&& tell) {
  const Trace trace([&](Story& s, uint32_t) { tell(s); });
  return found_in(trace.model().processes[0], framework(trace));
}

}  // namespace tidemark
