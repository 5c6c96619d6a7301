#include "models/scenario/scenario_text.hpp"

#include <fmt/format.h>

#include <sstream>

#include "models/transformer/train_text.hpp"

namespace motley {
namespace {

std::string section(const char* key, const std::string& lines) {
  std::string text = fmt::format("{}:\n", key), line;
  for (std::istringstream stream(lines); std::getline(stream, line);)
    text += line.empty() ? "\n" : fmt::format("  {}\n", line);
  return text;
}

}  // namespace

std::string print(const Job& job) {
  std::string text = section("model", print(job.transformer)) + section("cluster", print(job.cluster)) +
                     "software: none\n" + section("train", print(job.train)) +
                     section("strategy", print(job.strategy));
  if (job.fidelity != Fidelity{}) text += section("fidelity", print(job.fidelity));
  return text;
}

}  // namespace motley
