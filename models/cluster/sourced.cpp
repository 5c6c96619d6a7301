#include "models/cluster/sourced.hpp"

#include <fmt/format.h>

namespace motley {
namespace {

// The source of a figure that stands alone: `bf16: 500 TFLOP/s`.
constexpr const char* kNotStated = "not stated";

std::string print_pair(const std::string& value, const std::string& source) {
  return fmt::format("{{value: {}, source: {}}}", value, quote(source));
}

// Reads the figure's value by `read`.
template <class Read>
Sourced read_with_source(const Yaml& node, Read read) {
  if (node->is_scalar()) return {read(node), kNotStated};
  const Fields fields(node, "a figure", {"value", "source"});
  return {read(fields.need("value")), to_text(fields.need("source"))};
}

}  // namespace

Sourced read_sourced(const Yaml& node, Dimension dimension, Sign sign) {
  return read_with_source(node, [&](const Yaml& value) { return to_quantity(value, dimension, sign); });
}

Sourced read_sourced(const Yaml& node, const NumberBounds& bounds) {
  return read_with_source(node, [&](const Yaml& value) { return to_bounded_number(value, bounds); });
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
