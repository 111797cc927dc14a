# tidemark_proto_classes(NAME FILE): a library of the classes that protoc generates from a .proto.
find_package(Protobuf REQUIRED)

function(tidemark_proto_classes NAME FILE)
  get_filename_component(base ${FILE} NAME_WE)
  get_filename_component(folder ${FILE} DIRECTORY)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${NAME})
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/${base}.pb.cc ${out}/${base}.pb.h
    COMMAND protobuf::protoc --proto_path=${folder} --cpp_out=${out} ${FILE}
    DEPENDS ${FILE}
    VERBATIM)
  add_library(${NAME} STATIC ${out}/${base}.pb.cc)
  target_include_directories(${NAME} SYSTEM PUBLIC ${out})
  target_link_libraries(${NAME} PUBLIC protobuf::libprotobuf)
endfunction()
