# What a package has beside `make install`: the systemd unit, the licences of what is linked in, and CPack's settings
# for .deb and .rpm. scripts/packages/make.sh runs CPack. The targets *_portable are the program and the library for
# Python wheels: they contain the C++ library, so that they run on systems with an older one.
foreach(package ${INGOT_LINKED_PACKAGES})
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${package}.txt)
endforeach()
install(FILES deploy/ingot.service DESTINATION lib/systemd/system)

function(ingot_make_portable target from)
  foreach(property TYPE SOURCES LINK_LIBRARIES LINK_OPTIONS OUTPUT_NAME)
    get_target_property(${property} ${from} ${property})
  endforeach()
  if(TYPE STREQUAL "EXECUTABLE")
    add_executable(${target} ${SOURCES})
  else()
    add_library(${target} SHARED ${SOURCES})
  endif()
  target_link_libraries(${target} PRIVATE ${LINK_LIBRARIES})
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/portable/arc4random.cc)
  set(folder ${CMAKE_BINARY_DIR}/portable)
  set_target_properties(${target} PROPERTIES LINK_OPTIONS "${LINK_OPTIONS};-static-libstdc++;-s"
                        OUTPUT_NAME ${OUTPUT_NAME} RUNTIME_OUTPUT_DIRECTORY ${folder} LIBRARY_OUTPUT_DIRECTORY ${folder})
endfunction()
ingot_make_portable(ingot_program_portable ingot-cli)
ingot_make_portable(ingot_library_portable ingot_shared)

set(CPACK_PACKAGE_NAME ingot)
set(CPACK_PACKAGE_VENDOR "The ingot authors")
set(CPACK_PACKAGE_CONTACT "The ingot authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Runs open language models on CPUs and NVIDIA GPUs")
string(CONCAT CPACK_PACKAGE_DESCRIPTION
       "ingot runs GGUF files and Hugging Face or MLX directories: in a terminal, as a server with the APIs of OpenAI "
       "and Anthropic, or as a library. It contains a small demo model.")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4, ca-certificates, libsndfile1, libsamplerate0")  # opened at run time

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/systemd /usr/lib/systemd/system /usr/${CMAKE_INSTALL_LIBDIR}
    /usr/${CMAKE_INSTALL_LIBDIR}/cmake /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig /usr/share/man /usr/share/man/man1
    /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/fish /usr/share/fish/vendor_completions.d /usr/share/zsh
    /usr/share/zsh/site-functions)
# The same bytes in each run: no name of the machine, and no time but SOURCE_DATE_EPOCH.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_times.cmake)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _buildhost reproducible
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _build_id_links none
%global __os_install_post %{nil}")
include(CPack)
