# How the libraries are linked. With INGOT_PACKAGE, a build for a package: the libraries whose sonames differ between
# systems become part of the program and of libingot.so, and packages carry their licences. OpenSSL stays shared, so
# that the system's security updates reach it. libcurl is opened at run time (src/io/hub/libcurl.h) except on Windows.
option(INGOT_PACKAGE "Build for a package: fmt, utf8proc, PCRE2, libedit and the decoders of images are linked statically, and CPack is set up" OFF)

# The Debian packages whose licences a package carries, and the archives that are linked.
set(INGOT_LINKED_PACKAGES libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev libbsd-dev libmd-dev
                          libncurses-dev libboost1.81-dev libjpeg-dev libpng-dev zlib1g-dev libwebp-dev libgif-dev)
set(INGOT_ARCHIVES_PCRE2 libpcre2-8.a)
set(INGOT_ARCHIVES_UTF8PROC libutf8proc.a)
set(INGOT_ARCHIVES_LIBEDIT libedit.a libbsd.a libmd.a libtinfo.a)
set(INGOT_ARCHIVES_LIBJPEG libjpeg.a)
set(INGOT_ARCHIVES_LIBPNG libpng16.a libz.a)
set(INGOT_ARCHIVES_LIBWEBP libwebpdemux.a libwebp.a)
set(INGOT_ARCHIVES_GIF libgif.a)

set(ingot_fmt fmt::fmt)
set(ingot_curl CURL::libcurl)
if(NOT WIN32)  # only its headers
  set(ingot_curl ingot_curl_headers)
  add_library(ingot_curl_headers INTERFACE)
  target_include_directories(ingot_curl_headers SYSTEM INTERFACE ${CURL_INCLUDE_DIRS})
  target_link_libraries(ingot_curl_headers INTERFACE ${CMAKE_DL_LIBS})
endif()
if(NOT INGOT_PACKAGE OR WIN32)
  return()
endif()

set(ingot_fmt fmt::fmt-header-only)  # Debian has no archive of fmt
foreach(library PCRE2 UTF8PROC LIBEDIT LIBJPEG LIBPNG LIBWEBP GIF)
  set(paths "")
  foreach(archive ${INGOT_ARCHIVES_${library}})
    find_library(INGOT_ARCHIVE_${archive} NAMES ${archive} REQUIRED)
    list(APPEND paths ${INGOT_ARCHIVE_${archive}})
  endforeach()
  if(library STREQUAL "GIF")
    set_target_properties(GIF::GIF PROPERTIES IMPORTED_LOCATION "${paths}")
  else()
    set_target_properties(PkgConfig::${library} PROPERTIES INTERFACE_LINK_LIBRARIES "${paths}")
  endif()
endforeach()
