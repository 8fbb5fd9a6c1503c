# Models that are part of the program. ingot_build_in(TARGET NAME FILE) assembles a GGUF file into TARGET, byte for byte,
# for src/cli/options/built_in.cc. The data is read-only, so it uses no memory until it is read.
enable_language(ASM)
option(INGOT_DEMO "Build the demo models into the program (15 MB)" ON)
set(INGOT_DEMO_MODEL ${PROJECT_SOURCE_DIR}/models/demo.gguf CACHE FILEPATH "The GGUF file that is built into the program")

function(ingot_build_in target name file)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "The model ${file} is missing, and the program has it built in. Restore it with "
                        "`git checkout models`, rebuild it with tools/demo_model or tools/vision_model, or leave "
                        "such models out with -DINGOT_DEMO=OFF.")
  endif()
  set(symbol ingot_${name})
  set(ELF 1)
  if(WIN32)
    set(ELF 0)
  endif()
  set(assembly ${PROJECT_BINARY_DIR}/${name}.S)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/built_in_models.S.in ${assembly} @ONLY)
  set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(${target} PRIVATE ${assembly})
endfunction()

function(ingot_build_in_models target)
  if(NOT INGOT_DEMO)
    return()
  endif()
  target_compile_definitions(${target} PRIVATE INGOT_DEMO)
  ingot_build_in(${target} demo_model ${INGOT_DEMO_MODEL})
  ingot_build_in(${target} demo_vision ${PROJECT_SOURCE_DIR}/models/demo-vision/demo-vision.gguf)
  ingot_build_in(${target} demo_vision_tower ${PROJECT_SOURCE_DIR}/models/demo-vision/mmproj.gguf)
endfunction()
