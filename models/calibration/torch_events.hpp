// The events of a torch.profiler trace that a calibration needs: operations of the host with their operands, and what
// the GPU worked for each. Read next: torch_profile.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace motley {

// An input of an operation. A list of tensors has the sizes of each; a number has no tensors and a `value`.
struct Operand {
  std::string type;  // "c10::BFloat16", "float", "TensorList", "Scalar"
  std::vector<std::vector<std::int64_t>> sizes;
  bool is_transposed = false;  // a matrix whose columns lie one after the other in memory
  bool has_strides = false;
  std::string value;  // "True"
};

struct HostOperation {
  std::string name;  // "aten::mm"
  std::optional<std::int64_t> id;
  std::int64_t thread = 0;
  double begin_us = 0, end_us = 0;
  std::vector<Operand> operands;
  int parent = -1;  // index of the operation that called it; -1: none
};

struct GpuWork {
  std::string name;                       // of the kernel
  std::optional<std::int64_t> operation;  // HostOperation::id
  double seconds = 0;
};

struct TorchEvents {
  std::vector<HostOperation> operations;  // by thread, then begin: callers before what they call
  std::vector<GpuWork> work;
};

// Throws Refusal("bad-profile") at line and column, and where no operation has shapes.
TorchEvents read_torch_events(const std::string& text, const std::string& path);

}  // namespace motley
