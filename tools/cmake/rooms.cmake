# A room is a folder of sources and a library. It links only the rooms below it; tests/tidy checks its includes in the
# same way. tests/CMakeLists.txt links each whole room with only what is named here: a call upwards fails there.
#
# motley_room(FOLDER [INNER] [BELOW room...] [PUBLIC library...] [PRIVATE library...]) makes the library
# motley_models_cost of the folder "models/cost". A room has the files of its folder; INNER adds those of folders in it.
function(motley_room folder)
  cmake_parse_arguments(ROOM "INNER" "" "BELOW;PUBLIC;PRIVATE" ${ARGN})
  string(REPLACE "/" "_" name "motley_${folder}")
  if(ROOM_INNER)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  endif()
  list(FILTER sources EXCLUDE REGEX "/hw/(device/(cuda|hip)/|transport/verbs/probe)")  # see optional_parts.cmake
  if(IBVERBS_FOUND)
    list(FILTER sources EXCLUDE REGEX "/hw/transport/verbs/absent\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/hw/transport/verbs/(port|device|queue_pair|transport)\\.cpp$")
  endif()
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(${name} STATIC ${sources})
  list(TRANSFORM ROOM_BELOW REPLACE "/" "_")
  list(TRANSFORM ROOM_BELOW PREPEND "motley_")
  target_link_libraries(${name} PUBLIC motley_flags ${ROOM_BELOW} ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY MOTLEY_ROOMS ${name})
endfunction()
