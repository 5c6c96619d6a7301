#include "hw/transport/shm/copy_speed.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

namespace motley {
namespace {

constexpr std::size_t kBytes = std::size_t{512} << 10U;
constexpr int kCopies = 5;  // of each way

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool measure() {
  std::vector<std::byte> from(kBytes, std::byte{1}), between(kBytes, std::byte{2}),
      into(kBytes, std::byte{3});
  double one_s = std::numeric_limits<double>::infinity(), two_s = one_s;
  for (int i = 0; i < kCopies; ++i) {
    iovec mine{into.data(), kBytes}, its{from.data(), kBytes};
    const double begin_s = now_s();
    const bool can_read = process_vm_readv(getpid(), &mine, 1, &its, 1, 0) == static_cast<ssize_t>(kBytes);
    const double middle_s = now_s();
    if (can_read) one_s = std::min(one_s, middle_s - begin_s);
    std::copy(from.begin(), from.end(), between.begin());
    std::copy(between.begin(), between.end(), into.begin());
    two_s = std::min(two_s, now_s() - middle_s);
    from.back() = into.front();  // all of it is needed
  }
  return two_s < one_s;
}

}  // namespace

bool two_copies_are_faster() {
  static const bool are = measure();
  return are;
}

}  // namespace motley
