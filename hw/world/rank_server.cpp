#include "hw/world/rank_server.hpp"

#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "hw/communicator/parts.hpp"
#include "hw/rank/recording.hpp"
#include "hw/world/rank_answers.hpp"
#include "hw/world/real_world.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Stands for the ranks that are simulated: takes whatever is sent, and brings what they contribute.
class ImaginedPeers : public Peers {
 public:
  ImaginedPeers(const Program& program, Rank rank, Contribution contribution)
      : program_(program), rank_(rank), contribution_(contribution) {}
  Moved send(Rank, const StageMessage&, std::span<const float>, Posted mine) override { return {mine, {}}; }
  Moved receive(Rank, const StageMessage&, std::span<float> values, Posted mine) override {
    make_up(contribution_, values);
    return {mine, {}};
  }
  // Sums of which nobody brings anything are left as they are, before this is called.
  Moved collect(GroupId id, const GroupCall&, std::span<float> values, Posted mine) override {
    const Group& group = program_.groups[id];
    for (std::size_t i = 0; i < group.ranks.size(); ++i)
      if (group.ranks[i] != rank_) make_up(contribution_, part(values, i, group.ranks.size()));
    return {mine, {}};
  }
  void abort(const std::string&) override {}

 private:
  const Program& program_;
  const Rank rank_;
  const Contribution contribution_;
};

// What comes to the step of one question.
class StepArrivals : public Arrivals {
 public:
  // Who brings it: other ranks, or those that stand for them; nobody, so that the places keep what they hold; or a
  // recording.
  enum class From : std::uint8_t { ranks, nobody, recording };
  void begin(From from, RecordedValues recorded, bool keeps) {
    from_ = from;
    recorded_ = std::move(recorded);
    keeps_ = keeps;
    kept_.clear();
  }
  bool bring(const Step&, Places places) override {
    if (from_ == From::recording) recorded_.fill(places);
    return from_ != From::ranks;
  }
  void came(const Step&, Places places) override {
    if (keeps_) append_values(places, kept_);
  }
  void end() const {
    if (from_ == From::recording) recorded_.check_all_taken();
  }
  const std::vector<float>& kept() const { return kept_; }

 private:
  From from_ = From::ranks;
  RecordedValues recorded_;
  bool keeps_ = false;
  std::vector<float> kept_;
};

// A real rank in its process: answers questions until nobody asks any more.
class RankServer {
 public:
  RankServer(const Job& job, const Program& program, RankServerOptions options)
      : program_(program),
        executor_(program, job.transformer, job.train, options.rank, options.executor),
        messenger_(std::move(options.messages)),
        real_(program, messenger_, options.algorithms),
        present_(program, messenger_, options.real_ranks,
                 [contribution = options.executor.contribution](std::span<float> part) {
                   make_up(contribution, part);
                 }),
        imagined_(program, options.rank, options.executor.contribution),
        moving_world_(program, executor_.work(), options.rank, &real_),
        imagining_world_(program, executor_.work(), options.rank, &imagined_) {
    for (RealWorld* const world : {&moving_world_, &imagining_world_}) world->use(&arrivals_);
  }

  double execute(const RankQuestion& question, std::vector<float> recorded) {
    const Step& step = question.step;
    if (question.recorded) executor_.bring_inside(RecordedValues(std::move(recorded)));
    return executor_.execute(step, program_.at(step.rank, step.stream, step.index));
  }
  std::vector<KernelSpan> kernels() const { return executor_.kernels(); }
  double loss_sum() { return executor_.work().loss_sum(); }
  std::span<const float> values(TensorId tensor) { return executor_.work().values(tensor, kNoMicroBatch); }

  const std::vector<float>& received() const { return arrivals_.kept(); }  // if the question keeps it

  TraceEvent move(const RankQuestion& question) {
    const Step& step = question.step;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    arrivals_.begin(StepArrivals::From::ranks, {}, question.keeps);
    try {
      return moving_world_.perform_alone(step, instruction);
    } catch (...) {
      messenger_.abort("a transfer failed");  // the other side waits no longer
      throw;
    }
  }

