#include "models/calibration/alone_fit.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "models/calibration/kernel_fit.hpp"

namespace motley {
namespace {

// The seconds of the same shapes, both ways.
struct Both {
  double among_s = 0, alone_s = 0;
  std::int64_t shapes = 0;
  void add(double among, double alone) {
    among_s += among;
    alone_s += alone;
    ++shapes;
  }
  double share() const { return among_s > 0 ? rounded(std::min(1.0, alone_s / among_s)) : 0; }
};

auto work_key(const KernelSample& sample) {
  MeasuredShape shape = sample.shape;
  shape.seconds = 0;
  return std::make_tuple(sample.kernel, sample.format, shape);
}

}  // namespace

AloneFit fit_alone(const Samples& among, const Samples& alone, std::int64_t ranks, KernelRates& rates) {
  constexpr std::int64_t kEnough = 3;
  rates.busy = ranks;
  std::map<decltype(work_key(among.kernels[0])), double> among_s;
  for (const KernelSample& sample : among.kernels) among_s[work_key(sample)] = sample.shape.seconds;
  Both all;
  std::map<RatedKernel, Both> kinds;
  for (const KernelSample& sample : alone.kernels) {
    const auto known = among_s.find(work_key(sample));
    if (known == among_s.end()) continue;
    all.add(known->second, sample.shape.seconds);
    kinds[sample.kernel].add(known->second, sample.shape.seconds);
  }
  if (ranks < 2 || all.shapes == 0) return {};
  rates.alone = all.share();
  for (const auto& [kernel, both] : kinds)
    if (const auto rate = rates.rates.find(kernel); rate != rates.rates.end() && both.shapes >= kEnough)
      rate->second.alone = both.share();
  return {rates.alone, all.shapes};
}

}  // namespace motley
