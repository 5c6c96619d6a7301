#include "hw/world/real_ranks.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "hw/transport/tcp/transport.hpp"
#include "hw/world/real_world.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {

namespace {

enum class Outcome : std::uint8_t { done, failure, refusal, bug };

// What stands before the lists and texts of an answer.
struct AnswerHead {
  Outcome outcome = Outcome::done;
  Exit exit_code = Exit::ok;  // refusal
  double number = 0;
  std::size_t kernels = 0, values = 0;
  std::size_t kind = 0, message = 0, hint = 0;  // bytes of the texts
};

constexpr double kForEver_s = 1e9;

template <class List>
List read_list(const Socket& socket, std::size_t count, double timeout_s) {
  List list(count, typename List::value_type{});
  if (count > 0) socket.read_all(std::as_writable_bytes(std::span(list.data(), count)), timeout_s);
  return list;
}

// Stands for the ranks that are simulated: takes whatever is sent, and brings what they contribute.
class ImaginedTransport : public Transport {
 public:
  ImaginedTransport(Rank rank, Contribution contribution) : rank_(rank), contribution_(contribution) {}
  Rank rank() const override { return rank_; }
  Posted exchange(const Exchange& exchange, Posted mine) override {
    std::vector<float> brought(exchange.incoming.size() / sizeof(float));
    make_up(contribution_, brought);
    if (!brought.empty()) std::memcpy(exchange.incoming.data(), brought.data(), exchange.incoming.size());
    return mine;
  }
  void abort() override {}

