# motley_kernels_code(NAME) sets NAME to eight hex digits that change with the code of the host's kernels (but not with
# its comments), with the compiler and with its flags. Times of kernels that differ in any of these are not blended.
function(motley_kernels_code name)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  set(code "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} "
           "${CMAKE_CXX_FLAGS_${build_type}} ${MOTLEY_SANITIZE}")
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/hw/kernels/*.[ch]pp ${CMAKE_SOURCE_DIR}/hw/rank/work.[ch]pp
       ${CMAKE_SOURCE_DIR}/hw/rank/memory.[ch]pp)
  list(SORT files)
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    string(REGEX REPLACE "[ \n]+" " " text "${text}")
    string(APPEND code "${text}")
  endforeach()
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  string(SHA256 hash "${code}")
  string(SUBSTRING ${hash} 0 8 hash)
  set(${name} ${hash} PARENT_SCOPE)
endfunction()
