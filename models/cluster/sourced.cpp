#include "models/cluster/sourced.hpp"

#include <fmt/format.h>

namespace motley {
namespace {

// The source of a figure that stands alone: `bf16: 500 TFLOP/s`.
constexpr const char* kNotStated = "not stated";

std::string print_pair(const std::string& value, const std::string& source) {
  return fmt::format("{{value: {}, source: {}}}", value, quote(source));
}

}  // namespace

Sourced read_sourced(const Yaml& node, std::optional<Dimension> dimension, Sign sign) {
  const auto number = [&](const Yaml& value) {
    return dimension ? to_quantity(value, *dimension, sign) : to_number(value, sign);
  };
  if (node->is_scalar()) return {number(node), kNotStated};
  const Fields fields(node, "a figure", {"value", "source"});
  return {number(fields.need("value")), to_text(fields.need("source"))};
}

std::string print(const Sourced& figure, std::optional<Dimension> dimension) {
  return print_pair(dimension ? format_exact(figure.value, *dimension) : format_exact(figure.value),
                    figure.source);
}

SourcedSwitch read_switch(const Yaml& node) {
  if (node->is_scalar()) return {to_integer(node, {0, 1}) == 1, kNotStated};
  const Fields fields(node, "a figure", {"value", "source"});
  return {to_integer(fields.need("value"), {0, 1}) == 1, to_text(fields.need("source"))};
}

std::string print(const SourcedSwitch& choice) { return print_pair(choice.value ? "1" : "0", choice.source); }

}  // namespace motley
