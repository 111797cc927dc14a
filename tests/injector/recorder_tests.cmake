# Tests of the path to disk.
set(HERE ${CMAKE_CURRENT_LIST_DIR})
tidemark_test(recorder_test SOURCES ${HERE}/recorder_test.cpp LIBRARIES tidemark_recorder tidemark_proto)

# Ends of processes: a program that records, and tests that watch it die.
tidemark_executable(recorder_victim ${HERE}/recorder_victim.cpp)
target_link_libraries(recorder_victim PRIVATE tidemark_recorder)

function(tidemark_victim_test NAME)
  tidemark_test(${NAME}
    SOURCES ${HERE}/${NAME}.cpp ${HERE}/victim.cpp LIBRARIES tidemark_collector tidemark_proto)
  target_compile_definitions(${NAME} PRIVATE TIDEMARK_VICTIM="$<TARGET_FILE:recorder_victim>")
  add_dependencies(${NAME} recorder_victim)
endfunction()
tidemark_victim_test(kill_test)
tidemark_victim_test(ends_test)

add_library(guest_library MODULE ${HERE}/guest_library.cpp)
tidemark_target(guest_library)
target_compile_options(guest_library PRIVATE ${TIDEMARK_GUEST_OPTIONS})
target_link_libraries(guest_library PRIVATE tidemark_recorder)
target_link_options(guest_library PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
  -Wl,-z,nodelete)
tidemark_test(dlclose_test SOURCES ${HERE}/dlclose_test.cpp LIBRARIES tidemark_proto)
target_compile_definitions(dlclose_test PRIVATE TIDEMARK_GUEST="$<TARGET_FILE:guest_library>")
target_link_libraries(dlclose_test PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(dlclose_test guest_library)
