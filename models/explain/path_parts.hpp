// The seconds of a critical path by what they were spent on and where: kernels by kind and group of chips, messages and
// collectives by what they are for and the wire they took. Parts add up to the step. What a shorter part would bring is
// not said here: models/explain/explain.hpp simulates that. Read next: models/trace/critical_path.hpp,
// models/plan/levers.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

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
  std::string group;       // the group of the cluster: "ib"; between two: "ib - roce"
  double seconds = 0;
  std::vector<std::string> keys;  // keys of the levers that would shorten it (models/plan/levers.hpp)
};

// In the order of Spent, recompute, `on`, `group`. A collective is where its edge with the lowest rate is.
// Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
std::vector<PathPart> path_parts(const Job& job, const Program& program, const Trace& trace);

// Seconds from the first instant a stream was free to the last end; 0 of an empty trace.
double duration_s(const Trace& trace);

}  // namespace motley
