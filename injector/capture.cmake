# What listens: CUPTI, NVML, stacks, owners, the process itself. A library of its own, so that tests
# link it; libtidemark.so is the two together.
add_library(tidemark_capture STATIC
  array_size.cpp
  capturing.cpp
  cfi_step.cpp
  cfi_tables.cpp
  control_server.cpp
  control_verbs.cpp
  cupti_callbacks.cpp
  cupti_kernels.cpp
  cupti_loader.cpp
  driver_decode_objects.cpp
  driver_decode_plain.cpp
  driver_events.cpp
  driver_objects.cpp
  driver_queries.cpp
  elf_facts.cpp
  environment.cpp
  live_reading.cpp
  modules.cpp
  nccl/operations.cpp
  nccl/wiring.cpp
  nvml_library.cpp
  nvml_sampler.cpp
  options.cpp
  own_scope.cpp
  owner.cpp
  process_info.cpp
  python/optimizer_hook.cpp
  python/python_code.cpp
  python/python_gil.cpp
  python/python_layout.cpp
  python/python_runtime.cpp
  python/python_stack.cpp
  python/python_walk.cpp
  rule_cache.cpp
  sampling.cpp
  torch/autograd_node.cpp
  torch/bridge_loader.cpp
  torch/got_slot.cpp
  torch/torch_events.cpp
  torch/torch_hooks.cpp
  unwinder.cpp)
tidemark_target(tidemark_capture)
target_compile_options(tidemark_capture PRIVATE ${TIDEMARK_GUEST_OPTIONS})
target_compile_definitions(tidemark_capture PRIVATE TIDEMARK_VERSION="${PROJECT_VERSION}")
target_link_libraries(tidemark_capture PUBLIC tidemark_recorder tidemark_bridge)

# The guest itself. nodelete: its threads and the driver's callbacks run in it until the end.
if(NOT TARGET tidemark)
  add_library(tidemark SHARED
    glibc_floor.cpp injection.cpp nccl/plugin.cpp nvtx/nvtx_ranges.cpp)
  tidemark_target(tidemark)
  target_compile_options(tidemark PRIVATE ${TIDEMARK_GUEST_OPTIONS})
  target_link_libraries(tidemark PRIVATE tidemark_capture tidemark_bridge tidemark_recorder)
  target_link_options(tidemark PRIVATE
    -static-libstdc++ -static-libgcc
    -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/exports.map
    -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,--gc-sections
    -Wl,--no-undefined)
  set_target_properties(tidemark PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/exports.map)
endif()
