# A room is a folder of sources and a library; it links the rooms below it and no others, as tests/tidy holds its
# includes to. tests/CMakeLists.txt links each room whole with only what is named here: a call upwards fails there.
#
# motley_room(FOLDER [BELOW room...] [PUBLIC library...] [PRIVATE library...]): of "models/cost", the library
# motley_models_cost. A folder holds its own files, not those of folders inside it, unless INNER is said.
function(motley_room folder)
  cmake_parse_arguments(ROOM "INNER" "" "BELOW;PUBLIC;PRIVATE" ${ARGN})
  string(REPLACE "/" "_" name "motley_${folder}")
  if(ROOM_INNER)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  endif()
  list(FILTER sources EXCLUDE REGEX "/hw/(device/cuda|device/hip|transport/verbs)/")  # optional_parts.cmake
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(${name} STATIC ${sources})
  list(TRANSFORM ROOM_BELOW REPLACE "/" "_")
  list(TRANSFORM ROOM_BELOW PREPEND "motley_")
  target_link_libraries(${name} PUBLIC motley_flags ${ROOM_BELOW} ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY MOTLEY_ROOMS ${name})
endfunction()
