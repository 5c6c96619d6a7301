#include "models/calibration/measured_files.hpp"

#include <string_view>

#include "models/base/gzip.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/calibration/nccl_tests.hpp"
#include "models/calibration/perftest.hpp"
#include "models/calibration/torch_kernels.hpp"
#include "models/calibration/torch_profile.hpp"
#include "models/calibration/transfers_csv.hpp"
#include "models/check/check.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;  // traces have hundreds of megabytes at most
constexpr std::size_t kHeadBytes = 4096;  // the first key of a trace stands well before that

bool is_json(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

// Whether Motley wrote the file: a trace of it, which may be larger than what is read at once, begins with this key.
bool is_trace(const std::string& path) {
  refuse_irregular_file(path);
  const std::string head = read_head(path, std::nullopt, kHeadBytes);
  return is_json(head) && head.find("\"motley\"") != std::string::npos;
}

Samples samples_of_trace(const std::string& path) {
  const Program program = read_program_of_trace(path);
  const Trace trace = read_trace(path);
  try {
    check_indices(program);
    return samples_of(program, trace);
  } catch (const Refusal& refusal) {
    throw located(refusal, {.file = path, .line = 1, .column = 1});
  }
}

}  // namespace

Measurements read_measurements(const std::string& path) {
  Measurements measurements;
  if (is_trace(path)) {
    measurements.samples = samples_of_trace(path);
    return measurements;
  }
  const std::string text = read_text_or_gzip(path, kMostFileBytes);
  if (is_json(text)) {
    measurements = read_torch_profile(text, path);
  } else if (is_torch_kernels(text)) {
    measurements = read_torch_kernels(text, path);
  } else if (is_transfers_csv(text)) {
    measurements.transfers = read_transfers_csv(text, path);
  } else if (is_nccl_tests(text)) {
    measurements.transfers = read_nccl_tests(text, path);
  } else if (is_perftest(text)) {
    measurements.transfers = read_perftest(text, path);
  } else {
    throw Refusal(Exit::usage, "unknown-measurements", {.file = path, .line = 1, .column = 1},
                  "no program that Motley knows wrote these measurements",
                  "known: Motley's traces, torch.profiler's with record_shapes=True, what nccl-tests and "
                  "perftest print, kernels.csv of tools/measure-torch");
  }
  return measurements;
}

void add_measurements(const Measurements& more, Measurements& all) {
  add_samples(more.samples, all.samples);
  all.transfers.insert(all.transfers.end(), more.transfers.begin(), more.transfers.end());
  all.gpu_s += more.gpu_s;
  for (const auto& [name, work] : more.unread) {
    all.unread[name].times += work.times;
    all.unread[name].seconds += work.seconds;
  }
}

}  // namespace motley
