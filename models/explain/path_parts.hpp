// The seconds of a critical path by what they were spent on and where: kernels by kind and group of chips, messages
// and collectives by purpose and wire. The parts add up to the step. The gain of a shorter part is not known here:
// models/explain/explain.hpp simulates it. Read next: models/trace/critical_path.hpp, models/plan/levers.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

enum class Spent : std::uint8_t {
  matmul,     // matrix products, which FLOP/s bound
  attention,  // attention, which FLOP/s bound
  memory,     // kernels that memory bandwidth bounds
  launch,     // cost of kernels beyond their work
  tensor_parallel,
  expert_parallel,
  context_parallel,
  pipeline,
  data_parallel,
  tied_embedding,  // gradients of an embedding that both the first and the last stage hold
  optimizer,
  offload,
  waiting,  // waiting for nothing in the Program
};
inline constexpr int kSpentCount = static_cast<int>(Spent::waiting) + 1;
std::string_view name_of(Spent spent);

struct PathPart {
  Spent spent = Spent::matmul;
  bool recompute = false;  // true: kernels that repeat a forward
  std::string on;          // "a100-80gb-sxm", "nvswitch", "roce", "link between sites"; empty for waiting
  std::string group;       // group of the cluster: "ib"; between two groups: "ib - roce"
  double seconds = 0;
  std::vector<std::string> keys;  // keys of the levers that would shorten it (models/plan/levers.hpp)
};

// The parts in the order of Spent, recompute, `on`, `group`. A collective is placed at its edge with the lowest rate.
// Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
std::vector<PathPart> path_parts(const Job& job, const Program& program, const Trace& trace);

// Seconds from the first instant when a stream is free to the last end; 0 for an empty trace.
double duration_s(const Trace& trace);

}  // namespace motley
