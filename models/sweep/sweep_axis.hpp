// The values that a sweep gives to one key of a scenario, as `--set KEY=VALUES` lists them. Read next:
// models/sweep/sweep_table.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace motley {

struct SweepAxis {
  std::string key;                  // "strategy.tensor_parallel"
  std::vector<std::string> values;  // as a scenario would have them: "100 Gb/s", "[1, 2]"
};

inline constexpr std::size_t kMostSweptScenarios = 1'000'000;

// Reads "KEY=2,4,8", "KEY=1..8" (whole steps), "KEY=1..2:+0.25", "KEY=100..800Gb/s:x2" (each twice the one before), or
// any mixture of these with commas. Commas inside brackets, braces and quotes belong to a value. Throws Refusal
// bad-setting.
SweepAxis parse_axis(const std::string& text);

// How many scenarios there are: each value of every axis with each of the others. Throws Refusal bad-setting where
// there are more than kMostSweptScenarios.
std::size_t scenario_count(const std::vector<SweepAxis>& axes);

// The values of scenario `number`, one for each axis; the last axis changes first.
std::vector<std::string> values_of(const std::vector<SweepAxis>& axes, std::size_t number);

// The scenario's settings: "KEY=VALUE" for each axis.
std::vector<std::string> settings_of(const std::vector<SweepAxis>& axes, std::size_t number);

// Whether this process does scenario `number`, of `shards` processes that share a sweep.
struct SweepShard {
  std::size_t index = 0, count = 1;
  bool has(std::size_t number) const { return number % count == index; }
};
// Reads "0/4". Throws Refusal bad-shard.
SweepShard parse_sweep_shard(const std::string& text);

}  // namespace motley
