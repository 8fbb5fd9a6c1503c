# Installs BUILD_DIR into a new prefix, builds the C project of this folder against that prefix, and runs it on MODEL:
#   cmake -DBUILD_DIR= -DCOMPILER= -DFLAGS= -DMODEL= -DEXPECTED= -DWORK_DIR= -P install_test.cmake
file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB package_folders ${prefix}/lib*/pkgconfig ${prefix}/lib*/*/pkgconfig)
set(ENV{PKG_CONFIG_PATH} ${package_folders})
foreach(by_pkg_config OFF ON)
  set(build ${WORK_DIR}/build_${by_pkg_config})
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${build} -G Ninja -DBY_PKG_CONFIG=${by_pkg_config}
                          -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_COMPILER=${COMPILER} -DCMAKE_C_FLAGS=${FLAGS}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${build}/consumer ${MODEL} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output STREQUAL "${EXPECTED}\n")
    message(FATAL_ERROR "the consumer (BY_PKG_CONFIG=${by_pkg_config}) said '${output}', expected '${EXPECTED}'")
  endif()
endforeach()

# Only the public header is installed.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT headers STREQUAL "ingot/ingot.h")
  message(FATAL_ERROR "headers installed: '${headers}', expected ingot/ingot.h alone")
endif()
if(NOT EXISTS ${prefix}/share/doc/ingot/LICENSE)
  message(FATAL_ERROR "the licence was not installed")
endif()
foreach(file man/man1/ingot.1 bash-completion/completions/ingot zsh/site-functions/_ingot fish/vendor_completions.d/ingot.fish)
  if(NOT EXISTS ${prefix}/share/${file})
    message(FATAL_ERROR "share/${file} was not installed")
  endif()
endforeach()

# What is removed is what was installed: a file of somebody else stays, and ingot's own folders go.
file(WRITE ${prefix}/share/man/man1/other.1 "")
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../../scripts/uninstall.sh ${BUILD_DIR}/install_manifest.txt OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE left RELATIVE ${prefix} ${prefix}/*)
if(NOT left STREQUAL "share/man/man1/other.1" OR EXISTS ${prefix}/share/doc/ingot OR EXISTS ${prefix}/include/ingot)
  message(FATAL_ERROR "after uninstalling, '${left}' is left, or folders of ingot's own")
endif()
