// The real ranks of a simulation (Mixed): each is a process of its own, which computes when it is asked, one at a time,
// while virtual time waits. Tensors that real ranks send each other really move, over TCP; what simulated ranks would
// have brought is filled in, or comes from a recording. The processes hold no clock and decide no order: the World that
// asks does. Collectives inside a compute move nothing, because its peers do not compute at the same time; as
// instructions of their own (fidelity: {tensor_parallel: fluid}) they do. Read next: hw/rank/executor.hpp,
// hw/rank/recording.hpp, hw/world/real_world.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hw/rank/executor.hpp"
#include "hw/rank/recording.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct RealRanksOptions {
  ExecutorOptions executor = {};
  double deadline_s = 300;               // a rank that does not answer for so long counts as dead
  const Recording* recording = nullptr;  // what simulated ranks bring; null: what `executor` says
  RecordingWriter* recorder = nullptr;   // is told what real ranks receive; null: nobody is
};

// What the process of a rank is asked.
struct RankQuestion {
  enum class Ask : std::uint8_t { execute, move, imagine, loss, values };
  Ask ask = Ask::execute;
  Step step;
  TensorId tensor{0};     // values: which
  bool keeps = false;     // move, imagine: whether what the step receives is a part of the answer
  bool recorded = false;  // execute, imagine: whether what the step receives follows,
  std::size_t count = 0;  // and as how many values
};

class RealRanks : public Executor {
 public:
  // Keeps references to all arguments but the options. The processes start when the first of them is needed, by fork,
  // in the process that needs it: it must have one thread. When that process ends, however it ends, they end.
  RealRanks(const Job& job, const Program& program, const std::vector<Rank>& ranks,
            const RealRanksOptions& options);
  RealRanks(const RealRanks&) = delete;
  RealRanks& operator=(const RealRanks&) = delete;
  ~RealRanks() override;

  // All of these throw RunFailure, which names a rank that is dead, what ended it and what it was asked to do; or what
  // the rank threw.
  double execute(const Step& step, const Instruction& instruction) override;
  void communicate(const std::vector<Step>& together, bool complete) override;
  std::vector<KernelSpan> kernels() const override { return kernels_; }  // of the last execute()

  double loss_sum(Rank rank);  // of the step that it has begun last; 0: the rank has no head
  std::vector<float> values(Rank rank, TensorId tensor);  // of a tensor that is held throughout
  int process(Rank rank);                                 // its process id

 private:
  struct Process {
    int id = -1;  // -1: it has ended
    Socket socket;
  };
  struct Answer {
    double number = 0;  // seconds, or a loss
    std::vector<KernelSpan> kernels;
    std::vector<float> values;
  };
  void start_all();
  void start(Rank rank, const std::map<Rank, Socket>& doors);
  [[noreturn]] void serve_for_ever(Rank rank, const std::map<Rank, Socket>& doors,
                                   const Socket& socket) const;
  void ask(Rank rank, RankQuestion question);
  void wait_for(Rank rank, const RankQuestion& question);
  Answer answer(Rank rank, const RankQuestion& question);
  Answer ask_and_wait(Rank rank, const RankQuestion& question);
  std::string what_was_done(Rank rank, const RankQuestion& question) const;
  [[noreturn]] void throw_dead(Rank rank, const RankQuestion& question);

  const Job& job_;
  const Program& program_;
  const std::vector<Rank> ranks_;
  const RealRanksOptions options_;
  std::map<Rank, Process> processes_;  // empty: not yet started
  std::vector<KernelSpan> kernels_;
};

}  // namespace motley
