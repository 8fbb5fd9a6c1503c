# Compiles src/backend/cpu/kernels/*.cc once for each instruction set, as the object libraries ingot_cpu_<isa>. Each set
# has its own namespace (INGOT_ISA) and header (kernels/isa/). src/backend/cpu/isa_*.cc list the same sets and choose
# one at run time.
function(ingot_cpu_kernels)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx_vnni ${avx2} "-DINGOT_VNNI_ENCODING=\"$<IF:$<BOOL:${INGOT_TEST_AVX_VNNI}>,evex,vex>\"")
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mavx512vnni)
    set(avx512bf16 ${avx512} -mavx512bf16 -mavx512vbmi)
    set(isas portable avx2 avx_vnni avx512 avx512bf16)
    set(headers ${isas})
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    # GCC schedules instructions before it allocates registers here, and then runs out of registers. That makes the
    # tiles a fifth slower.
    set(neon_dot -march=armv8.2-a+dotprod $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
    set(neon_i8mm -march=armv8.2-a+dotprod+i8mm+bf16 $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
    set(isas portable neon_dot neon_i8mm)
    set(headers neon neon_dot neon_i8mm)
  else()
    set(isas portable)
    set(headers portable)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/kernels/*.cc)
  get_property(layers GLOBAL PROPERTY INGOT_LAYERS)
  list(FIND layers ingot_backend place)
  # With sanitizers, GCC needs ten minutes for each file of tiles at -O3.
  set(level -O3)
  if(INGOT_SANITIZE)
    set(level -O1)
  endif()
  # The fuzz build tests parsers and the server, so its kernels are not instrumented: Clang would need ten minutes for
  # one tile. `make asan` instruments the kernels.
  if(INGOT_FUZZ)
    list(APPEND level -fno-sanitize=all)
  endif()
  foreach(isa header IN ZIP_LISTS isas headers)
    set(target ingot_cpu_${isa})
    # Some files are for some sets only: part_tile.cc for those that multiply 16-bit integers at twice the rate of f32
    # (kInt16Tile), bf16_panel.cc and int8_panel.cc for the set whose processors may have a matrix unit (kBf16Blocks).
    set(own ${sources})
    if(NOT isa MATCHES "^avx")
      list(FILTER own EXCLUDE REGEX "/part_tile\\.cc$")
    endif()
    if(NOT isa STREQUAL "avx512bf16")
      list(FILTER own EXCLUDE REGEX "/(bf16|int8)_panel\\.cc$")
    endif()
    add_library(${target} OBJECT ${own})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE INGOT_ISA=${isa}
                               INGOT_ISA_HEADER="backend/cpu/kernels/isa/${header}.h")
    # Optimised in every build type, because the vector types depend on the optimiser. Contraction turns a * b + c into
    # fused multiply-adds.
    target_compile_options(${target} PRIVATE ${${isa}} ${level} -ffp-contract=fast -fno-math-errno -fno-trapping-math
                           $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized -Wno-psabi>)  # GCC 12's own headers
    list(INSERT layers ${place} ${target})
  endforeach()
  # The tiles of the matrix unit; the rest of this set is that of avx512bf16.
  set(amx OFF)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64" AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(amx ON)
    set(folder ${PROJECT_SOURCE_DIR}/src/backend/cpu/amx)
    add_library(ingot_cpu_amx OBJECT ${folder}/amx_bytes.cc ${folder}/amx_tile.cc ${folder}/amx_unit.cc)
    target_include_directories(ingot_cpu_amx PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(ingot_cpu_amx PRIVATE -mamx-tile -mamx-bf16 -mamx-int8 -O3)
    list(INSERT layers ${place} ingot_cpu_amx)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cpu/isa_x86.cc PROPERTIES COMPILE_DEFINITIONS
                              "INGOT_TEST_AVX_VNNI=$<BOOL:${INGOT_TEST_AVX_VNNI}>;INGOT_AMX=$<BOOL:${amx}>")
  set_property(GLOBAL PROPERTY INGOT_LAYERS "${layers}")
endfunction()
