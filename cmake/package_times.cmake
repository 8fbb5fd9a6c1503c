# CPack runs this script on the files of a package: every time is SOURCE_DATE_EPOCH. rpmbuild itself only makes later
# times earlier, so a file that is older than the commit would keep its own.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find ${CPACK_TEMPORARY_DIRECTORY} -exec touch -h -d "@$ENV{SOURCE_DATE_EPOCH}" {} +
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
