#include "models/frameworks/framework.hpp"

#include <array>

#include "models/base/index.hpp"

namespace motley {

const FrameworkVersion& version_of(ExportTarget target) {
  static const std::array<FrameworkVersion, kWords<ExportTarget>.size()> versions = {{
      {"Megatron-LM", "0.20.0", "github.com/NVIDIA/Megatron-LM, commit d98e8a64ddf3, 2026-08-22"},
      {"Megatron-Bridge", "0.7.0", "github.com/NVIDIA-NeMo/Megatron-Bridge, commit 067f987df03b, 2026-08-22"},
      {"FlagScale", "0.8.0", "github.com/FlagOpen/FlagScale, commit da4935ec6019, 2025-11-13"},
      {"torchtitan", "0.2.2", "github.com/pytorch/torchtitan, commit b5bcd76c66d0, 2026-08-21"},
      {"DeepSpeed", "0.19.6", "github.com/deepspeedai/DeepSpeed, commit edaa72212672, 2026-08-22"},
      {"torchrun", "of PyTorch 2", "docs.pytorch.org/docs/stable/elastic/run.html, read 2026-11"},
      {"Slurm", "24.11", "github.com/SchedMD/slurm, commit 00a43d9e72a9; srun --distribution=arbitrary"},
      {"Open MPI", "5", "github.com/open-mpi/ompi, commit 04202f8f4aba, docs/man-openmpi/man1/mpirun.1.rst"},
      {"a hostfile", "of DeepSpeed 0.19.6, FlagScale 0.8.0 and Open MPI 5", "lines of HOST slots=N"},
      {"people", "to read", "the form is Motley's own"},
  }};
  return versions[static_cast<std::size_t>(target)];
}

}  // namespace motley