 private:
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

// The links between real ranks alone.
std::vector<Link> links_among(const Program& program, const std::vector<Rank>& ranks) {
  std::vector<Link> links = links_of(program);
  const auto is_real = [&](Rank rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  std::erase_if(links, [&](const Link& link) { return !is_real(link.from) || !is_real(link.to); });
  return links;
}

// A real rank in its process: answers questions until nobody asks any more.
class RankServer {
 public:
  RankServer(const Job& job, const Program& program, Rank rank, const ExecutorOptions& options,
             std::unique_ptr<Transport> transport)
      : program_(program),
        executor_(program, job.transformer, job.train, rank, options),
        transport_(std::move(transport)),
        imagined_(rank, options.contribution),
        moving_world_(program, executor_.work(), rank, transport_.get()),
        imagining_world_(program, executor_.work(), rank, &imagined_) {
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

  void move(const RankQuestion& question) {
    const Step& step = question.step;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    arrivals_.begin(StepArrivals::From::ranks, {}, question.keeps);
    try {
      moving_world_.perform_alone(step, instruction);
    } catch (...) {
      if (transport_ != nullptr) transport_->abort();  // the other side waits no longer
      throw;
    }
  }

  // Performs the step as if the ranks that are simulated were here.
  void imagine(const RankQuestion& question, std::vector<float> recorded) {
    const Step& step = question.step;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    arrivals_.begin(question.recorded ? StepArrivals::From::recording : source(instruction),
                    RecordedValues(std::move(recorded)), question.keeps);
    imagining_world_.perform_alone(step, instruction);
    arrivals_.end();
  }

 private:
  // Simulated ranks of whom nothing is recorded add nothing to a sum.
  static StepArrivals::From source(const Instruction& instruction) {
    const auto* const collective = instruction.as<Collective>();
    const bool sums = collective != nullptr && (collective->kind == CollectiveKind::all_reduce ||
                                                collective->kind == CollectiveKind::reduce_scatter);
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
  std::unique_ptr<Transport> transport_;
  ImaginedTransport imagined_;
  StepArrivals arrivals_;
  RealWorld moving_world_, imagining_world_;
};

void send_answer(const Socket& socket, AnswerHead head, std::span<const KernelSpan> kernels,
                 std::span<const float> values) {
  head.kernels = kernels.size();
  head.values = values.size();
  socket.write_all(bytes_of_value(head), kForEver_s);
  socket.write_all(std::as_bytes(kernels), kForEver_s);
  socket.write_all(std::as_bytes(values), kForEver_s);
}

void send_failure(const Socket& socket, AnswerHead head, const std::string& kind, const std::string& message,
                  const std::string& hint) {
  head.kind = kind.size();
  head.message = message.size();
  head.hint = hint.size();
  socket.write_all(bytes_of_value(head), kForEver_s);
  for (const std::string* const text : {&kind, &message, &hint})
    socket.write_all(std::as_bytes(std::span(*text)), kForEver_s);
}

// Sends what is being thrown.
void send_thrown(const Socket& socket) {
  try {
    throw;
  } catch (const Refusal& refusal) {
    send_failure(socket, {.outcome = Outcome::refusal, .exit_code = refusal.exit_code()}, refusal.kind(),
                 refusal.message(), refusal.hint());
  } catch (const std::logic_error& bug) {
    send_failure(socket, {.outcome = Outcome::bug}, "", bug.what(), "");
  } catch (const std::exception& failure) {
    send_failure(socket, {.outcome = Outcome::failure}, "", failure.what(), "");
  }
}

// Answers one question. `recorded`: what its step receives, if it says so.
void serve(RankServer& server, const RankQuestion& question, std::vector<float> recorded,
           const Socket& socket) {
  AnswerHead head;
  switch (question.ask) {
    case RankQuestion::Ask::execute: {
      head.number = server.execute(question, std::move(recorded));
      const std::vector<KernelSpan> kernels = server.kernels();
      return send_answer(socket, head, kernels, {});
    }
    case RankQuestion::Ask::move:
      server.move(question);
      return send_answer(socket, head, {}, server.received());
    case RankQuestion::Ask::imagine:
      server.imagine(question, std::move(recorded));
      return send_answer(socket, head, {}, server.received());
    case RankQuestion::Ask::loss:
      head.number = server.loss_sum();
      break;
    case RankQuestion::Ask::values:
      return send_answer(socket, head, {}, server.values(question.tensor));
  }
  send_answer(socket, head, {}, {});
}

// Names what ended a process.
struct Died : RunFailure {
  using RunFailure::RunFailure;
};

std::string ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

[[noreturn]] void throw_received(const AnswerHead& head, const Socket& socket, double timeout_s) {
  const auto kind = read_list<std::string>(socket, head.kind, timeout_s);
  const auto message = read_list<std::string>(socket, head.message, timeout_s);
  const auto hint = read_list<std::string>(socket, head.hint, timeout_s);
  if (head.outcome == Outcome::refusal) throw Refusal(head.exit_code, kind, {}, message, hint);
  if (head.outcome == Outcome::bug) throw std::logic_error(message);
  throw RunFailure(message);
}

}  // namespace

RealRanks::RealRanks(const Job& job, const Program& program, const std::vector<Rank>& ranks,
                     const RealRanksOptions& options)
    : job_(job), program_(program), ranks_(ranks), options_(options) {}

RealRanks::~RealRanks() {
  for (const auto& [rank, process] : processes_) {
    if (process.id <= 0) continue;
    kill(process.id, SIGKILL);
    while (waitpid(process.id, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void RealRanks::start_all() {
  std::map<Rank, Socket> doors;  // where each rank listens for the others
  for (const Rank rank : ranks_) doors.emplace(rank, listen_on({"127.0.0.1", 0}));
  for (const auto& [rank, door] : doors) start(rank, doors);
}

void RealRanks::start(Rank rank, const std::map<Rank, Socket>& doors) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    throw RunFailure(fmt::format("cannot reach real rank {}: {}", rank, std::strerror(errno)));
  Socket here(ends[0]);
  const Socket there(ends[1]);
  const pid_t parent = getpid(), process = fork();
  if (process < 0) throw RunFailure(fmt::format("cannot start real rank {}: {}", rank, std::strerror(errno)));
  if (process > 0) {
    processes_.emplace(rank, Process{process, std::move(here)});
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  std::signal(SIGINT, SIG_IGN);  // a terminal interrupts all processes at once, and the parent answers it
  here = Socket();
  processes_.clear();
  serve_for_ever(rank, doors, there);
}

// Runs in the process of the rank.
void RealRanks::serve_for_ever(Rank rank, const std::map<Rank, Socket>& doors, const Socket& socket) const {
  std::unique_ptr<RankServer> server;
  std::exception_ptr failure;  // it is the answer to the first question
  try {
    const std::vector<Link> links = links_among(program_, ranks_);
    IdTable<Rank, Address> addresses(program_.ranks.size());
    for (const auto& [each, door] : doors) addresses[each] = {"127.0.0.1", door.local_port()};
    std::unique_ptr<Transport> transport;
    if (!links.empty())
      transport = make_tcp_transport(doors.at(rank), {rank, links, addresses, options_.deadline_s});
    server = std::make_unique<RankServer>(job_, program_, rank, options_.executor, std::move(transport));
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    for (;;) {
      RankQuestion question;
      socket.read_all(writable_bytes_of_value(question), kForEver_s);
      auto recorded = read_list<std::vector<float>>(socket, question.count, kForEver_s);
      try {
        if (failure) std::rethrow_exception(failure);
        serve(*server, question, std::move(recorded), socket);
      } catch (const SocketFailure&) {
        throw;
      } catch (...) {
        send_thrown(socket);
      }
    }
  } catch (...) {  // nobody asks any more
  }
  _exit(0);
}

void RealRanks::ask(Rank rank, RankQuestion question) {
  if (processes_.empty()) start_all();
  std::vector<float> recorded;
  if (question.recorded) recorded = options_.recording->values(question.step);
  question.count = recorded.size();
  try {
    const Socket& socket = processes_.at(rank).socket;
    socket.write_all(bytes_of_value(question), options_.deadline_s);
    socket.write_all(std::as_bytes(std::span(recorded)), options_.deadline_s);
  } catch (const SocketFailure&) {
    throw_dead(rank, question);
  }
}

// Waits until the rank has begun to answer. Throws Died if any rank has died.
void RealRanks::wait_for(Rank rank, const RankQuestion& question) {
  constexpr int kLook_ms = 200;  // how often the other ranks are looked at
  const double until_s = monotonic_s() + options_.deadline_s;
  pollfd waiting{processes_.at(rank).socket.descriptor(), POLLIN, 0};
  while (poll(&waiting, 1, kLook_ms) <= 0) {
    for (auto& [each, process] : processes_) {
      int status = 0;
      if (process.id <= 0 || waitpid(process.id, &status, WNOHANG) != process.id) continue;
      const int id = std::exchange(process.id, -1);
      throw Died(fmt::format("real rank {} (process {}) {}, {}", each, id, ending(status),
                             what_was_done(rank, question)));
    }
    if (monotonic_s() > until_s)
      throw Died(fmt::format("real rank {} (process {}) has not answered for {} s, {}", rank,
                             processes_.at(rank).id, options_.deadline_s, what_was_done(rank, question)));
  }
}

RealRanks::Answer RealRanks::answer(Rank rank, const RankQuestion& question) {
  const Socket& socket = processes_.at(rank).socket;
  wait_for(rank, question);
  try {
    AnswerHead head;
    socket.read_all(writable_bytes_of_value(head), options_.deadline_s);
    if (head.outcome != Outcome::done) throw_received(head, socket, options_.deadline_s);
    Answer answer;
    answer.number = head.number;
    answer.kernels = read_list<std::vector<KernelSpan>>(socket, head.kernels, options_.deadline_s);
    answer.values = read_list<std::vector<float>>(socket, head.values, options_.deadline_s);
    return answer;
  } catch (const SocketFailure&) {
    throw_dead(rank, question);
  }
}

RealRanks::Answer RealRanks::ask_and_wait(Rank rank, const RankQuestion& question) {
  ask(rank, question);
  return answer(rank, question);
}

std::string RealRanks::what_was_done(Rank rank, const RankQuestion& question) const {
  if (question.ask == RankQuestion::Ask::loss || question.ask == RankQuestion::Ask::values)
    return fmt::format("while rank {} was asked for its results", rank);
  return "at " + describe(program_, rank, question.step.stream, question.step.index);
}

// The rank has closed its socket, so it has ended or is about to.
void RealRanks::throw_dead(Rank rank, const RankQuestion& question) {
  const int id = std::exchange(processes_.at(rank).id, -1);
  int status = 0;
  while (id > 0 && waitpid(id, &status, 0) < 0 && errno == EINTR) {
  }
  throw Died(fmt::format("real rank {} (process {}) {}, {}", rank, id, ending(status),
                         what_was_done(rank, question)));
}

double RealRanks::execute(const Step& step, const Instruction&) {
  const bool recorded = options_.recording != nullptr && options_.recording->origin().inside_computes &&
                        receives_inside(program_, step);
  Answer done =
      ask_and_wait(step.rank, {.ask = RankQuestion::Ask::execute, .step = step, .recorded = recorded});
  if (recorded && options_.recorder != nullptr)
    options_.recorder->add(step, options_.recording->values(step));
  kernels_ = std::move(done.kernels);
  return done.number;
}

// A rank that died makes those fail that it moves bytes with, so its failure counts before theirs.
void RealRanks::communicate(const std::vector<Step>& together, bool complete) {
  const auto question_of = [&](const Step& step) {
    const bool comes = receives(program_, step);
    return RankQuestion{.ask = complete ? RankQuestion::Ask::move : RankQuestion::Ask::imagine,
                        .step = step,
                        .keeps = comes && options_.recorder != nullptr,
                        .recorded = comes && !complete && options_.recording != nullptr};
  };
  for (const Step& step : together) ask(step.rank, question_of(step));
  std::exception_ptr failure, death;
  for (const Step& step : together) try {
      const RankQuestion question = question_of(step);
      const Answer done = answer(step.rank, question);
      if (question.keeps) options_.recorder->add(step, done.values);
    } catch (const Died&) {
      if (!death) death = std::current_exception();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  if (death) std::rethrow_exception(death);
  if (failure) std::rethrow_exception(failure);
}

double RealRanks::loss_sum(Rank rank) {
  return ask_and_wait(rank, {.ask = RankQuestion::Ask::loss, .step = {rank, {}, 0}}).number;
}

std::vector<float> RealRanks::values(Rank rank, TensorId tensor) {
  return ask_and_wait(rank, {.ask = RankQuestion::Ask::values, .step = {rank, {}, 0}, .tensor = tensor})
      .values;
}

int RealRanks::process(Rank rank) {
  if (processes_.empty()) start_all();
  return processes_.at(rank).id;
}

}  // namespace motley
