# tidemark_library(NAME SOURCES…): a room's target, with the house's warnings as errors.
set(TIDEMARK_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wnon-virtual-dtor -Woverloaded-virtual -Werror)

function(tidemark_target NAME)
  target_compile_options(${NAME} PRIVATE ${TIDEMARK_WARNINGS})
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

function(tidemark_library NAME)
  add_library(${NAME} STATIC ${ARGN})
  tidemark_target(${NAME})
endfunction()

function(tidemark_executable NAME)
  add_executable(${NAME} ${ARGN})
  tidemark_target(${NAME})
endfunction()
