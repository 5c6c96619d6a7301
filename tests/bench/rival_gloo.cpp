// Times the all-reduce of Gloo over TCP for tests/bench/bench_comm.py, which builds it: by the algorithm that Gloo
// itself chooses, a ring. Arguments: a folder where the ranks find each other, RANK, NUMBER OF RANKS, BYTES,
// SECONDS A TIME, ROUNDS. The first rank prints the seconds of one call.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "tests/bench/rival_rounds.hpp"

namespace {

class Gloo {
 public:
  explicit Gloo(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void all_reduce(std::vector<float>& values) { reduce(values.data(), values.size(), &gloo::sum<float>); }
  double largest(double mine) {
    reduce(&mine, 1, &gloo::max<double>);
    return mine;
  }

 private:
  template <class T>
  void reduce(T* values, std::size_t count, void (*how)(void*, const void*, const void*, std::size_t)) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values, count);
    options.setReduceFunction(how);
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int argument_count, char** arguments) try {
  if (argument_count != 7) return 2;
  const int rank = std::atoi(arguments[2]), rank_count = std::atoi(arguments[3]);
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(arguments[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, rank_count);
  context->connectFullMesh(store, device);
  Gloo gloo(context);
  const double seconds = time_rounds(gloo, RivalOptions(arguments + 4), rank_count);
  if (rank == 0) std::printf("%.9g\n", seconds);
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
