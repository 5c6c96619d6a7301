// What all fuzz targets share: target.cpp hands each input to take(), which every target defines for one reader.
#pragma once

#include <cstdint>
#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/program/program.hpp"
#include "models/strategy/strategy.hpp"

namespace motley::tests {

// Reads the input, and does with what was read what the commands do. A Refusal is an answer; any other exception, a
// sanitizer's report, and more time or memory than target.cpp allows are findings.
void take(const std::string& input);

// Breaks a promise where the text, which a command would print, holds an infinity or NaN. A hyphen before or behind
// it makes it a part of a name.
void check_finite(const std::string& printed);

// The path of a file with this text. The next call overwrites it.
std::string file_with(const std::string& text);

// The largest jobs that a target takes further than its reader: larger ones are right to need more time and memory.
inline constexpr std::int64_t kMostChips = 4096, kMostPublishedChips = 1024, kMostInstructions = 20'000;

// Whether the lists of groups below this node describe more chips in all than kMostChips. What is no number is none.
bool has_many_chips(const Yaml& node);
// Layers of all stages, each for every micro-batch: most instructions of a Program belong to one of them.
std::int64_t estimated_passes(const Strategy& strategy);
// Instructions of all ranks of the Program.
std::int64_t instruction_count(const Program& program);

// A group of one node, as in a list of groups, with InfiniBand and Ethernet NICs.
std::string small_group(const std::string& name, const std::string& chip, int chips = 2);
// The text of a scenario: one layer on each of two stages. An empty cluster: two host cores.
std::string small_scenario(const std::string& precision = "fp32", const std::string& cluster = "");

}  // namespace motley::tests
