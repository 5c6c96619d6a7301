// Times the all-reduce of an MPI library for tests/bench/bench_comm.py, which builds it with mpicxx. Arguments:
// BYTES, SECONDS A TIME, ROUNDS. The first rank prints the seconds of one call.
#include <mpi.h>

#include <cstdio>

#include "tests/bench/rival_rounds.hpp"

namespace {

struct Mpi {
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(std::vector<float>& values) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  double largest(double mine) {
    MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return mine;
  }
};

}  // namespace

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  if (argument_count != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  int rank = 0, rank_count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  Mpi mpi;
  const double seconds = time_rounds(mpi, RivalOptions(arguments + 1), rank_count);
  if (rank == 0) std::printf("%.9g\n", seconds);
  MPI_Finalize();
  return 0;
}
