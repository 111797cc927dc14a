# cmake --install: a tree that may be moved as a whole, since the command line looks for the library
# and the viewer relative to itself.
include(GNUInstallDirs)

set(TIDEMARK_DOC_DIR share/doc/tidemark)
install(TARGETS tidemark_cli RUNTIME DESTINATION bin)
install(TARGETS tidemark LIBRARY DESTINATION lib)
if(TARGET tidemark_view)
  install(TARGETS tidemark_view RUNTIME DESTINATION bin)
endif()
# The viewer as a page, if scripts/web has built it.
set(TIDEMARK_PAGE "${PROJECT_SOURCE_DIR}/build/web/tidemark-view.html" CACHE FILEPATH
    "The page to install")
install(FILES ${TIDEMARK_PAGE} DESTINATION share/tidemark OPTIONAL)
if(TIDEMARK_PORTABLE)
  tidemark_portable(tidemark_cli sample_leak simgpu_cuda simgpu_cupti simgpu_nvml)
  if(TARGET tidemark_view)
    tidemark_portable(tidemark_view)
  endif()
endif()
# For `tidemark doctor`: a program that it records, and the simulated GPU for it.
install(TARGETS sample_leak RUNTIME DESTINATION lib/tidemark)
install(TARGETS simgpu_cuda simgpu_cupti simgpu_nvml
        LIBRARY DESTINATION lib/tidemark/simgpu NAMELINK_SKIP)
install(FILES include/tidemark.h DESTINATION include)
install(DIRECTORY python/tidemark DESTINATION share/tidemark/python PATTERN __pycache__ EXCLUDE)
install(FILES packaging/man/tidemark.1 packaging/man/tidemark-view.1 DESTINATION share/man/man1)
install(FILES packaging/completions/tidemark.bash
        DESTINATION share/bash-completion/completions RENAME tidemark)
install(FILES packaging/completions/_tidemark DESTINATION share/zsh/site-functions)
install(FILES packaging/completions/tidemark.fish DESTINATION share/fish/vendor_completions.d)
install(FILES README.md CHANGELOG.md LICENSE ARCHITECTURE.md CONTRIBUTING.md
        DESTINATION ${TIDEMARK_DOC_DIR})
install(DIRECTORY docs DESTINATION ${TIDEMARK_DOC_DIR})
# What these link to.
foreach(FILE bridge/torch_bridge.cpp proto/FORMAT.md proto/control.h simgpu/README.md)
  get_filename_component(FOLDER ${FILE} DIRECTORY)
  install(FILES ${FILE} DESTINATION ${TIDEMARK_DOC_DIR}/${FOLDER})
endforeach()
