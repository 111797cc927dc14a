# CLI11, headers only: the copy in third_party/ for packages, so that they are the same wherever they
# are built, and for systems without a package (scripts/fetch_gui_sources.sh --cli11).
set(TIDEMARK_CLI11_DIR "${PROJECT_SOURCE_DIR}/third_party/cli11" CACHE PATH "The sources of CLI11")
if(NOT TIDEMARK_PORTABLE)
  find_package(CLI11 QUIET)
endif()
if(NOT TARGET CLI11::CLI11)
  if(NOT EXISTS "${TIDEMARK_CLI11_DIR}/include/CLI/CLI.hpp")
    message(FATAL_ERROR "CLI11 is missing: install libcli11-dev, or run "
      "scripts/fetch_gui_sources.sh --cli11")
  endif()
  add_library(tidemark_cli11 INTERFACE)
  target_include_directories(tidemark_cli11 SYSTEM INTERFACE ${TIDEMARK_CLI11_DIR}/include)
  add_library(CLI11::CLI11 ALIAS tidemark_cli11)
endif()
