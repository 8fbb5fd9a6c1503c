# The decoders of src/io/images. Each exists where its library was found; without any, ingot runs models that read text.
# libheif, which brings many codecs, is opened at run time, so only its header is needed here.
pkg_check_modules(LIBJPEG IMPORTED_TARGET libjpeg)
pkg_check_modules(LIBPNG IMPORTED_TARGET libpng)
pkg_check_modules(LIBWEBP IMPORTED_TARGET libwebp libwebpdemux)
pkg_check_modules(LIBHEIF libheif)
find_package(GIF 5)  # giflib has no pkg-config file on most systems

set(ingot_images "")
function(ingot_decoder format found)
  string(TOUPPER ${format} upper)
  set(file ${PROJECT_SOURCE_DIR}/src/io/images/${format}.cc)
  set(decoder nullptr)
  if(found)
    set(decoder decode_${format})
    set(ingot_images ${ingot_images} ${ARGN} PARENT_SCOPE)
  else()
    message(STATUS "ingot: no ${upper} images, because the library is missing")
    set_source_files_properties(${file} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/io/images/decode.cc APPEND PROPERTY COMPILE_DEFINITIONS
               INGOT_IMAGES_${upper}=${decoder})
endfunction()
ingot_decoder(jpeg "${LIBJPEG_FOUND}" PkgConfig::LIBJPEG)
ingot_decoder(png "${LIBPNG_FOUND}" PkgConfig::LIBPNG)
ingot_decoder(webp "${LIBWEBP_FOUND}" PkgConfig::LIBWEBP)
ingot_decoder(gif "${GIF_FOUND}" GIF::GIF)
ingot_decoder(heif "${LIBHEIF_FOUND}")
