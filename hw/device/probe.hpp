// Asks this machine which optional parts it has: GPUs, RDMA cards and the libraries that drive them. Each vendor's
// probe is a shared module of its own (hw/device/probe_module.hpp), loaded at run time, so that the program starts
// where a toolkit is absent. It does not choose a device: the user does. Read next: hw/device/cuda/probe.cu,
// hw/transport/verbs/probe.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley {

enum class PartState : std::uint8_t {
  absent,    // this build left it out
  compiled,  // built, but did not run here: `detail` says why
  ran,       // built, and did real work here
};
std::string_view name_of(PartState state);

struct PartReport {
  std::string name = {};
  std::string version = {};  // empty: unknown
  PartState state = PartState::absent;
  std::string detail = {};                // why the part did not run, or what ran
  std::vector<std::string> devices = {};  // one line for each device
  std::string enables = {};               // what Motley can do with the part
};

// Returns the report of every part, in the order in which `motley doctor` prints them. `module_folder`: the folder with
// the probe modules, which is that of the program.
std::vector<PartReport> probe_hardware(const std::string& module_folder);

}  // namespace motley
