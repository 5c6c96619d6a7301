// One accelerator, or a CPU core acting as one: what its datasheet says, and beside it what software makes of it. Every
// figure has its source. Read next: models/cluster/chip_software.hpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/base/format.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/cluster/chip_software.hpp"
#include "models/cluster/sourced.hpp"

namespace motley {

struct Chip {
  std::string name;                      // a100-80gb-sxm
  std::string vendor;                    // nvidia
  std::string kind;                      // gpu, cpu, tpu or npu
  std::map<Format, Sourced> peak_flops;  // dense, flop/s
  Sourced memory_bytes;
  Sourced memory_bandwidth;  // bytes/s
  Sourced multiprocessors;   // tiles that run at once, for wave quantisation; 0: not modelled
  Sourced watts;             // design power; 0: unknown
  Sourced price_per_hour;    // USD; 0: unknown
  ChipSoftware software;
  bool operator==(const Chip&) const = default;
};

// The keys of a chip's file: those that its datasheet answers fill Chip itself, the others Chip::software.
std::vector<std::string> datasheet_keys();
std::vector<std::string> software_keys();

// The file has one map for both parts. Throws Refusal for a key or a figure that cannot stand there.
Chip read_chip(const Yaml& node, const std::string& default_name);
Chip load_chip(const std::string& path_or_name);  // a shipped name or a path
// `node` holds some figures of a chip alone, each {value, source}. They replace the chip's own.
void replace_figures(const Yaml& node, Chip& chip);
std::string print(const Chip& chip, const std::string& indent);  // read_chip() takes it back

}  // namespace motley
