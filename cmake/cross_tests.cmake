# Tests of a cross-compiled program, run by the emulator of the toolchain file. build-*/ingot-emulated starts the
# program for Python tests, which need a single executable.
set(emulated ${PROJECT_BINARY_DIR}/ingot-emulated)
string(JOIN " " emulator ${CMAKE_CROSSCOMPILING_EMULATOR})
file(GENERATE OUTPUT ${emulated} CONTENT "#!/bin/sh\nexec ${emulator} $<TARGET_FILE:ingot-cli> \"$@\"\n"
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
foreach(test cli/chat/demo cli/chat/talk cli/commands/numbers server/api/chat server/bench_serve)
  string(REGEX REPLACE "/(.*/)?" "." name ${test})
  add_test(NAME ${name}_test COMMAND ${INGOT_PYTHON} -B -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/tests/${test}_test.py)
  set_tests_properties(${name}_test PROPERTIES TIMEOUT 3600 PROCESSORS 2
    ENVIRONMENT "INGOT=${emulated};INGOT_SOURCE=${PROJECT_SOURCE_DIR};INGOT_SLOW=20;INGOT_EMULATED=1;WINEDEBUG=-all")
endforeach()
