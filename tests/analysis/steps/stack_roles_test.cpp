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

}  // namespace
}  // namespace tidemark
