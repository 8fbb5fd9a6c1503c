# cli/build_facts.h in the build folder: the commit, the compiler and the system, for `ingot --version --json`.
set(commit unknown)
if(EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse HEAD OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${found})
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)  # changes with each commit
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)
  endif()
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/facts/cli/build_facts.h @ONLY CONTENT "// Made by cmake/build_facts.cmake.
#pragma once
namespace ingot {
inline constexpr const char* kBuildCommit = \"${commit}\";
inline constexpr const char* kBuildCompiler = \"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\";
inline constexpr const char* kBuildSystem = \"${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}\";
}  // namespace ingot
")
