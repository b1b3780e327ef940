# headroom_library(NAME SOURCES ... DEPS ... PRIVATE_DEPS ...): one static library of a folder.
# headroom_test(NAME SOURCES ... DEPS ... LABEL unit|property|golden|integration ...): a gtest binary
# registered with ctest.

add_library(headroom_options INTERFACE)
target_include_directories(headroom_options INTERFACE ${PROJECT_SOURCE_DIR})
# The numeric contract: no contraction but where a kernel asks for it.
target_compile_options(
  headroom_options INTERFACE -Wall -Wextra -Wshadow -Wno-unused-parameter -ffp-contract=off
                             $<$<BOOL:${HEADROOM_WERROR}>:-Werror>)
if(HEADROOM_SANITIZE STREQUAL "address")
  target_compile_options(headroom_options INTERFACE -fsanitize=address,undefined
                                                    -fno-omit-frame-pointer)
  target_link_options(headroom_options INTERFACE -fsanitize=address,undefined)
elseif(HEADROOM_SANITIZE STREQUAL "thread")
  target_compile_options(headroom_options INTERFACE -fsanitize=thread -Wno-tsan)
  target_link_options(headroom_options INTERFACE -fsanitize=thread)
endif()

function(headroom_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(
    ${name}
    PUBLIC headroom_options ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

function(headroom_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE headroom_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
