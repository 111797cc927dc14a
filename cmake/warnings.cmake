# tidemark_library(NAME SOURCES…): a static library, compiled with our warnings;
# tidemark_executable is the same for programs.
set(TIDEMARK_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wnon-virtual-dtor -Woverloaded-virtual)
# GCC 12 sees overlapping copies in std::string's operator+ where there are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND TIDEMARK_WARNINGS -Wno-restrict)
endif()
# Errors where they were seen to be right: what another compiler warns of must not stop a newcomer.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  list(APPEND TIDEMARK_WARNINGS -Werror)
endif()

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
