// What of the real world is here: GPUs, RDMA cards and the libraries that drive them, asked, not
// guessed. Each vendor's probe is a shared module of its own (hw/probe_module.hpp), loaded at run
// time, so that the program starts where a toolkit is absent. It refuses to choose a device: that
// is the user's. Read next: hw/device/cuda/probe.cu, hw/transport/verbs/probe.cpp.
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
  std::string detail = {};                // why it did not run, or what ran
  std::vector<std::string> devices = {};  // one line each
  std::string enables = {};               // what it gives, or would give
};

// `module_folder`: where the probe modules lie (the folder of the program).
std::vector<PartReport> probe_hardware(const std::string& module_folder);

}  // namespace motley
