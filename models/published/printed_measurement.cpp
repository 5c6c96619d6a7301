// The measurement of a published row: the seconds of a step, and the bytes of the fullest chip.
#include <fmt/format.h>

#include "models/published/printed_row.hpp"
#include "models/report/published_metrics.hpp"

namespace motley {

double measured_step_s(const PrintedRow& row, const Job& job) {
  const std::string& metric = row.cells.text("metric");
  const double value = row.cells.number("value"),
               chips = static_cast<double>(row.cells.count("n_accelerators"));
  const auto sequences = static_cast<double>(job.train.global_batch);
  const double tokens = sequences * static_cast<double>(job.train.sequence);
  if (metric == "iteration_time" || metric == "step_time") return value;
  if (metric == "tokens_per_s_per_gpu") return tokens / (value * chips);
  if (metric == "samples_per_s_per_gpu") return sequences / (value * chips);
  if (metric == "model_tflops_per_gpu")
    return model_flops_per_sequence(job.transformer, job.train.sequence) * sequences / (value * 1e12 * chips);
  if (metric == "tflops_per_gpu_incl_recompute")
    return megatron_flops_per_sequence(job.transformer, job.train.sequence) * sequences /
           (value * 1e12 * chips);
  pass_over(fmt::format("`{}` says no step time", metric));
}

// Tables print peaks of memory among the notes, if at all.
std::optional<double> measured_peak_bytes(const PrintedRow& row) {
  constexpr double kMostBytes = 1e15;
  for (const auto& [form, unit] : {std::pair{"max_mem_bytes=", 1.0},
                                   {"mem_gib=", 1024.0 * 1024 * 1024},
                                   {"max_mem_gb=", 1e9},
                                   {"real_alloc_gib=", 1024.0 * 1024 * 1024}})
    if (const auto number = row.cells.noted(form, {0, kMostBytes / unit})) return *number * unit;
  return std::nullopt;
}

}  // namespace motley
