// Fuzz target: each line is what somebody writes behind --set: the values of a sweep, and a change of a small scenario,
// which is then read.
#include <fmt/format.h>

#include <sstream>

#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "models/sweep/sweep_axis.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void take(const std::string& input) {
  constexpr std::size_t kMostRead = 3;
  static const Yaml small = parse_yaml(small_scenario(), "small.yaml");
  std::vector<SweepAxis> axes;
  for (const std::string& line : lines_of(input)) axes.push_back(parse_axis(line));
  const std::size_t count = scenario_count(axes);
  for (std::size_t number = 0; number < std::min(count, kMostRead); ++number) {
    const std::vector<ScenarioSetting> settings = parse_settings(settings_of(axes, number));
    const Yaml changed = with_settings(small, "small.yaml", settings);
    const std::string text = print_yaml(changed);
    MOTLEY_CHECK(print_yaml(parse_yaml(text, "printed.yaml")) == text);
    if (!has_many_chips(changed)) read_scenario(changed, "small.yaml");
  }
}

}  // namespace motley::tests
