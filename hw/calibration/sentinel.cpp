#include "hw/calibration/sentinel.hpp"

#include <algorithm>
#include <limits>

#include "hw/kernels/reference.hpp"
#include "hw/transport/tcp/socket.hpp"

namespace motley {
namespace {

constexpr std::int64_t kWidth = 96;
constexpr std::size_t kFloats = std::size_t{1} << 21;  // 8 MiB
constexpr int kTimes = 4;

}  // namespace

Sentinel::Sentinel()
    : a_(kWidth * kWidth, 0.5F), b_(kWidth * kWidth, 0.25F), c_(kWidth * kWidth), memory_(kFloats, 1.0F) {}

double Sentinel::time() {
  double least_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const double begin_s = monotonic_s();
    reference::matmul({kWidth, kWidth, kWidth}, a_.data(), b_.data(), nullptr, c_.data());
    for (float& each : memory_) each = each * 0.999F + c_[0] * 1e-9F;
    least_s = std::min(least_s, monotonic_s() - begin_s);
  }
  return least_s;
}

}  // namespace motley
