// The seconds of a critical path by what they were spent on and where: kernels by kind and group of chips, messages and
// collectives by what they are for and the wire they took. Parts add up to the step. It does not say what would happen
// were a part shorter: models/explain simulates that. Read next: models/critical_path.hpp, models/levers.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/compile.hpp"
#include "models/trace.hpp"

namespace motley {

enum class Spent : std::uint8_t {
  matmul,     // bound by FLOP/s
  attention,  // likewise
  memory,     // kernels that memory bandwidth bounds
  launch,     // what kernels cost beyond their work
  tensor_parallel,
  expert_parallel,
  context_parallel,
  pipeline,
  data_parallel,
  tied_embedding,  // gradients of an embedding that the first and the last stage both hold
  optimizer,
  offload,
  waiting,  // for nothing that the Program names
};
inline constexpr int kSpentCount = static_cast<int>(Spent::waiting) + 1;
std::string_view name_of(Spent spent);

struct PathPart {
  Spent spent = Spent::matmul;
  bool recompute = false;  // kernels that do what a forward did
  std::string on;          // "a100-80gb-sxm", "nvswitch", "roce", "link between sites"; of waiting: empty
  std::string group;       // of the cluster: "ib"; between two: "ib - roce"
  double seconds = 0;
  std::vector<std::string> keys;  // of the levers that would shorten it (models/levers.hpp)
};

// By Spent, recompute, `on`, `group`. Of a collective, the edge with the lowest rate says where.
// Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
std::vector<PathPart> path_parts(const Job& job, const Program& program, const Trace& trace);

// From the first instant a stream was free to the last end.
double duration_s(const Trace& trace);

}  // namespace motley
