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
      {"torchrun", "of PyTorch 2.9", "docs.pytorch.org/docs/stable/elastic/run.html"},
      {"Slurm", "25.05", "slurm.schedmd.com/sbatch.html, slurm.schedmd.com/srun.html"},
      {"Open MPI", "5.0", "docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html"},
      {"hostfile", "of DeepSpeed 0.19.6 and FlagScale 0.8.0", "`HOST slots=N`, and `type=T` for FlagScale"},
      {"rank map", "1", "the form is Motley's own"},
  }};
  return versions[static_cast<std::size_t>(target)];
}

}  // namespace motley
