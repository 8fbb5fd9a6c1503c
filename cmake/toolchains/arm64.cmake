# Builds for 64-bit Arm on another machine with Debian's cross compiler, the libraries of scripts/sysroot.sh in
# INGOT_SYSROOT, and QEMU to run the tests. CMake reads this file again in its test projects, so the variable is passed
# on to them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(INGOT_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../build-arm/sysroot" CACHE PATH "The folder that scripts/sysroot.sh made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INGOT_SYSROOT)
cmake_path(ABSOLUTE_PATH INGOT_SYSROOT NORMALIZE OUTPUT_VARIABLE CMAKE_SYSROOT)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
