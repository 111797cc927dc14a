# A CMake toolchain for Debian's cross compilers:
#   cmake -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DTIDEMARK_CROSS=x86_64
# The libraries are those of multiarch, or those below TIDEMARK_CROSS_ROOT.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TIDEMARK_CROSS TIDEMARK_CROSS_ROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${TIDEMARK_CROSS})
set(CMAKE_LIBRARY_ARCHITECTURE ${TIDEMARK_CROSS}-linux-gnu)
set(CMAKE_C_COMPILER ${CMAKE_LIBRARY_ARCHITECTURE}-gcc)
set(CMAKE_CXX_COMPILER ${CMAKE_LIBRARY_ARCHITECTURE}-g++)
set(ENV{PKG_CONFIG_LIBDIR} ${TIDEMARK_CROSS_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${TIDEMARK_CROSS_ROOT}/usr/share/pkgconfig)
if(TIDEMARK_CROSS_ROOT)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TIDEMARK_CROSS_ROOT})
  set(CMAKE_FIND_ROOT_PATH ${TIDEMARK_CROSS_ROOT})
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  foreach(kind LIBRARY INCLUDE PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
  endforeach()
  # What the libraries need in their turn; Debian keeps some of them in /lib.
  foreach(place usr/lib lib)
    string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT
           " -Wl,-rpath-link,${TIDEMARK_CROSS_ROOT}/${place}/${CMAKE_LIBRARY_ARCHITECTURE}")
  endforeach()
endif()
