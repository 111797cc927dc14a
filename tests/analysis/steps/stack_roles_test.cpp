// What the stacks of a program say of its lines.
#include <gtest/gtest.h>

#include "analysis/steps/stack_roles.h"
#include "tests/support/story.h"

namespace tidemark {
namespace {

// Native frames lie among the lines of Python, not always at the same place.
TEST(StackRoles, ALineOfPythonIsOneCaller) {
  const Trace trace([](Story& s, uint32_t) {
    s.alloc(kMiB, s.stack({"forward model.py:1", "_call_impl torch/nn/modules/module.py:1",
                           "call(x) call.cpp:2", "work train.py:10", "main(x) main.cpp:3"}));
    s.alloc(kMiB, s.stack({"forward model.py:2", "_call_impl torch/nn/modules/module.py:1",
                           "work train.py:10", "call(x) call.cpp:2", "main(x) main.cpp:3"}));
    s.alloc(kMiB, s.stack({"forward model.py:2", "_call_impl torch/nn/modules/module.py:1",
                           "work train.py:11", "call(x) call.cpp:2", "main(x) main.cpp:3"}));
  });
  const ProcessModel& process = trace.model().processes[0];
  const StackRoles roles(process);
  const AllocationColumns& all = process.framework[0].allocations;
  EXPECT_NE(roles.caller_of(all.stack(0)), 0U);
  EXPECT_EQ(roles.caller_of(all.stack(0)), roles.caller_of(all.stack(1)));
  EXPECT_NE(roles.caller_of(all.stack(0)), roles.caller_of(all.stack(2)));
}

// Lightning runs the forward pass and the loss in a closure that Adam.step() calls. An optimizer of
// the program's own is called by PyTorch's wrapper.
TEST(StackRoles, ClosuresOfOptimizersTrain) {
  const std::string wrapper = "wrapper torch/optim/optimizer.py:533";
  const Trace trace([&](Story& s, uint32_t) {
    const std::vector<std::string> closure = {"training_step net.py:66", "__call__ closure.py:10",
                                              "step torch/optim/adam.py:240", wrapper,
                                              "fit train.py:12"};
    std::vector<std::string> layer = {"forward torch/nn/modules/linear.py:10",
                                      "_call_impl torch/nn/modules/module.py:1"};
    layer.insert(layer.end(), closure.begin(), closure.end());
    s.alloc(kMiB, s.stack(layer));
    s.alloc(kMiB, s.stack(closure));
    s.alloc(kMiB, s.stack({"closure train.py:8", "decorate_context torch/utils/_contextlib.py:1",
                           "step torch/optim/lbfgs.py:330", wrapper, "fit train.py:12"}));
    s.alloc(kMiB, s.stack({"_multi_tensor_adam torch/optim/adam.py:400",
                           "step torch/optim/adam.py:250", wrapper, "fit train.py:12"}));
    s.alloc(kMiB, s.stack({"step own.py:5", wrapper, "fit train.py:12"}));
  });
  const ProcessModel& process = trace.model().processes[0];
  const StackRoles roles(process);
  std::vector<StackRole> found;
  for (const Allocation& a : process.framework[0].allocations) found.push_back(roles.of(a.stack));
  EXPECT_EQ(found, (std::vector{StackRole::kForward, StackRole::kUser, StackRole::kUser,
                                StackRole::kOptimizer, StackRole::kOptimizer}));
}

}  // namespace
}  // namespace tidemark
