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
#include <utility>

#include "hw/transport/tcp/transport.hpp"
#include "hw/world/real_world.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {

namespace {

// Stands for the ranks that are simulated: takes whatever is sent, and brings what they contribute.
class ImaginedTransport : public Transport {
 public:
  ImaginedTransport(Rank rank, Contribution contribution) : rank_(rank), contribution_(contribution) {}
  Rank rank() const override { return rank_; }
  Posted exchange(const Exchange& exchange, Posted mine) override {
    std::vector<float> brought(exchange.incoming.size() / sizeof(float));
    make_up(adds_ ? Contribution::zeros : contribution_, brought);
    if (!brought.empty()) std::memcpy(exchange.incoming.data(), brought.data(), exchange.incoming.size());
    return mine;
  }
  void abort() override {}
  // Whether what comes is added to what is here: simulated ranks then bring zeros.
  void adds(bool adds) { adds_ = adds; }

 private:
  const Rank rank_;
  const Contribution contribution_;
  bool adds_ = false;
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
        imagining_world_(program, executor_.work(), rank, &imagined_) {}

  double execute(const Step& step) {
    return executor_.execute(step, program_.at(step.rank, step.stream, step.index));
  }
  std::vector<KernelSpan> kernels() const { return executor_.kernels(); }
  double loss_sum() { return executor_.work().loss_sum(); }
  std::span<const float> values(TensorId tensor) { return executor_.work().values(tensor, kNoMicroBatch); }

  void move(const Step& step) {
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    try {
      moving_world_.perform_alone(step, instruction);
    } catch (...) {
      if (transport_ != nullptr) transport_->abort();  // the other side waits no longer
      throw;
    }
  }

  // Performs the step as if the ranks that are simulated were here.
  void imagine(const Step& step) {
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    make_up_used(instruction);
    const auto* collective = instruction.as<Collective>();
    imagined_.adds(collective != nullptr && collective->kind == CollectiveKind::reduce_scatter);
    if (collective == nullptr || collective->kind != CollectiveKind::all_reduce)
      return imagining_world_.perform_alone(step, instruction);
    // Zeros change no sum.
    MemoryLedger ledger;
    for (const TensorId id : instruction.frees)
      executor_.work().memory().free(id, instruction.micro_batch, ledger);
  }

 private:
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
  RealWorld moving_world_, imagining_world_;
};

// Answers one question.
void serve(RankServer& server, const RankQuestion& question, const Socket& socket) {
  double number = 0;
  switch (question.ask) {
    case RankQuestion::Ask::execute: {
      number = server.execute(question.step);
      const std::vector<KernelSpan> kernels = server.kernels();
      return send_answer(socket, number, kernels, {});
    }
    case RankQuestion::Ask::move:
      server.move(question.step);
      break;
    case RankQuestion::Ask::imagine:
      server.imagine(question.step);
      break;
    case RankQuestion::Ask::loss:
      number = server.loss_sum();
      break;
    case RankQuestion::Ask::values:
      return send_answer(socket, number, {}, server.values(question.tensor));
  }
  send_answer(socket, number, {}, {});
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
      try {
        if (failure) std::rethrow_exception(failure);
        serve(*server, question, socket);
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

void RealRanks::ask(Rank rank, const RankQuestion& question) {
  if (processes_.empty()) start_all();
  try {
    processes_.at(rank).socket.write_all(bytes_of_value(question), options_.deadline_s);
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

RankAnswer RealRanks::answer(Rank rank, const RankQuestion& question) {
  const Socket& socket = processes_.at(rank).socket;
  wait_for(rank, question);
  try {
    return read_answer(socket, options_.deadline_s);
  } catch (const SocketFailure&) {
    throw_dead(rank, question);
  }
}

RankAnswer RealRanks::ask_and_wait(Rank rank, const RankQuestion& question) {
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
  RankAnswer done = ask_and_wait(step.rank, {.ask = RankQuestion::Ask::execute, .step = step});
  kernels_ = std::move(done.kernels);
  return done.number;
}

// A rank that died makes those fail that it moves bytes with, so its failure counts before theirs.
void RealRanks::communicate(const std::vector<Step>& together, bool complete) {
  const auto question_of = [&](const Step& step) {
    return RankQuestion{.ask = complete ? RankQuestion::Ask::move : RankQuestion::Ask::imagine, .step = step};
  };
  for (const Step& step : together) ask(step.rank, question_of(step));
  std::exception_ptr failure, death;
  for (const Step& step : together) try {
      answer(step.rank, question_of(step));
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
