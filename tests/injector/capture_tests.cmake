# Tests of the capture side.
tidemark_test(capture_owner_test SOURCES capture_owner_test.cpp LIBRARIES tidemark_capture)
tidemark_test(capture_settings_test SOURCES capture_settings_test.cpp LIBRARIES tidemark_capture)
tidemark_test(capture_calls_test SOURCES capture_calls_test.cpp LIBRARIES tidemark_capture)
tidemark_test(capture_loader_test SOURCES capture_loader_test.cpp LIBRARIES tidemark_capture)
tidemark_test(python_code_test SOURCES python_code_test.cpp LIBRARIES tidemark_capture)

add_library(capture_plugin MODULE capture_plugin.cpp)
tidemark_test(capture_unwind_test SOURCES capture_unwind_test.cpp LIBRARIES tidemark_capture)
target_compile_definitions(capture_unwind_test PRIVATE
  TIDEMARK_CAPTURE_PLUGIN="$<TARGET_FILE:capture_plugin>")
target_link_options(capture_unwind_test PRIVATE -rdynamic)
add_dependencies(capture_unwind_test capture_plugin)

# The real library on simulated cards. A sanitizer's run time must come before everything else in a
# process, so a sanitized guest in a host that is sanitized as well is what runs there.
tidemark_executable(capture_host capture_host.cpp)
target_link_libraries(capture_host PRIVATE ${CMAKE_DL_LIBS})
add_library(capture_rival SHARED capture_rival.cpp)
tidemark_target(capture_rival)

function(tidemark_capture_run_test NAME)
  tidemark_test(${NAME} SOURCES ${NAME}.cpp LIBRARIES tidemark_proto)
  target_compile_definitions(${NAME} PRIVATE
    TIDEMARK_CAPTURE_HOST="$<TARGET_FILE:capture_host>"
    TIDEMARK_CAPTURE_RIVAL="$<TARGET_FILE:capture_rival>"
    TIDEMARK_ALL_KINDS="$<TARGET_FILE:sample_all_kinds>"
    TIDEMARK_INJECTOR="$<TARGET_FILE:tidemark>"
    TIDEMARK_SIMGPU_LIBRARIES="$<TARGET_FILE_DIR:simgpu_cuda>")
  add_dependencies(${NAME} capture_host capture_rival sample_all_kinds tidemark simgpu_cuda
                   simgpu_cupti simgpu_nvml)
endfunction()
tidemark_capture_run_test(capture_system_test)
tidemark_capture_run_test(capture_guest_test)
tidemark_capture_run_test(capture_sampling_test)

tidemark_executable(nccl_host nccl_host.cpp)
target_link_libraries(nccl_host PRIVATE ${CMAKE_DL_LIBS})
tidemark_capture_run_test(nccl_test)
target_compile_definitions(nccl_test PRIVATE
  TIDEMARK_NCCL_HOST="$<TARGET_FILE:nccl_host>" TIDEMARK_CLI="$<TARGET_FILE:tidemark_cli>")
add_dependencies(nccl_test nccl_host simgpu_nccl tidemark_cli)

# A host that is attached to while it runs.
tidemark_executable(attach_host attach_host.cpp)
target_link_libraries(attach_host PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)

# Sanitizers bring symbols and libraries of their own.
if(NOT TIDEMARK_SANITIZE)
  add_test(NAME injector_exports
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/exports_test.py
            $<TARGET_FILE:tidemark> ${CMAKE_NM} ${CMAKE_OBJDUMP})
  tidemark_python_test(attach attach_test.py $<TARGET_FILE:tidemark_cli>
    $<TARGET_FILE_DIR:simgpu_cuda> $<TARGET_FILE:tidemark> $<TARGET_FILE:attach_host>)
  # An armed process that nobody talks to: not while another test lists processes.
  set_tests_properties(attach PROPERTIES RESOURCE_LOCK cuda_processes)
endif()