  // Performs the step as if the ranks that are simulated were here. Returns the paths to and from those that are real.
  PathSet imagine(const RankQuestion& question, std::vector<float> recorded) {
    const Step& step = question.step;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    const auto from = question.recorded ? StepArrivals::From::recording
                      : question.shares ? StepArrivals::From::ranks
                                        : source(instruction);
    arrivals_.begin(from, RecordedValues(std::move(recorded)), question.keeps);
    imagining_world_.meet(question.shares ? static_cast<Peers*>(&present_) : &imagined_);
    PathSet paths;
    try {
      paths = imagining_world_.perform_alone(step, instruction).paths;
    } catch (...) {
      messenger_.abort("a transfer failed");  // the other real members wait no longer
      throw;
    }
    arrivals_.end();
    return paths;
  }

 private:
  // Simulated ranks of whom nothing is recorded add nothing to a sum.
  static StepArrivals::From source(const Instruction& instruction) {
    const auto* const collective = instruction.as<Collective>();
    const bool sums = collective != nullptr && (collective->kind == CollectiveKind::all_reduce ||
                                                collective->kind == CollectiveKind::reduce_scatter ||
                                                collective->kind == CollectiveKind::reduce);
    return sums ? StepArrivals::From::nobody : StepArrivals::From::ranks;
  }

  // Makes up what the step reads and nobody has brought.
  void make_up_used(const Instruction& instruction) {
    if (const PeerMessage* message = instruction.message();
        message != nullptr && !makes_received(instruction))
      executor_.make_up_missing(message->tensor, instruction.micro_batch);
    const auto* collective = instruction.as<Collective>();
    if (collective == nullptr || collective->shard) return;
    for (const TensorId id : collective->tensors) executor_.make_up_missing(id, instruction.micro_batch);
  }

  const Program& program_;
  HostExecutor executor_;
  Messenger messenger_;
  RealPeers real_;
  PresentPeers present_;
  ImaginedPeers imagined_;
  StepArrivals arrivals_;
  RealWorld moving_world_, imagining_world_;
};

// Answers one question. `recorded`: what its step receives, if it says so.
void serve(RankServer& server, const RankQuestion& question, std::vector<float> recorded,
           QuestionLine& line) {
  RankAnswer answer;
  switch (question.ask) {
    case RankQuestion::Ask::execute:
      answer.number = server.execute(question, std::move(recorded));
      answer.kernels = server.kernels();
      break;
    case RankQuestion::Ask::move: {
      const TraceEvent moved = server.move(question);
      answer.begin_s = moved.begin_s;
      answer.end_s = moved.end_s;
      answer.paths = moved.paths;
      answer.values = server.received();
      break;
    }
    case RankQuestion::Ask::imagine:
      answer.paths = server.imagine(question, std::move(recorded));
      answer.values = server.received();
      break;
    case RankQuestion::Ask::loss:
      answer.number = server.loss_sum();
      break;
    case RankQuestion::Ask::values:
      return send_values(line, server.values(question.tensor));
    case RankQuestion::Ask::clock:
      answer.number = monotonic_s();
      break;
    case RankQuestion::Ask::end:
      return;
  }
  send_answer(line, answer);
}

}  // namespace

void answer_questions(const Job& job, const Program& program, RankServerOptions options, QuestionLine& line) {
  std::optional<RankServer> server;
  std::exception_ptr failure;
  try {
    server.emplace(job, program, std::move(options));
  } catch (...) {
    failure = std::current_exception();
  }
  for (;;) {
    auto [question, recorded] = read_question(line, kForEver_s);
    if (question.ask == RankQuestion::Ask::end) return;
    try {
      if (failure) std::rethrow_exception(failure);
      serve(*server, question, std::move(recorded), line);
    } catch (const SocketFailure&) {
      throw;
    } catch (...) {
      send_thrown(line);
    }
  }
}

}  // namespace motley
