# One test program for each folder of tests/. It links the object libraries only up to its layer, so that a folder can
# be built alone.
find_package(GTest REQUIRED)
include(GoogleTest)

# The Python for the tests: the interpreter that has the Debian packages of scripts/setup.sh, even if it is not first on
# the PATH.
foreach(python python3 /usr/bin/python3)
  execute_process(COMMAND ${python} -c "import numpy, pytest" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    find_program(INGOT_PYTHON ${python} REQUIRED)
    break()
  endif()
endforeach()
if(NOT INGOT_PYTHON)
  message(FATAL_ERROR "The tests need Python with numpy and pytest: `make setup` installs both, -DINGOT_TESTS=OFF does without.")
endif()

# Weights that a GGUF file already has are unpacked from it.
file(GLOB_RECURSE INGOT_WEIGHT_PARTS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/data/*.parts)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${INGOT_WEIGHT_PARTS})
execute_process(COMMAND ${INGOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/scripts/weight_parts.py unpack ${PROJECT_SOURCE_DIR}/tests/data
                COMMAND_ERROR_IS_FATAL ANY)

# With sanitizers, two programs with thread pools slow each other down by far more than half, so they run one at a time.
set(INGOT_TEST_THREADS 1)
set(INGOT_TEST_SECONDS 600)
if(INGOT_SANITIZE)
  set(INGOT_TEST_THREADS 2)
  set(INGOT_TEST_SECONDS 1800)
endif()

function(ingot_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cc
       ${PROJECT_SOURCE_DIR}/tests/${folder}/*/*_test.cc)
  if(NOT INGOT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "/tests/backend/cuda/")
  endif()
  if(NOT sources)
    return()
  endif()
  add_executable(test_${folder} ${sources})
  get_property(layers GLOBAL PROPERTY INGOT_LAYERS)
  foreach(layer ${layers})
    target_link_libraries(test_${folder} PRIVATE ${layer})
    if(layer STREQUAL "ingot_${folder}")
      break()
    endif()
  endforeach()
  target_include_directories(test_${folder} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  if(folder STREQUAL "backend" AND INGOT_HAS_CUDA)
    target_include_directories(test_backend SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(test_backend PRIVATE ingot_cuda CUDA::cudart_static CUDA::cublasLt)
  endif()
  target_link_libraries(test_${folder} PRIVATE GTest::gmock GTest::gtest_main)
  if(INGOT_HAS_CUDA)
    add_dependencies(test_${folder} ingot_cuda_library)  # opened at run time
  endif()
  target_compile_definitions(test_${folder} PRIVATE INGOT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  # Half of the time of a clean build was the compiler's work on the tests. They spend their time in the libraries, so
  # they are not optimized themselves.
  target_compile_options(test_${folder} PRIVATE -O0)
  target_precompile_headers(test_${folder} PRIVATE <gmock/gmock.h> ${PROJECT_SOURCE_DIR}/src/base/json.h <fmt/format.h>
                            <algorithm> <cmath> <filesystem> <fstream> <functional> <map> <random> <set> <thread>)
  # Each file would compile the same templates of nlohmann::json again. A local name may be that of another file.
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set_target_properties(test_${folder} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(test_${folder} PRIVATE -Wno-shadow)
  endif()
  set(threads 1)
  if(folder MATCHES "backend|model|engine")
    set(threads ${INGOT_TEST_THREADS})
  endif()
  gtest_discover_tests(test_${folder} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${INGOT_TEST_SECONDS}
                       PROCESSORS ${threads} LABELS ${folder})
endfunction()

set(test_folders base quant io text backend model engine server)
if(WIN32)
  set(test_folders quant text backend)  # the others have tests of POSIX systems
endif()
foreach(folder ${test_folders})
  ingot_tests(${folder})
endforeach()
if(WIN32)
  set_source_files_properties(tests/backend/cuda_library_test.cc tests/backend/nvidia_driver_test.cc PROPERTIES HEADER_FILE_ONLY ON)
else()  # libraries that stand for libingot-cuda.so, for one of NVIDIA's, and for the driver
  set(fakes ${PROJECT_BINARY_DIR}/fake_libraries)
  add_library(fake_driver SHARED tests/backend/fake_libraries/driver.cc)
  add_library(fake_nvidia SHARED tests/backend/fake_libraries/nvidia.cc)
  set_target_properties(fake_nvidia PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${fakes}/nvidia)
  foreach(fake fake_cuda fake_cuda_other fake_cuda_without_entry fake_cuda_lacking)
    add_library(${fake} SHARED tests/backend/fake_libraries/cuda.cc)
    get_property(layers GLOBAL PROPERTY INGOT_LAYERS)
    foreach(layer ${layers})
      target_link_libraries(${fake} PRIVATE ${layer})
      if(layer STREQUAL "ingot_backend")
        break()
      endif()
    endforeach()
    target_link_options(${fake} PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
  endforeach()
  target_compile_definitions(fake_cuda_other PRIVATE FAKE_BUILD="ingot 9")
  target_compile_definitions(fake_cuda_without_entry PRIVATE FAKE_WITHOUT_ENTRY)
  target_compile_definitions(fake_cuda_lacking PRIVATE FAKE_NVIDIA)
  target_link_libraries(fake_cuda_lacking PRIVATE fake_nvidia)
  set_target_properties(fake_driver fake_cuda fake_cuda_other fake_cuda_without_entry fake_cuda_lacking PROPERTIES
                        LIBRARY_OUTPUT_DIRECTORY ${fakes} SKIP_BUILD_RPATH ON)
  add_dependencies(test_backend fake_driver fake_cuda fake_cuda_other fake_cuda_without_entry fake_cuda_lacking)
  target_compile_definitions(test_backend PRIVATE INGOT_FAKE_LIBRARIES="${fakes}" INGOT_FAKE_DRIVER="${fakes}/libfake_driver.so")
endif()
foreach(program test_engine test_server)
  if(TARGET ${program})
    target_link_libraries(${program} PRIVATE fake_runner)
  endif()
endforeach()
foreach(program test_backend test_model)
  if(TARGET ${program})
    target_link_libraries(${program} PRIVATE ops_rig)
  endif()
endforeach()
if(TARGET test_io)
  target_link_libraries(test_io PRIVATE ingot_io_hub)
endif()
if(TARGET test_server)
  target_compile_options(test_server PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)  # as for ingot_server
  target_link_libraries(test_server PRIVATE OpenSSL::SSL)
endif()
if(CMAKE_CROSSCOMPILING)
  include(cmake/cross_tests.cmake)
  return()
endif()
add_subdirectory(tests/load)

# docs/add-a-model.md shows a row for the table of architectures. This program has an arch.cc with that row, which the
# linker uses instead of the library's, and runs such a model.
file(READ ${PROJECT_SOURCE_DIR}/docs/add-a-model.md page)
file(READ ${PROJECT_SOURCE_DIR}/src/model/config/arch.cc table)
string(REGEX MATCH "\n +{.gguf_name = \"([a-z0-9_]+)\"[^\n]*},\n" row "${page}")
if(NOT row OR table MATCHES "\"${CMAKE_MATCH_1}\"")
  message(FATAL_ERROR "docs/add-a-model.md: expected the row of an architecture that src/model/config/arch.cc does not have")
endif()
string(REGEX REPLACE "(kArchs\\[\\] = {)\n" "\\1${row}" table "${table}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/add_a_model_arch.cc CONTENT "${table}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/add-a-model.md
                                                               ${PROJECT_SOURCE_DIR}/src/model/config/arch.cc)
add_executable(test_add_a_model ${PROJECT_SOURCE_DIR}/tests/docs/add_a_model_test.cc ${PROJECT_BINARY_DIR}/add_a_model_arch.cc)
target_link_libraries(test_add_a_model PRIVATE ingot GTest::gtest_main)
target_compile_definitions(test_add_a_model PRIVATE INGOT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
gtest_discover_tests(test_add_a_model NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)

# docs/add-a-backend.md shows a backend class. This program contains the class and runs models on it.
file(READ ${PROJECT_SOURCE_DIR}/docs/add-a-backend.md page)
if(NOT page MATCHES "```cpp\n(class ToyBackend [^`]*)```")
  message(FATAL_ERROR "docs/add-a-backend.md: expected the class ToyBackend")
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/add_a_backend/add_a_backend.h CONTENT "${CMAKE_MATCH_1}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/add-a-backend.md)
add_executable(test_add_a_backend ${PROJECT_SOURCE_DIR}/tests/docs/add_a_backend_test.cc)
target_include_directories(test_add_a_backend PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/add_a_backend)
target_link_libraries(test_add_a_backend PRIVATE ingot GTest::gtest_main)
target_compile_definitions(test_add_a_backend PRIVATE INGOT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
gtest_discover_tests(test_add_a_backend NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)

# docs/add-a-layer.md shows the four files of a kind of layer. This program contains these files, and the lists of kinds
# and of architectures with lines for the kind, which the linker uses instead of the library's.
set(toy ${PROJECT_BINARY_DIR}/add_a_layer)
file(READ ${PROJECT_SOURCE_DIR}/docs/add-a-layer.md page)
foreach(name backend/blocks/convolution.h backend/blocks/convolution.cc model/layers/convolution.h
             model/layers/convolution.cc)
  string(FIND "${page}" "`${name}`" begin)
  string(SUBSTRING "${page}" ${begin} -1 rest)
  if(begin LESS 0 OR NOT rest MATCHES "```cpp\n([^`]*)```")
    message(FATAL_ERROR "docs/add-a-layer.md: expected the file ${name}")
  endif()
  file(CONFIGURE OUTPUT ${toy}/${name} CONTENT "${CMAKE_MATCH_1}" @ONLY)
endforeach()
if(NOT page MATCHES "\n    (extern const PartKind kConvolutionPart;\n) +(&kConvolutionPart,\n)")
  message(FATAL_ERROR "docs/add-a-layer.md: expected the two lines for the list of kinds")
endif()
set(declared "${CMAKE_MATCH_1}")
set(listed "${CMAKE_MATCH_2}")
file(READ ${PROJECT_SOURCE_DIR}/src/model/config/kinds.cc kinds)
string(REPLACE "extern const PartKind kDeltaNetPart;\n" "extern const PartKind kDeltaNetPart;\n${declared}" kinds "${kinds}")
string(REPLACE "    &kDeltaNetPart,\n" "    &kDeltaNetPart,\n    ${listed}" kinds "${kinds}")
file(CONFIGURE OUTPUT ${toy}/kinds.cc CONTENT "${kinds}" @ONLY)
if(NOT page MATCHES "`\\.layers = (\"[a-z/ ]+\")`")
  message(FATAL_ERROR "docs/add-a-layer.md: expected the column of the architecture")
endif()
set(row "\n    {.gguf_name = \"toy\", .hf_name = \"toy\", .layers = ${CMAKE_MATCH_1}, .hf_defaults = R\"({\"conv_width\": null})\"},\n")
file(READ ${PROJECT_SOURCE_DIR}/src/model/config/arch.cc table)
string(REGEX REPLACE "(kArchs\\[\\] = {)\n" "\\1${row}" table "${table}")
file(CONFIGURE OUTPUT ${toy}/arch.cc CONTENT "${table}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/add-a-layer.md
                                                               ${PROJECT_SOURCE_DIR}/src/model/config/kinds.cc)
add_executable(test_add_a_layer ${PROJECT_SOURCE_DIR}/tests/docs/add_a_layer_test.cc ${toy}/kinds.cc ${toy}/arch.cc
                                ${toy}/backend/blocks/convolution.cc ${toy}/model/layers/convolution.cc)
target_include_directories(test_add_a_layer PRIVATE ${toy} ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_add_a_layer PRIVATE ingot fake_runner GTest::gmock GTest::gtest_main)
target_compile_definitions(test_add_a_layer PRIVATE INGOT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
gtest_discover_tests(test_add_a_layer NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60)

# The source tree: its layers, its sizes, and the scripts that check them.
add_test(NAME scripts.layers COMMAND ${INGOT_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/layers.py ${PROJECT_SOURCE_DIR})
add_test(NAME scripts.size COMMAND ${INGOT_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/size.py ${PROJECT_SOURCE_DIR})

# Python tests: tests/FOLDER/NAME_test.py and tests/FOLDER/ROOM/NAME_test.py become the test FOLDER.NAME_test. INGOT has
# the path of the program, INGOT_SOURCE that of the source tree.
set(tests ${PROJECT_SOURCE_DIR}/tests)
file(GLOB python_tests CONFIGURE_DEPENDS ${tests}/scripts/*_test.py ${tests}/capi/*_test.py ${tests}/python/*_test.py
     ${tests}/cli/*_test.py ${tests}/cli/*/*_test.py ${tests}/server/*_test.py ${tests}/server/*/*_test.py)
set(slow 1)
set(fail_calls "")
if(INGOT_SANITIZE)
  set(slow 10)
else()
  add_library(fail_calls SHARED ${PROJECT_SOURCE_DIR}/tests/server/fail_calls.cc)  # preloaded by server/faults_test.py
  target_link_libraries(fail_calls PRIVATE ${CMAKE_DL_LIBS})
  set(fail_calls "$<TARGET_FILE:fail_calls>")
endif()
foreach(test ${python_tests})
  cmake_path(GET test STEM name)
  cmake_path(RELATIVE_PATH test BASE_DIRECTORY ${tests} OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "/.*" "" folder ${folder})
  if(NOT folder STREQUAL "scripts" AND NOT TARGET ingot-cli)
    continue()
  endif()
  if(folder MATCHES "capi|python" AND INGOT_SANITIZE)  # which Python would have to be built with as well
    continue()
  endif()
  add_test(NAME ${folder}.${name} COMMAND ${INGOT_PYTHON} -B -m pytest -q -p no:cacheprovider ${test})
  set_tests_properties(${folder}.${name} PROPERTIES TIMEOUT ${INGOT_TEST_SECONDS} PROCESSORS ${INGOT_TEST_THREADS}
    ENVIRONMENT "INGOT=$<$<TARGET_EXISTS:ingot-cli>:$<TARGET_FILE:ingot-cli>>;INGOT_LIBRARY=$<TARGET_FILE:ingot_shared>;INGOT_SOURCE=${PROJECT_SOURCE_DIR};INGOT_FAIL_CALLS=${fail_calls};INGOT_FAKE_SERVER=$<TARGET_FILE:fake_server>;INGOT_SLOW=${slow}")
endforeach()

# These tests first download third-party packages, once.
foreach(test cli.llama_cpp_test server.clients_test server.deploy_test python.wheel_test)
  if(TEST ${test})
    set_tests_properties(${test} PROPERTIES TIMEOUT 1800)
  endif()
endforeach()

add_test(NAME server.load COMMAND ${INGOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/tests/load/run.py ${PROJECT_BINARY_DIR} --scale 0.02 --untimed 2 5 6 9 10 15 16 24 D03 D12)
set_tests_properties(server.load PROPERTIES TIMEOUT ${INGOT_TEST_SECONDS} PROCESSORS ${INGOT_TEST_THREADS})

# The C API, from C.
enable_language(C)
add_executable(capi_test ${PROJECT_SOURCE_DIR}/tests/capi/capi_test.c)
target_include_directories(capi_test PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(capi_test PRIVATE ingot_shared)
set_target_properties(capi_test PROPERTIES C_STANDARD 11)
add_test(NAME capi.c COMMAND capi_test ${PROJECT_SOURCE_DIR}/models/demo.gguf)

# Another project can use the files that `cmake --install` installs.
set(install_flags "")
if(INGOT_SANITIZE)
  set(install_flags -fsanitize=${INGOT_SANITIZE})
endif()
add_test(NAME install COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${PROJECT_BINARY_DIR} -DCOMPILER=${CMAKE_C_COMPILER}
  -DFLAGS=${install_flags} -DMODEL=${PROJECT_SOURCE_DIR}/tests/data/models/qwen3.gguf "-DEXPECTED=${PROJECT_VERSION}: 261 words, context 64"
  -DWORK_DIR=${PROJECT_BINARY_DIR}/install_test -P ${PROJECT_SOURCE_DIR}/tests/install/install_test.cmake)
set_tests_properties(install scripts.packages_test PROPERTIES RESOURCE_LOCK install_manifest)
