// Measures the kernels of this host: probes of shapes where the fit is least sure, beside as many busy ranks as will
// train. What was measured is kept in a table that grows, so that a killed run goes on where it was. Read next:
// hw/calibration/time_program.hpp, models/calibration/samples_csv.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw/calibration/host_facts.hpp"
#include "hw/kernels/run_kernel.hpp"
#include "models/calibration/probe.hpp"
#include "models/calibration/samples_csv.hpp"
#include "models/plan/prepare.hpp"

namespace motley {

struct MeasureOptions {
  std::int64_t busy_ranks = 1;
  // Every so many probes one is measured without the other ranks, too; 0: none.
  std::int64_t alone_every = 0;
  double seconds = 60;  // no probe begins later
  KernelLibrary library = KernelLibrary::fast;
  std::uint64_t seed = 1;
  std::string samples_path;                // the table; empty: it is not kept
  std::vector<const Prepared*> scenarios;  // whose own kernels are measured, too
  ProbeRange range;
  bool keeps_disturbed = false;  // whether measurements count although the machine did not keep still
};

struct HostSamples {
  HostFacts host;
  SamplesTable table;
  std::int64_t probes = 0, kept_before = 0;  // measured now; read from the table
  std::int64_t disturbed = 0;                // measurements during which the machine did not keep still
  std::string last_disturbance;
  double noise = 0;  // see Stillness::noise()
};

// Throws Refusal("two-origins") where the table is of another machine, kernel library or number of ranks,
// Refusal("never-still") where probe after probe is disturbed, RunFailure where the table cannot be written.
HostSamples measure_host(const Chip& chip, const MeasureOptions& options);

}  // namespace motley
