# Writes page_parts.cpp, which holds the files of models/page that a page is made of, and D3, as text: D3 is third-party
# code, taken from the package libjs-d3 and never copied into the source tree. It runs as a script when one of the files
# has changed: cmake -DOUT=FILE -DFRAME=FILE -DSTYLE=FILE -DSCRIPTS=FILES -DD3=FILE -P page_parts.cmake
# SCRIPTS: paths with commas between them. D3: empty where it is not installed.
set(code "// Written by the build: see tools/cmake/page_parts.cmake.\n#include \"models/page/page_parts.hpp\"\n\n")
string(APPEND code "namespace motley::page_parts {\n")

function(add_part name)  # further arguments: the files
  set(body "std::string_view ${name}() {\n  static constexpr char kText[] = \"\"\n")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" text)
    if(text MATCHES "\\)page_part\"")
      message(FATAL_ERROR "${file} has the end mark of a part")
    endif()
    string(APPEND body "R\"page_part(${text})page_part\"\n")
  endforeach()
  string(APPEND body "      ;\n  return {kText, sizeof(kText) - 1};\n}\n")
  set(code "${code}${body}" PARENT_SCOPE)
endfunction()

string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
add_part(frame "${FRAME}")
add_part(style "${STYLE}")
add_part(script ${SCRIPTS})
add_part(d3 ${D3})
string(APPEND code "}  // namespace motley::page_parts\n")
file(WRITE "${OUT}" "${code}")
