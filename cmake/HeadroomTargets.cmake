# headroom_library(NAME SOURCES ... DEPS ... PRIVATE_DEPS ...): one static library of a folder.

add_library(headroom_options INTERFACE)
target_include_directories(headroom_options INTERFACE ${PROJECT_SOURCE_DIR})
# The numeric contract: no contraction but where a kernel asks for it. -Wrestrict: GCC 12 takes
# joined strings for overlapping copies (its bug 105651).
target_compile_options(
  headroom_options INTERFACE -Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-restrict
                             -ffp-contract=off
                             $<$<BOOL:${HEADROOM_WERROR}>:-Werror>)
if(NOT HEADROOM_SANITIZE MATCHES "^(address|thread|fuzzer)?$")
  message(FATAL_ERROR "HEADROOM_SANITIZE: got '${HEADROOM_SANITIZE}', wanted empty, address, "
                      "thread or fuzzer")
endif()
if(HEADROOM_SANITIZE STREQUAL "address")
  target_compile_options(
    headroom_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                               -fno-omit-frame-pointer)
  target_link_options(headroom_options INTERFACE -fsanitize=address,undefined)
elseif(HEADROOM_SANITIZE STREQUAL "thread")
  target_compile_options(headroom_options INTERFACE -fsanitize=thread -Wno-tsan)
  target_link_options(headroom_options INTERFACE -fsanitize=thread)
elseif(HEADROOM_SANITIZE STREQUAL "fuzzer")
  target_compile_options(
    headroom_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
                               -fno-sanitize-recover=undefined)
  target_link_options(headroom_options INTERFACE -fsanitize=address,undefined)
endif()

function(headroom_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(
    ${name}
    PUBLIC headroom_options ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()
