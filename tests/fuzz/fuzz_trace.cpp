// Fuzz target: a trace and the Program in its head are read, and compared with themselves.
#include "models/check/check.hpp"
#include "models/trace/compare.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  const std::string path = file_with(input);
  const Trace trace = read_trace(path);
  const Program program = read_program_of_trace(path);
  check_indices(program);
  const Comparison comparison = compare(program, trace, trace);
  check_finite(to_text(comparison));
  check_finite(to_json(comparison));
}

}  // namespace motley::tests
