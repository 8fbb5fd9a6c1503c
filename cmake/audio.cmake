# The decoder and the resampler of src/io/audio. libsndfile, which brings many codecs, and libsamplerate are opened at
# run time, so only their headers are needed here; without them, ingot reads no audio.
pkg_check_modules(SNDFILE sndfile)
pkg_check_modules(SAMPLERATE samplerate)
set(ingot_audio nullptr)
if(SNDFILE_FOUND AND SAMPLERATE_FOUND)
  set(ingot_audio open_sndfile)
  include_directories(SYSTEM ${SNDFILE_INCLUDE_DIRS} ${SAMPLERATE_INCLUDE_DIRS})
else()
  message(STATUS "ingot: no audio, because the headers of libsndfile or libsamplerate are missing")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/io/audio/sndfile.cc PROPERTIES HEADER_FILE_ONLY ON)
endif()
set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/io/audio/decode.cc APPEND PROPERTY COMPILE_DEFINITIONS
             INGOT_AUDIO_OPEN=${ingot_audio})
