// The files of this folder and of D3, which the build puts into the program: see tools/cmake/page_parts.cmake.
#pragma once

#include <string_view>

namespace motley::page_parts {

std::string_view frame();   // page.html
std::string_view style();   // page.css
std::string_view script();  // all *.js of this folder
std::string_view d3();      // d3.min.js; empty: it was not found

}  // namespace motley::page_parts
