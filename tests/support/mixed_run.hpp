// One simulated step in which some ranks are real, and what it leaves.
#pragma once

#include <tuple>
#include <type_traits>
#include <vector>

#include "hw/world/real_ranks.hpp"
#include "sim/workers/child.hpp"

namespace motley::tests {

struct Ran {
  Trace trace;
  double loss = 0;                  // the part of real ranks
  std::vector<double> rank_losses;  // the part of each real rank
  std::vector<std::vector<float>>
      parameters;  // those of the first real rank, then those of the next, and so on
};
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Ran>
auto fields_of(T& ran) {
  auto& [trace, loss, rank_losses, parameters] = ran;
  return std::tie(trace, loss, rank_losses, parameters);
}

inline std::vector<Rank> every_rank(const Program& program) {
  std::vector<Rank> all;
  for (const Rank rank : program.ranks.ids()) all.push_back(rank);
  return all;
}

inline std::vector<TensorId> parameters_of(const Program& program, Rank rank) {
  std::vector<TensorId> parameters;
  const auto& tensors = program.program_of(rank).tensors;
  for (const TensorId id : tensors.ids())
    if (tensors[id].role == TensorRole::parameter) parameters.push_back(id);
  return parameters;
}

// A recorder is closed after the step.
inline Ran run_mixed(const Job& job, const Program& program, const std::vector<Rank>& real,
                     const RealRanksOptions& how) {
  return run_in_child([&] {
    RealRanks ranks(job, program, real, how);
    SimOptions options;
    options.executor = &ranks;
    options.real_ranks = real;
    options.records_kernels = true;
    Ran ran{simulate(job, program, options), 0, {}, {}};
    for (const Rank rank : real) {
      ran.rank_losses.push_back(ranks.loss_sum(rank) /
                                static_cast<double>(program.global_batch * program.sequence));
      ran.loss += ran.rank_losses.back();
      for (const TensorId id : parameters_of(program, rank)) ran.parameters.push_back(ranks.values(rank, id));
    }
    if (how.recorder != nullptr) how.recorder->close();
    return ran;
  });
}

}  // namespace motley::tests
