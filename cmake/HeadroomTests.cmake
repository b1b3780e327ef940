# headroom_test(NAME SOURCES ... DEPS ... [LABEL unit|property|golden|integration] [TIMEOUT s]
#               [SLOW] [THREADS]): a gtest binary registered with ctest.
#   SLOW     left out of `scripts/test.sh --quick`
#   THREADS  also run under ThreadSanitizer
# Each test writes its cases to test_results/NAME.xml in the build directory; scripts/count_tests.py
# adds them up. The targets headroom_tests_LABEL and headroom_tests_threads build what they name.
# headroom_fuzz_target(NAME SOURCES ... DEPS ...): a libFuzzer target, built under HEADROOM_FUZZ.
include_guard(GLOBAL)

function(headroom_test name)
  cmake_parse_arguments(ARG "SLOW;THREADS" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "headroom_test(${name}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
    if(HEADROOM_SANITIZE) # which slows the kernels' tests down tenfold
      set(ARG_TIMEOUT 1200)
    endif()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headroom_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(labels ${ARG_LABEL})
  if(ARG_SLOW)
    list(APPEND labels slow)
  endif()
  if(ARG_THREADS)
    list(APPEND labels threads)
  endif()
  set_tests_properties(
    ${name}
    PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
               "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test_results/${name}.xml")
  foreach(label IN LISTS labels)
    if(NOT TARGET headroom_tests_${label})
      add_custom_target(headroom_tests_${label})
    endif()
    add_dependencies(headroom_tests_${label} ${name})
  endforeach()
endfunction()

function(headroom_fuzz_target name)
  if(NOT HEADROOM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headroom_options ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_compile_definitions(${name} PRIVATE HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  if(NOT TARGET headroom_fuzz_targets)
    add_custom_target(headroom_fuzz_targets)
  endif()
  add_dependencies(headroom_fuzz_targets ${name})
endfunction()
