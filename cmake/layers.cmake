# ingot_layer(FOLDER [UNITY [BUT ...]] [SUBFOLDERS ...] [LIBS ...]): creates the object library ingot_FOLDER (for a/b:
# ingot_a_b) from src/FOLDER/*.cc, and appends it to the link order. Files named *_posix.cc, *_linux.cc, *_apple.cc
# and *_windows.cc are compiled only for those systems, *_x86.cc, *_arm.cc and *_other.cc only for those processors. A
# name may have a processor and a system: *_arm_linux.cc.
# UNITY: release builds compile several files as one. BUT lists the files that are excluded because other files use the
# same private names. An empty folder creates no library. A layer includes only lower layers of the list;
# scripts/layers.py checks this.
set_property(GLOBAL PROPERTY INGOT_LAYERS "")
set_property(GLOBAL PROPERTY INGOT_LIBS "")
set(INGOT_OTHER_MACHINES posix linux apple windows x86 arm other)  # whose files are left out
if(WIN32)
  list(REMOVE_ITEM INGOT_OTHER_MACHINES windows)
elseif(APPLE)
  list(REMOVE_ITEM INGOT_OTHER_MACHINES posix apple)
else()
  list(REMOVE_ITEM INGOT_OTHER_MACHINES posix linux)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  list(REMOVE_ITEM INGOT_OTHER_MACHINES x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(REMOVE_ITEM INGOT_OTHER_MACHINES arm)
else()
  list(REMOVE_ITEM INGOT_OTHER_MACHINES other)
endif()
string(REPLACE ";" "|" INGOT_OTHER_MACHINES "${INGOT_OTHER_MACHINES}")

function(ingot_layer folder)
  cmake_parse_arguments(arg "UNITY" "" "BUT;SUBFOLDERS;LIBS" ${ARGN})
  set(patterns src/${folder}/*.cc)
  foreach(sub ${arg_SUBFOLDERS})
    list(APPEND patterns src/${folder}/${sub}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "_(${INGOT_OTHER_MACHINES})(_(linux|apple))?\\.cc$")
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" target ingot_${folder})
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  if(arg_UNITY AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
    list(FILTER sources INCLUDE REGEX "_windows\\.cc$")  # the macros of windows.h are for no other file
    list(TRANSFORM arg_BUT PREPEND ${PROJECT_SOURCE_DIR}/src/${folder}/)
    set_source_files_properties(${sources} ${arg_BUT} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  get_property(below GLOBAL PROPERTY INGOT_LIBS)
  target_link_libraries(${target} PUBLIC ${below} ${arg_LIBS})
  if(NOT folder STREQUAL "cli")
    set_property(GLOBAL APPEND PROPERTY INGOT_LAYERS ${target})
    set_property(GLOBAL APPEND PROPERTY INGOT_LIBS ${arg_LIBS})
  endif()
endfunction()

# Collects every layer except the program's own. The program links `ingot`; other programs link `ingot_shared`.
function(ingot_library)
  get_property(layers GLOBAL PROPERTY INGOT_LAYERS)
  get_property(libs GLOBAL PROPERTY INGOT_LIBS)
  foreach(layer ${layers})
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()
  add_library(ingot STATIC ${objects})
  target_include_directories(ingot PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(ingot PUBLIC ${libs})
  if(WIN32)  # the C API has no DLL
    return()
  endif()
  # The same code as a shared library that exports only the C API.
  add_library(ingot_shared SHARED ${objects})
  target_link_libraries(ingot_shared PRIVATE ${libs})
  target_link_options(ingot_shared PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
  set_target_properties(ingot_shared PROPERTIES OUTPUT_NAME ingot VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                                LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
endfunction()

# src/backend/cpu/kernels/*.cc are compiled once for each instruction set (cmake/cpu_kernels.cmake, with the list of sets).
include(${CMAKE_CURRENT_LIST_DIR}/cpu_kernels.cmake)
