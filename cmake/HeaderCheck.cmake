# The test `headers_compile_alone`: one generated source per header that includes it first and alone.
# A header whose own source begins with it is left out where a target builds that source: the build
# has shown it already, and most headers are of this kind. The list is globbed, against the house
# rule, because a header that nobody lists is just the one to check. Built on demand by ctest, so
# that a bad header fails a test and not the build.
set(header_folders base kernels models engine profiler server tests)
set(header_patterns ${header_folders})
list(TRANSFORM header_patterns PREPEND "${PROJECT_SOURCE_DIR}/")
list(TRANSFORM header_patterns APPEND "/*.h")
file(
  GLOB_RECURSE headers
  RELATIVE ${PROJECT_SOURCE_DIR}
  CONFIGURE_DEPENDS ${header_patterns})
# gRPC code and the headers that protoc makes exist only where their libraries were found.
if(NOT TARGET headroom_grpc)
  list(FILTER headers EXCLUDE REGEX "^server/grpc/")
endif()

# Sets OUT to the sources, as paths, that the default targets of FOLDER and below build.
function(headroom_built_sources folder out)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  set(found)
  foreach(target IN LISTS targets)
    get_target_property(is_left_out ${target} EXCLUDE_FROM_ALL)
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(sources AND NOT is_left_out AND type MATCHES "LIBRARY|EXECUTABLE")
      foreach(source IN LISTS sources)
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
        list(APPEND found ${source})
      endforeach()
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    headroom_built_sources(${subfolder} below)
    list(APPEND found ${below})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()
headroom_built_sources(${PROJECT_SOURCE_DIR} built_sources)

# Whether the first directive of HEADER's source includes it, in a source that is built.
function(headroom_has_own_source header out)
  string(REGEX REPLACE "h$" "cc" source "${PROJECT_SOURCE_DIR}/${header}")
  set(${out} FALSE PARENT_SCOPE)
  if(source IN_LIST built_sources)
    file(STRINGS ${source} first LIMIT_COUNT 1 REGEX "^[ \t]*#")
    if(first STREQUAL "#include \"${header}\"")
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(header_sources)
foreach(header IN LISTS headers)
  headroom_has_own_source(${header} is_shown)
  if(is_shown)
    continue()
  endif()
  set(source ${PROJECT_BINARY_DIR}/header_check/${header}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"@header@\"\n" @ONLY)
  list(APPEND header_sources ${source})
  if(header MATCHES "^kernels/cpu/" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(
      ${source} PROPERTIES COMPILE_OPTIONS
                           "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mavx512vnni;-mfma;-mf16c")
  endif()
endforeach()

add_library(headroom_header_check OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_link_libraries(
  headroom_header_check PRIVATE headroom_options fmt::fmt absl::status absl::statusor
                                nlohmann_json::nlohmann_json CLI11::CLI11 GTest::gmock GTest::gtest
                                PkgConfig::PROMETHEUS PkgConfig::PCRE2 Boost::headers)
target_compile_options(headroom_header_check PRIVATE -O0 -Werror -Wno-unused-function)
target_compile_definitions(headroom_header_check
                           PRIVATE HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_test(NAME headers_compile_alone COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target
                                            headroom_header_check)
set_tests_properties(headers_compile_alone PROPERTIES LABELS "layering;slow" TIMEOUT 900)
