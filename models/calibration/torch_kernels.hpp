// Reads the table of kernels that tools/measure-torch writes (kernels.csv): each row is one kernel of PyTorch at one
// shape, measured alone. Read next: torch_profile.hpp, measured_files.hpp.
#pragma once

#include <string>

#include "models/calibration/measurements.hpp"

namespace motley {

bool is_torch_kernels(const std::string& text);

// Rows whose inputs were out of the cache ("cold") become samples; other rows repeat their kernels. Products in another
// format than most, copies, launches, and attention by another library than most are listed as not read. Throws
// Refusal("bad-csv") at a cell, and Refusal("bad-measurements") where no row is a kernel of Motley.
// Assumes: in a training step the inputs of a kernel are out of the cache, because what it reads was written long
// before, or is larger. The least time of a row is the kernel's: the others may hold a wait for the host, which needs
// longer to start a backward through autograd than a small kernel takes.
Measurements read_torch_kernels(const std::string& text, const std::string& path);

}  // namespace motley
