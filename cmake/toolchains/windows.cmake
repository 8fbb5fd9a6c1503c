# Builds for 64-bit Windows on another machine with Debian's MinGW-w64 with POSIX threads, the libraries of
# scripts/windows_libraries.sh in INGOT_LIBRARIES, and Wine to run the tests. The program is one file and links only
# Windows' own libraries dynamically.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(INGOT_LIBRARIES "${CMAKE_CURRENT_LIST_DIR}/../../build-windows/libraries" CACHE PATH "The folder that scripts/windows_libraries.sh made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INGOT_LIBRARIES)
cmake_path(ABSOLUTE_PATH INGOT_LIBRARIES NORMALIZE OUTPUT_VARIABLE CMAKE_FIND_ROOT_PATH)

list(APPEND CMAKE_PREFIX_PATH ${CMAKE_FIND_ROOT_PATH})
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_CROSSCOMPILING_EMULATOR env WINEDEBUG=-all wine)
# Windows 10; 64-bit file offsets. GCC puts 32-byte vectors on a stack with 16-byte alignment (GCC bug 54412), so the
# assembler replaces every aligned vector move with an unaligned one.
set(CMAKE_C_FLAGS_INIT "-D_WIN32_WINNT=0x0A00 -D_FILE_OFFSET_BITS=64")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT} -DNOMINMAX -DNOGDI -DWIN32_LEAN_AND_MEAN -DPCRE2_STATIC -Wa,-muse-unaligned-vector-move -Wa,-mbig-obj")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static -Wl,--no-insert-timestamp")  # the same bytes in each build
# The Windows libraries that OpenSSL, curl and Asio call. They must follow their callers in the link order.
set(CMAKE_CXX_STANDARD_LIBRARIES "-lsynchronization -lmswsock -lws2_32 -lcrypt32 -lbcrypt -lwinmm -ladvapi32 -lshell32 -lole32 -luuid -luser32 -lkernel32"
    CACHE STRING "Libraries of Windows that every program is linked with")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_FIND_ROOT_PATH}/lib/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "")
