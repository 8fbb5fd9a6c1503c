# The demo model is part of the program. ingot_embed_demo_model(TARGET) assembles models/demo.gguf into TARGET, byte for
# byte, for src/cli/options/demo_model.h. The data is read-only, so it uses no memory until it is read.
enable_language(ASM)
set(INGOT_DEMO_MODEL ${PROJECT_SOURCE_DIR}/models/demo.gguf CACHE FILEPATH "The GGUF file that is built into the program")

function(ingot_embed_demo_model target)
  if(NOT EXISTS ${INGOT_DEMO_MODEL})
    message(FATAL_ERROR "The demo model ${INGOT_DEMO_MODEL} is missing, and the program has it built in. "
                        "Restore it with `git checkout models/demo.gguf`, rebuild it with tools/demo_model, "
                        "or name another GGUF file with -DINGOT_DEMO_MODEL=FILE.")
  endif()
  set(assembly ${PROJECT_BINARY_DIR}/demo_model.S)
  set(ELF 1)
  if(WIN32)
    set(ELF 0)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/demo_model.S.in ${assembly} @ONLY)
  set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${INGOT_DEMO_MODEL})
  target_sources(${target} PRIVATE ${assembly})
endfunction()
