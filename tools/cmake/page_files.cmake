# motley_page_files(TARGET) gives the target the files of a page as text: page_parts.cmake writes them. Debian's package
# libjs-d3 has D3, which draws the plots; without it the program has no `motley report`, and says so.
find_file(MOTLEY_D3 d3.min.js PATHS /usr/share/javascript/d3 /usr/share/nodejs/d3/dist NO_DEFAULT_PATH)

function(motley_page_files target)
  set(folder ${CMAKE_SOURCE_DIR}/models/page)
  file(GLOB scripts CONFIGURE_DEPENDS ${folder}/*.js)
  list(SORT scripts)
  string(REPLACE ";" "," joined "${scripts}")
  set(d3 "${MOTLEY_D3}")
  if(NOT d3)
    set(d3 "")
  endif()
  set(code ${CMAKE_BINARY_DIR}/page_parts.cpp)
  set(writer ${CMAKE_SOURCE_DIR}/tools/cmake/page_parts.cmake)
  add_custom_command(
    OUTPUT ${code}
    COMMAND ${CMAKE_COMMAND} -DOUT=${code} -DFRAME=${folder}/page.html -DSTYLE=${folder}/page.css -DSCRIPTS=${joined}
            -DD3=${d3} -P ${writer}
    DEPENDS ${writer} ${folder}/page.html ${folder}/page.css ${scripts} ${d3}
    COMMENT "Writing page_parts.cpp" VERBATIM)
  target_sources(${target} PRIVATE ${code})
  set_source_files_properties(${code} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
