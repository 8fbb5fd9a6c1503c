# Builds src/backend/cuda/ as libingot-cuda.so if nvcc is found and INGOT_CUDA is not OFF. The program and libingot.so
# are the same with and without it: they open the library at run time (src/backend/cuda_library.h). The library contains
# the CUDA runtime, and needs cuBLASLt as a shared library.
set(INGOT_HAS_CUDA OFF)
if(NOT INGOT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(INGOT_CUDA_DEFAULT_ARCHS OFF)
    else()
      set(INGOT_CUDA_DEFAULT_ARCHS ON)
      set(CMAKE_CUDA_ARCHITECTURES 80)  # what the compiler is tried with
    endif()
    enable_language(CUDA)
    if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "(^|;)90(-|;|$)" AND NOT "${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a")
      message(WARNING "CMAKE_CUDA_ARCHITECTURES has 90 and not 90a-real: Hopper runs without its fastest kernels.")
    endif()
    if(INGOT_CUDA_DEFAULT_ARCHS)
      # Code for 8.0 runs on all 8.x GPUs. 90a has the features that only Hopper has. The driver compiles the PTX for
      # 9.0 on GPUs that are newer than the toolkit, when they first run it.
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
      if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real)
      endif()
    endif()
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(INGOT_HAS_CUDA ON)
  elseif(INGOT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "INGOT_CUDA is ON and nvcc was not found: put it on the PATH, name it with -DCMAKE_CUDA_COMPILER=, "
                        "or configure with -DINGOT_CUDA=OFF.")
  endif()
endif()
message(STATUS "CUDA backend: ${INGOT_HAS_CUDA}")

# The program contains the sources of the kernels that NVRTC compiles at run time, byte for byte.
# src/backend/cuda/nvrtc.cc reads their table (backend/cuda/rtc_sources.h in the build folder). In that table,
# rtc_half.h has the name cuda_fp16.h.
set(INGOT_RTC_SOURCES backend/cuda/matmul/dot_codes.cuh backend/cuda/matmul/dot_rows.cuh backend/cuda/matmul/matvec.cuh backend/cuda/matmul/tile_matmul.cuh
    backend/cuda/matmul/warpgroup_matmul.cuh backend/cuda/matmul/warpgroup_outputs.cuh backend/cuda/experts/codes.cuh backend/cuda/experts/rows.cuh backend/cuda/matmul/matvec_tiles.cuh backend/cuda/matmul/matvec_step.cuh
    backend/cuda/matmul/code_bytes.cuh
    backend/cuda/matmul/tile_step.cuh backend/cuda/matmul/wgmma.cuh backend/cuda/device.cuh backend/cuda/rtc_half.h backend/cuda/matmul/packed_weight.h
    backend/cuda/layer_weight.h backend/cuda/matmul/product_shape.h backend/cuda/matmul/qkv_end.h base/half.h quant/grouped.h
    backend/cuda/cluster/cluster.cuh backend/cuda/grid/attention.cuh backend/cuda/grid/input.cuh backend/cuda/grid/layers.cuh backend/cuda/grid/plan.cuh
    backend/cuda/grid/products.cuh backend/cuda/grid/router.cuh backend/cuda/grid/rows.cuh backend/cuda/grid/shape.h
    backend/cuda/grid/stream.cuh)
function(ingot_embed_rtc target)
  set(assembly "/* Made by cmake/cuda.cmake. */\n    .section .rodata.ingot_rtc, \"a\", %progbits\n")
  set(symbols "")
  set(rows "")
  set(i 0)
  foreach(name ${INGOT_RTC_SOURCES})
    set(file ${PROJECT_SOURCE_DIR}/src/${name})
    list(APPEND files ${file})
    string(REPLACE backend/cuda/rtc_half.h cuda_fp16.h name ${name})
    string(APPEND assembly "    .globl ingot_rtc_${i}_begin\n    .hidden ingot_rtc_${i}_begin\ningot_rtc_${i}_begin:\n    .incbin \"${file}\"\n"
                           "    .globl ingot_rtc_${i}_end\n    .hidden ingot_rtc_${i}_end\ningot_rtc_${i}_end:\n    .byte 0\n")
    string(APPEND symbols "extern const char ingot_rtc_${i}_begin[], ingot_rtc_${i}_end[];\n")
    string(APPEND rows "    {\"${name}\", ingot_rtc_${i}_begin, ingot_rtc_${i}_end},\n")
    math(EXPR i "${i} + 1")
  endforeach()
  string(APPEND assembly "    .section .note.GNU-stack, \"\", %progbits\n")
  string(CONCAT header "// Made by cmake/cuda.cmake.\n#pragma once\nextern \"C\" {\n${symbols}}\nnamespace ingot::cuda {\n"
             "struct EmbeddedSource {\n  const char *name, *begin, *end;\n};\ninline constexpr EmbeddedSource kEmbeddedSources[] = {\n${rows}};\n}  // namespace ingot::cuda\n")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/rtc/backend/cuda/rtc_sources.h CONTENT "${header}" @ONLY)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/rtc/rtc_sources.S CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${PROJECT_BINARY_DIR}/rtc/rtc_sources.S PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/rtc/rtc_sources.S)
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/rtc)
  target_compile_definitions(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:INGOT_NVRTC_FOLDER=\"${CUDAToolkit_LIBRARY_DIR}\">")
endfunction()

function(ingot_cuda)
  if(NOT INGOT_HAS_CUDA)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cc ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu)
  add_library(ingot_cuda OBJECT ${sources})
  target_include_directories(ingot_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(INGOT_CUDA_DEFAULT_ARCHS)  # Ada turns fp8 into f16 in one instruction, and code of 8.0 does not
    foreach(name decode heads naive prefill wide)
      set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cuda/attention/${name}.cu APPEND PROPERTY COMPILE_OPTIONS
                   --generate-code=arch=compute_89,code=[sm_89])
    endforeach()
  endif()
  target_link_libraries(ingot_cuda PRIVATE ${ingot_fmt} CUDA::cudart_static CUDA::cublasLt ${CMAKE_DL_LIBS})
  ingot_embed_rtc(ingot_cuda)
  set_target_properties(ingot_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  # Its copies of the layers below come from the archive. It exports only ingot_cuda_entry.
  add_library(ingot_cuda_library MODULE $<TARGET_OBJECTS:ingot_cuda>)
  target_link_libraries(ingot_cuda_library PRIVATE ingot CUDA::cudart_static CUDA::cublasLt)
  target_link_options(ingot_cuda_library PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
  set_target_properties(ingot_cuda_library PROPERTIES OUTPUT_NAME ingot-cuda LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                        LINKER_LANGUAGE CXX LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
endfunction()
