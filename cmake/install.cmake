# `cmake --install`: the program, the library, and what a project needs for find_package(ingot) and ingot::ingot. The C++ headers keep
# their own folder, include/ingot-src, so that #include "engine/engine.h" reads there as it does here; they are the program's own and
# change with it. include/ingot/ is the C API, which does not.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(ingot::ingot ALIAS ingot)
target_compile_features(ingot PUBLIC cxx_std_20)
target_include_directories(ingot PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ingot-src>)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
configure_package_config_file(cmake/ingotConfig.cmake.in ${PROJECT_BINARY_DIR}/ingotConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ingotConfigVersion.cmake COMPATIBILITY SameMinorVersion)

if(TARGET ingot-cli)
  install(TARGETS ingot-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS ingot EXPORT ingot ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ingot_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ingot NAMESPACE ingot:: FILE ingotTargets.cmake DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/ingotConfig.cmake ${PROJECT_BINARY_DIR}/ingotConfigVersion.cmake
        DESTINATION ${package_dir})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL)
foreach(folder base quant io text backend model engine)
  install(DIRECTORY src/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ingot-src
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*.inc" PATTERN kernels EXCLUDE)
endforeach()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
