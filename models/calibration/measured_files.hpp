// Reads files of measurements, whichever program wrote them. Read next: measurements.hpp, torch_profile.hpp,
// nccl_tests.hpp, perftest.hpp.
#pragma once

#include <string>

#include "models/calibration/measurements.hpp"

namespace motley {

// The program that wrote a file is told by what the file holds. Throws Refusal("unknown-measurements") where none did,
// and what the readers throw.
Measurements read_measurements(const std::string& path);
// Adds what another file holds.
void add_measurements(const Measurements& more, Measurements& all);

}  // namespace motley
