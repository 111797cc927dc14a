# The library in hosts that make it hard for a guest.
tidemark_executable(survivor survivor.cpp)
target_link_libraries(survivor PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
add_library(counting_malloc SHARED counting_malloc.cpp)
target_compile_options(counting_malloc PRIVATE -fno-builtin-malloc -fno-builtin-calloc)
tidemark_executable(job_program job_program.cpp)
target_link_libraries(job_program PRIVATE Threads::Threads ${CMAKE_DL_LIBS})

foreach(NAME survival_test job_kill_test)
  tidemark_test(${NAME} SOURCES ${NAME}.cpp LIBRARIES tidemark_collector tidemark_proto)
  target_compile_definitions(${NAME} PRIVATE
    TIDEMARK_SURVIVOR="$<TARGET_FILE:survivor>"
    TIDEMARK_JOB_PROGRAM="$<TARGET_FILE:job_program>"
    TIDEMARK_COUNTING_MALLOC="$<TARGET_FILE:counting_malloc>"
    TIDEMARK_CAPTURE_RIVAL="$<TARGET_FILE:capture_rival>"
    TIDEMARK_INJECTOR="$<TARGET_FILE:tidemark>"
    TIDEMARK_SIMGPU_LIBRARIES="$<TARGET_FILE_DIR:simgpu_cuda>")
  add_dependencies(${NAME} survivor job_program counting_malloc capture_rival tidemark simgpu_cuda
                   simgpu_cupti simgpu_nvml)
endforeach()
