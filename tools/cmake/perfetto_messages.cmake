# motley_perfetto_messages(TARGET) gives the target the messages of models/trace/perfetto.proto, if libprotobuf and its
# compiler are there; without them the program writes no Perfetto protobuf, and says so.
find_package(Protobuf QUIET)

function(motley_perfetto_messages target)
  if(NOT TARGET protobuf::libprotobuf-lite OR NOT TARGET protobuf::protoc)
    return()
  endif()
  set(proto ${CMAKE_SOURCE_DIR}/models/trace/perfetto.proto)
  set(folder ${CMAKE_BINARY_DIR}/perfetto_messages)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${folder}/perfetto.pb.cc ${folder}/perfetto.pb.h
    COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/models/trace --cpp_out=${folder} ${proto}
    DEPENDS ${proto} COMMENT "Writing perfetto.pb.cc" VERBATIM)
  # Code that protoc wrote is not held to the project's warnings.
  add_library(motley_perfetto_messages OBJECT ${folder}/perfetto.pb.cc ${folder}/perfetto.pb.h)
  target_include_directories(motley_perfetto_messages SYSTEM PUBLIC ${folder})
  target_link_libraries(motley_perfetto_messages PUBLIC protobuf::libprotobuf-lite)
  if(MOTLEY_SANITIZE)
    target_compile_options(motley_perfetto_messages PRIVATE -fsanitize=${MOTLEY_SANITIZE})
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:motley_perfetto_messages>)
  target_include_directories(${target} SYSTEM PRIVATE ${folder})
  target_link_libraries(${target} PRIVATE protobuf::libprotobuf-lite)
  target_compile_definitions(${target} PRIVATE MOTLEY_PROTOBUF)
  add_dependencies(${target} motley_perfetto_messages)
endfunction()
