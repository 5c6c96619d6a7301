// Small jobs whose kernels a calibration times: their shapes are drawn at random over the range that models have, so
// that no kernel is timed only in the shapes of one model. Read next: models/calibration/kernel_samples.hpp.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "models/scenario/job.hpp"

namespace motley {

// The widest shapes that probes have.
struct ProbeRange {
  std::int64_t least_hidden = 48, most_hidden = 1024;
  std::int64_t least_rows = 64, most_rows = 2048;  // tokens of a micro-batch
  std::int64_t least_vocabulary = 256, most_vocabulary = 65536;
  double most_flops = 1e10;  // of a step, so that probes are quick
};

// A job on one node of such chips. Its first rank is the one that is timed.
struct Probe {
  std::string name;  // "llama 160 x 3, 2 x 96 tokens, tp 2"
  Job job;
};

// Draws a probe. Draws with equal seeds are equal on every machine.
Probe draw_probe(const ProbeRange& range, const Chip& chip, std::mt19937_64& random);

}  // namespace motley
