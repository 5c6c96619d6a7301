// What a step moves between chips, by purpose and wire, and how busy chips are with it. A collective is placed at the
// slowest edge of its group. Bytes are payload: what an algorithm sends of it, and how often, is not counted. Read
// next: models/explain/wires.hpp, models/report/attribution.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

struct NetworkUse {
  std::string purpose;     // "tensor parallel", "pipeline", "data parallel"
  std::string on, group;   // as Wire has them
  double rate = 0;         // bytes/s that one flow alone reaches there, the lowest of the wires
  std::int64_t ranks = 0;  // that use it
  double count = 0;        // messages and collectives in a step, by their members together
  double bytes =
      0;  // payload in a step that is expected to be used: of messages once, of collectives for each member
  double busy_s = 0;  // seconds of a step in which bytes of one of those ranks are under way there, the mean
  bool inside_computes = false;  // collectives that are priced inside computes, by their kernels
};

// By seconds, the longest first.
std::vector<NetworkUse> network_use(const Job& job, const Program& program, const Trace& trace);

}  // namespace motley
