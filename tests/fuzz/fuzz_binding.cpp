// Fuzz target: the readers of binding files and of --hosts. What is read prints as what reads the same.
#include <optional>

#include "hw/launch/binding.hpp"
#include "models/base/refusal.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void check_printed(const Binding& binding) {
  MOTLEY_CHECK(parse_binding(print(binding), "printed") == binding);
  MOTLEY_CHECK(parse_binding(print_as_json(binding), "printed") == binding);
}

std::optional<Binding> hosts_in(const std::string& list) {
  try {
    return read_hosts(list);
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

}  // namespace

void take(const std::string& input) {
  if (const auto binding = hosts_in(input)) check_printed(*binding);
  check_printed(parse_binding(input, "binding.yaml"));
}

}  // namespace motley::tests
