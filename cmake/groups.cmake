# tidemark_compile_in_groups(TARGET…): compiles files of these libraries together where that is
# possible, which takes a quarter of the time. For builds that are made once: a change of one file
# compiles its whole group again.
function(tidemark_compile_in_groups)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/groups.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  foreach(target ${ARGN})
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    list(FILTER sources INCLUDE REGEX "^[a-z_/]+[.]cpp$")
    execute_process(COMMAND python3 -B ${script} ${sources} WORKING_DIRECTORY ${folder}
                    OUTPUT_VARIABLE groups RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${script} failed on ${folder}")
    endif()
    string(REGEX MATCHALL "[0-9]+" groups "${groups}")
    foreach(source group IN ZIP_LISTS sources groups)
      set_source_files_properties(${folder}/${source} TARGET_DIRECTORY ${target}
                                  PROPERTIES UNITY_GROUP g${group})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    target_compile_options(${target} PRIVATE -Wno-shadow)  # by names of other files
  endforeach()
endfunction()
