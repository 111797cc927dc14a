// The nn.Modules of the program: an id for each that runs, and its path in the tree of its root.
//
// An nn.Module is known by its address, which the frames that run it tell (walk.h). It gets an id
// at first sight, without the GIL; its class is read from its type. Its path is learnt in a pending
// call: on the main thread, between two instructions, while frames of that thread run it. There the
// tree below the outermost one is visited by reading its dictionaries. No Python code is run, so
// neither the program nor torch.compile can notice it. Roots are kept as weak references.
//
// An address may be used again. A new object of another class gets another id at once. When a root
// is freed, what was in its tree gets new ids; what takes the place of a part of a tree that lives
// on gets one as soon as its path is found to be another one.
#pragma once

#include <cstdint>

#include "injector/process/options.h"
#include "injector/python/own_code.h"
#include "injector/python/runtime.h"

namespace tidemark::injector {

// `python` must live as long as the process. Once per process, and again in a forked child.
void start_nn_modules(const PythonRuntime& python, const Options& options) noexcept;
void reset_nn_modules() noexcept;
// A new recording has other ids.
void clear_nn_modules() noexcept;

// The id of an nn.Module that runs on the calling thread; 0: none can be had.
uint32_t nn_module_id(const void* nn_module) noexcept;
// Of one that is being made. It has no path yet: that is learnt when its tree runs.
uint32_t made_nn_module_id(const void* nn_module) noexcept;

// With the GIL. Visits all known trees, so that owner_of() knows their parameters.
void visit_nn_modules() noexcept;
// The nn.Module that has the parameter, by the address of its object; 0: unknown.
uint32_t owner_of(uint64_t parameter) noexcept;

}  // namespace tidemark::injector
