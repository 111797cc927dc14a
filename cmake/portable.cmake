# TIDEMARK_PORTABLE: programs that run on every Linux with glibc 2.28 or later, as scripts/package
# builds them. What is not part of every system is linked from its archive, and references to newer
# glibcs are answered by injector/glibc_floor.cpp.
option(TIDEMARK_PORTABLE "Link what not every system has from static archives" OFF)
if(NOT TIDEMARK_PORTABLE)
  return()
endif()

set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(Protobuf_USE_STATIC_LIBS ON)
add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--exclude-libs,ALL
                 -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -Wl,--build-id=sha1)
add_compile_options(-ffunction-sections -fdata-sections)
# The build leaves no trace of where it was made.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=tidemark"
                    "-ffile-prefix-map=${PROJECT_BINARY_DIR}=tidemark/build")

# Debian 11 has no archive of fmt.
find_path(TIDEMARK_FMT_DIR fmt/format.h REQUIRED)
add_library(tidemark_fmt INTERFACE)
target_include_directories(tidemark_fmt SYSTEM INTERFACE ${TIDEMARK_FMT_DIR})
target_compile_definitions(tidemark_fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(fmt::fmt ALIAS tidemark_fmt)

# What libdw.a itself needs; pkg-config names it only for --static.
find_library(TIDEMARK_ELF_ARCHIVE elf REQUIRED)
find_library(TIDEMARK_LZMA_ARCHIVE lzma REQUIRED)
find_library(TIDEMARK_BZ2_ARCHIVE bz2 REQUIRED)
find_library(TIDEMARK_Z_ARCHIVE z REQUIRED)
set(TIDEMARK_LIBDW_NEEDS ${TIDEMARK_ELF_ARCHIVE} ${TIDEMARK_LZMA_ARCHIVE} ${TIDEMARK_BZ2_ARCHIVE}
    ${TIDEMARK_Z_ARCHIVE} ${CMAKE_DL_LIBS})

# tidemark_portable(TARGET…): what is shipped runs on glibc 2.28.
add_library(tidemark_glibc_floor OBJECT ${PROJECT_SOURCE_DIR}/packaging/glibc_floor.cpp)
function(tidemark_portable)
  foreach(target IN LISTS ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tidemark_glibc_floor>)
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS} m)
  endforeach()
endfunction()
