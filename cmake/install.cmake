# `cmake --install` installs the program, libingot.so with its header include/ingot/ingot.h, and the files by which
# other projects find them: find_package(ingot) provides ingot::ingot, and `pkg-config --cflags --libs ingot` prints the
# flags. The C++ headers are internal and change with the program, so they are not installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET ingot-cli)
  install(TARGETS ingot-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET ingot_cuda_library)
    install(TARGETS ingot_cuda_library LIBRARY DESTINATION lib/ingot)
  endif()
  if(TARGET ingot_mpi)  # where the program looks for it: ../lib/ingot
    install(TARGETS ingot_mpi LIBRARY DESTINATION lib/ingot)
  endif()
endif()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(NOT TARGET ingot_shared)
  return()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
configure_package_config_file(cmake/ingotConfig.cmake.in ${PROJECT_BINARY_DIR}/ingotConfig.cmake
                              INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ingotConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH from_pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ingot.pc.in ${PROJECT_BINARY_DIR}/ingot.pc @ONLY)

install(TARGETS ingot_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/ingot/ingot.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ingot)
install(FILES ${PROJECT_BINARY_DIR}/ingotConfig.cmake ${PROJECT_BINARY_DIR}/ingotConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/ingot.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY share/ DESTINATION ${CMAKE_INSTALL_DATADIR})  # the man page and the shells' completions: `make docs`
if(INGOT_PACKAGE)
  include(cmake/package.cmake)
endif()
