// Reads the Program in the head of a written trace (trace.cpp). The head is the file's first line, so that a trace of
// hundreds of megabytes need not be read.
#include <nlohmann/json.hpp>

#include "models/base/gzip.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/trace/trace.hpp"
#include "models/trace/trace_file.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostHeadBytes = std::size_t{1} << 30;  // as much as a whole trace may have

}  // namespace

Program read_program_of_trace(const std::string& path) {
  refuse_irregular_file(path);
  refuse_perfetto_trace(path);
  std::string line = read_head(path, '\n', kMostHeadBytes);
  if (line.empty())
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
