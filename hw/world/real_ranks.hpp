// The real ranks of a simulation (Mixed): each is a process of its own, which computes when it is asked, one at a time,
// while virtual time waits. Tensors that real ranks send each other really move; what simulated ranks would have
// brought is filled in, or comes from a recording. The processes hold no clock and decide no order: the World that
// asks does. Collectives inside a compute move nothing, because its peers do not compute at the same time; as
// instructions of their own (fidelity: {tensor_parallel: fluid}) they do. Read next: hw/rank/executor.hpp,
// hw/rank/recording.hpp, hw/world/real_world.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/launch/connections.hpp"
#include "hw/rank/executor.hpp"
#include "hw/rank/recording.hpp"
#include "hw/transport/peer_place.hpp"
#include "hw/transport/token.hpp"
#include "hw/world/launched_ranks.hpp"
#include "hw/world/question_line.hpp"
#include "hw/world/rank_answers.hpp"
#include "hw/world/train.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct RealRanksOptions {
  ExecutorOptions executor = {};
  double deadline_s = 300;      // a rank that does not answer for so long counts as dead
  double host_deadline_s = 30;  // and all ranks of another host that does not
  // A process that is stopped for so long counts as dead, and so does one of a launch that gives no sign of life.
  double silence_s = 300;
  // Where a launcher has started this process, one of as many as there are real ranks. None: they are forked.
  std::optional<Place> place = {};
  double rendezvous_timeout_s = 120;     // processes of a launch may start this far apart
  std::string machine = {};              // RankHost::machine of this host
  const Recording* recording = nullptr;  // what simulated ranks bring; null: what `executor` says
  RecordingWriter* recorder = nullptr;   // is told what real ranks receive; null: nobody is
  GroupAlgorithms algorithms = {};       // by which real ranks do collectives among themselves
};

class RealRanks : public Executor {
 public:
  // Keeps references to all arguments but the options. The processes start when the first of them is needed, by fork,
  // in the process that needs it: it must have one thread. When that process ends, however it ends, they end. In the
  // first process of a launch, the constructor meets the others, which call serve_real_rank(), and forks for the first
  // real rank. It throws what meet() throws.
  RealRanks(const Job& job, const Program& program, const std::vector<Rank>& ranks,
            const RealRanksOptions& options);
  RealRanks(const RealRanks&) = delete;
  RealRanks& operator=(const RealRanks&) = delete;
  ~RealRanks() override;

  // All of these throw RunFailure, which names a rank that is dead, what ended it and what it was asked to do; or what
  // the rank threw.
  double execute(const Step& step, const Instruction& instruction) override;
  // Assumes: a question and its answer take as long on their way, where the clocks of two hosts are compared; the
  // quickest of many counts.
  std::optional<double> communicate(const std::vector<Step>& together, bool complete) override;
  std::vector<KernelSpan> kernels() const override { return kernels_; }  // of the last execute()
  PathSet paths(const Step& step) const override { return paths_.at(step); }

  double loss_sum(Rank rank);  // of the step that it has begun last; 0: the rank has no head
  std::vector<float> values(Rank rank, TensorId tensor);  // of a tensor that is held throughout
  // Its process id. 0: a launcher has started it.
  int process(Rank rank);
  const RankHost& host(Rank rank);

 private:
  struct Process {
    int id = 0;  // of a child of this process; 0: it is not one, or has ended
    std::unique_ptr<QuestionLine> line;
    std::string named;  // "process 4711"
    RankHost host;
    std::optional<double> ahead_s =
        {};  // its host's clock is ahead of this one's by so much; nothing: not yet known
    std::optional<double> stopped_s = {};  // a signal has stopped this child at that time
  };
  bool is_launched() const { return options_.place.has_value(); }
  void start_all();
  void meet_launched();
  using Doors = std::map<Rank, Socket>;  // where each rank listens for the others
  void start(Rank rank, Doors& doors, const std::map<Rank, PeerPlace>& places, const JobToken& token);
  void look_at_launched(Rank rank, const RankQuestion& question) const;
  void look_at_children(Rank rank, const RankQuestion& question);
  void look_at(Rank child, Rank asked, const RankQuestion& question);
  void ask(Rank rank, const RankQuestion& question);
  void wait_for(Rank rank, const RankQuestion& question);
  RankAnswer answer(Rank rank, const RankQuestion& question);
  RankAnswer ask_and_wait(Rank rank, const RankQuestion& question);
  double ahead_s(Rank rank);
  std::string what_was_done(Rank rank, const RankQuestion& question) const;
  [[noreturn]] void throw_dead(Rank rank, const RankQuestion& question);

  const Job& job_;
  const Program& program_;
  const std::vector<Rank> ranks_;  // they ascend
  const RealRanksOptions options_;
  std::unique_ptr<Connections>
      connections_;                    // to the other processes of a launch, which outlives their lines
  std::map<Rank, Process> processes_;  // empty: not yet started
  std::vector<KernelSpan> kernels_;
  std::map<Step, PathSet> paths_;  // of the steps of the last communicate()
};

// Runs in every process of a launch but the first: serves its real rank until the first process has its result. Throws
// what meet() throws, and RunFailure if the first process dies.
void serve_real_rank(const Job& job, const Program& program, const std::vector<Rank>& ranks,
                     const RealRanksOptions& options);

}  // namespace motley
