// The frameworks that people train with, the version of each that was read, and what an export to one of them is. Read
// next: export.hpp, import.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/words.hpp"

namespace motley {

// What a job can be exported to. The last five start processes, whatever these train with.
enum class ExportTarget : std::uint8_t {
  megatron_lm,
  megatron_bridge,
  flagscale,
  torchtitan,
  deepspeed,
  torchrun,
  sbatch,
  mpirun,
  hostfile,
  rank_map,
};
template <>
inline constexpr auto kWords<ExportTarget> = words("megatron-lm", "megatron-bridge", "flagscale",
                                                   "torchtitan", "deepspeed", "torchrun", "sbatch", "mpirun",
                                                   "hostfile", "rank-map");

// What a scenario can be imported from. `torchrun` is a Megatron-LM line too: its launcher says how many ranks start.
enum class ImportSource : std::uint8_t { megatron_lm, torchrun, flagscale, deepspeed };
template <>
inline constexpr auto kWords<ImportSource> = words("megatron-lm", "torchrun", "flagscale", "deepspeed");

// A framework as it was read: facts in this folder come from this version of its source or manual.
struct FrameworkVersion {
  std::string name;     // "Megatron-LM"
  std::string version;  // "0.20.0"
  std::string source;   // where it was read, with the commit and its date
  std::string text() const { return name + " " + version; }
};
const FrameworkVersion& version_of(ExportTarget target);

struct ExportedFile {
  std::string name;  // "megatron-lm.sh"
  std::string text;
};

// A key of the scenario that the target has no word for and that changes nothing in what it trains.
struct UnsaidKey {
  std::string key;  // "fidelity"
  std::string why;
};

struct Export {
  ExportTarget target = ExportTarget::megatron_lm;
  std::vector<ExportedFile> files;
  std::vector<UnsaidKey> unsaid;
};

}  // namespace motley
