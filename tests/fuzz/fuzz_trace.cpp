// Fuzz target: a trace and the Program in its head are read, compared with themselves, and calibrated from.
#include <fmt/format.h>

#include "models/calibration/kernel_fit.hpp"
#include "models/check/check.hpp"
#include "models/trace/compare.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void use(const Program& program, const Trace& trace) {
  check_indices(program);
  const Comparison comparison = compare(program, trace, trace);
  check_finite(to_text(comparison));
  check_finite(to_json(comparison));
  Trace measured = trace;
  measured.measured_ranks.clear();
  for (const Rank rank : program.ranks.ids()) measured.measured_ranks.push_back(rank);
  for (const OpFit& fit : fit_kernels(samples_of(program, measured)).ops)
    for (const double figure :
         {fit.rate.overhead_s, fit.rate.flops_per_s, fit.rate.bytes_per_s, fit.mean_error})
      check_finite(fmt::format("{}", figure));
}

}  // namespace

void take(const std::string& input) {
  const std::string path = file_with(input);
  const Trace trace = read_trace(path);
  const Program program = read_program_of_trace(path);
  try {
    use(program, trace);
  } catch (const Refusal& refusal) {
    throw located(refusal, {.file = path});  // as the commands do it, which know the file
  }
}

}  // namespace motley::tests
