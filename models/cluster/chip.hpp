// One accelerator, or a CPU core acting as one: its datasheet, and what software makes of it. Every figure has its
// source. Read next: models/cluster/chip_software.hpp.
#pragma once

#include <cstdint>
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
  std::string family;                    // ampere: the architecture; empty: unknown
  std::string kind;                      // gpu, cpu, tpu or npu
  std::map<Format, Sourced> peak_flops;  // flop/s of dense matrix products
  Sourced memory_bytes;
  Sourced memory_bandwidth;  // bytes/s
  Sourced multiprocessors;   // number of tiles that run at once, for wave quantisation; 0: not modelled
  Sourced watts;             // design power; 0: unknown
  Sourced price_per_hour;    // USD; 0: unknown
  std::string usual_node;  // the shipped cluster whose nodes are the usual ones of this chip; empty: unknown
  ChipSoftware software;
  bool operator==(const Chip&) const = default;
};

// The keys of a chip's file: those of the datasheet fill Chip itself, the others fill Chip::software.
std::vector<std::string> datasheet_keys();
std::vector<std::string> software_keys();

// Reads a chip from a map with keys of both parts. Throws Refusal for an unknown key or figure.
Chip read_chip(const Yaml& node, const std::string& default_name);
Chip load_chip(const std::string& path_or_name);  // a shipped name or a path
// own: figures of the chip. factors: figures of any chip, whose shares are factors on a chip's own, and may be above 1.
enum class FigureUse : std::uint8_t { own, factors };
// Replaces some figures of a chip. `node` holds only these, each as {value, source}.
void replace_figures(const Yaml& node, Chip& chip, FigureUse use = FigureUse::own);
std::string print(const Chip& chip, const std::string& indent);  // read_chip() reads it back

}  // namespace motley
