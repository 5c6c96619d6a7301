// Reads the Program in the head of a written trace (trace.cpp). The head is the file's first line, so that a trace of
// hundreds of megabytes need not be read.
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/trace/trace.hpp"

namespace motley {

Program read_program_of_trace(const std::string& path) {
  refuse_irregular_file(path);
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line))
    throw Refusal(Exit::usage, "bad-trace", {.file = path}, "cannot be read", "is the path right?");
  if (line.ends_with(',')) line.back() = '}';
  const nlohmann::json head = nlohmann::json::parse(line, nullptr, false);
  const auto pointer = nlohmann::json::json_pointer("/motley/program");
  if (head.is_discarded() || !head.is_object() || !head.contains(pointer) || !head[pointer].is_string())
    throw Refusal(Exit::usage, "bad-trace", {.file = path, .line = 1, .column = 1},
                  "its first line holds no program", "a trace is what motley --trace wrote");
  return parse_program(head[pointer].get<std::string>(), path);
}

}  // namespace motley
