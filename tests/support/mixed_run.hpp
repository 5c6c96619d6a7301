// One simulated step in which some ranks are real, and what it leaves.
#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "hw/world/real_ranks.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/other_processes.hpp"

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

// How the processes of real ranks start, and what transfers among them take.
struct Way {
  bool launched = false;
  bool measures_transfers = false;
};

// A recorder is closed after the step.
inline Ran run_mixed(const Job& job, const Program& program, const std::vector<Rank>& real,
                     RealRanksOptions how, const Way& way = {}) {
  return run_in_child([&] {
    std::optional<OtherProcesses> others;
    if (way.launched) {
      RealRanksOptions of_others = how;
      of_others.recorder = nullptr;
      others.emplace(static_cast<std::int32_t>(real.size()), [&](const Place& place) {
        of_others.place = place;
        serve_real_rank(job, program, real, of_others);
      });
      how.place = others->first();
    }
    RealRanks ranks(job, program, real, how);
    SimOptions options;
    options.measured_transfers = way.measures_transfers;
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
