# Installs BUILD_DIR into a fresh prefix, builds the project beside this file against it alone, and runs it on MODEL:
#   cmake -DBUILD_DIR= -DCOMPILER= -DFLAGS= -DMODEL= -DEXPECTED= -DWORK_DIR= -P install_test.cmake
file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -G Ninja
                        -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK_DIR}/build/consumer ${MODEL} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL "${EXPECTED}\n")
  message(FATAL_ERROR "the consumer said '${output}', expected '${EXPECTED}'")
endif()
if(NOT EXISTS ${WORK_DIR}/prefix/share/doc/ingot/LICENSE)
  message(FATAL_ERROR "the licence was not installed")
endif()
