#include "hw/world/real_ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "hw/launch/launch.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/transport/host_id.hpp"
#include "hw/transport/shm/peer_memory.hpp"
#include "hw/world/launched_ranks.hpp"
#include "hw/world/rank_server.hpp"
#include "hw/world/training_agreement.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {

namespace {

// Names what ended a process.
struct Died : RunFailure {
  using RunFailure::RunFailure;
};

std::string ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

// Where the process of a real rank listens for the others, and where they do.
struct ServerPlace {
  Rank rank;
  Socket door;
  std::map<Rank, PeerPlace> places;  // of all real ranks
  JobToken token;
  const QuestionLine& asker;  // to the process that asks the rank
};

RankServerOptions server_options(const std::vector<Rank>& ranks, const RealRanksOptions& options,
                                 ServerPlace& place) {
  MessengerOptions messages;
  messages.rank = place.rank;
  messages.listener = std::move(place.door);
  messages.peers = place.places;
  messages.peers.erase(place.rank);
  messages.token = place.token;
  if (options.place) messages.rdma_devices = options.place->nics;
  messages.timeout_s = options.deadline_s;
  messages.gives_up = [&asker = place.asker] { return asker.ending(); };
  return {ranks, place.rank, options.executor, options.algorithms, std::move(messages)};
}

// Which process of a launch serves the rank.
Rank number_among(const std::vector<Rank>& ranks, Rank rank) {
  return Rank(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// What messages of the first process of a launch call the processes, by their numbers.
std::map<Rank, std::string> names_of(const std::vector<Rank>& ranks, const Meeting& met) {
  std::map<Rank, std::string> names = {{kLeader, fmt::format("real rank {}", met.rank)}};
  for (const auto& [rank, process] : met.others)
    names[number_among(ranks, rank)] = fmt::format("real rank {} ({})", rank, process.named);
  return names;
}

// What all processes of a launch must agree on besides the Program.
Agreement agreed(const Job& job, const std::vector<Rank>& ranks, const RealRanksOptions& options) {
  const ExecutorOptions& how = options.executor;
  std::vector<std::int32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(rank.value());
  Agreement alike = training_agreement(job, how.text);
  alike.push_back({"real ranks", fmt::format("{}", fmt::join(numbers, ","))});
  alike.push_back({"kernels", describe(how.library)});
  alike.push_back({"warm_up", fmt::format("{}", how.repeats.warm_up)});
  alike.push_back({"repeats", fmt::format("{}", how.repeats.timed)});
  alike.push_back({"contribution", std::string(name_of(how.contribution))});
  alike.push_back({"recording", options.recording != nullptr ? "yes" : "no"});
  alike.push_back({"limit of silence", fmt::format("{} s", options.silence_s)});
  return alike;
}

}  // namespace

RealRanks::RealRanks(const Job& job, const Program& program, const std::vector<Rank>& ranks,
                     const RealRanksOptions& options)
    : job_(job), program_(program), ranks_(ascending(ranks)), options_(options) {
  if (is_launched()) meet_launched();
}

RealRanks::~RealRanks() {
  constexpr double kHurry_s = 1;
  RankQuestion end;
  end.ask = RankQuestion::Ask::end;
  for (const auto& [rank, process] : processes_) {
    if (process.id <= 0) {
      if (is_launched()) try {
          send_question(*process.line, end, {}, kHurry_s);
        } catch (const SocketFailure&) {  // it has ended
        }
      continue;
    }
    kill(process.id, SIGKILL);
    while (waitpid(process.id, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void RealRanks::start_all() {
  Doors doors;
  std::map<Rank, PeerPlace> places;
  for (const Rank rank : ranks_) {
    const Socket& door = doors.emplace(rank, listen_on({"127.0.0.1", 0})).first->second;
    places[rank] = {{"127.0.0.1", door.local_port()}, memory_domain()};
  }
  const JobToken token(random_secret());
  for (const Rank rank : ranks_) start(rank, doors, places, token);
}

// The connections begin after the fork, because they have a thread.
void RealRanks::meet_launched() {
  Meeting met = meet(*options_.place, ranks_, program_hash(program_), agreed(job_, ranks_, options_),
                     options_.machine, options_.rendezvous_timeout_s);
  Doors doors;
  doors.emplace(met.rank, std::move(met.door));
  start(met.rank, doors, met.places, options_.place->token);
  connections_ = std::make_unique<Connections>(ConnectionsOptions{
      .rank = kLeader,
      .silence_s = options_.silence_s,
      .name = [names = names_of(ranks_, met)](Rank process) { return names.at(process); }});
  for (auto& [rank, process] : met.others) {
    const Rank number = number_among(ranks_, rank);
    process.socket.end_when_silent(options_.host_deadline_s);
    connections_->add(number, std::move(process.socket));
    processes_.emplace(
        rank, Process{.line = std::make_unique<LaunchedLine>(*connections_, number),
                      .named = process.named,
                      .host = process.host,
                      .ahead_s = process.host.boot == host_id() ? std::optional(0.0) : std::nullopt});
  }
}

void RealRanks::start(Rank rank, Doors& doors, const std::map<Rank, PeerPlace>& places,
                      const JobToken& token) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    throw RunFailure(fmt::format("cannot reach real rank {}: {}", rank, std::strerror(errno)));
  auto here = std::make_unique<ChildLine>(Socket(ends[0]));
  ChildLine there{Socket(ends[1])};
  const pid_t parent = getpid(), process = fork();
  if (process < 0) throw RunFailure(fmt::format("cannot start real rank {}: {}", rank, std::strerror(errno)));
  if (process > 0) {
    processes_.emplace(rank, Process{.id = process,
                                     .line = std::move(here),
                                     .named = fmt::format("process {}", process),
                                     .host = {host_id(), options_.machine},
                                     .ahead_s = 0.0});
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  std::signal(SIGINT, SIG_IGN);  // a terminal interrupts all processes at once, and the parent answers it
  if (!is_launched()) stay_on_processors_of(number_among(ranks_, rank), static_cast<int>(ranks_.size()));
  here.reset();
  processes_.clear();
  ServerPlace mine{rank, std::move(doors.at(rank)), places, token, there};
  doors.clear();  // who calls a rank that has died shall not find its door open here
  try {
    answer_questions(job_, program_, server_options(ranks_, options_, mine), there);
  } catch (const SocketFailure&) {  // nobody asks any more
  }
  _exit(0);
}

void RealRanks::ask(Rank rank, const RankQuestion& question) {
  if (processes_.empty()) start_all();
  look_at_launched(rank, question);
  std::vector<float> recorded;
  if (question.recorded) recorded = options_.recording->values(question.step);
  try {
    send_question(*processes_.at(rank).line, question, recorded, options_.deadline_s);
  } catch (const SocketFailure&) {
    throw_dead(rank, question);
  }
}

// Throws Died if another process of the launch is gone or gives no sign of life.
void RealRanks::look_at_launched(Rank rank, const RankQuestion& question) const {
  if (!connections_) return;
  if (const auto failure = connections_->failure())
    throw Died(*failure + ", " + what_was_done(rank, question));
}

// Throws Died if a child of this process has ended, or has been stopped for too long.
void RealRanks::look_at_children(Rank rank, const RankQuestion& question) {
  for (const auto& [each, process] : processes_)
    if (process.id > 0) look_at(each, rank, question);
}

void RealRanks::look_at(Rank child, Rank asked, const RankQuestion& question) {
  Process& process = processes_.at(child);
  const auto named = [&] { return fmt::format("real rank {} ({})", child, process.named); };
  int status = 0;
  if (waitpid(process.id, &status, WNOHANG | WUNTRACED | WCONTINUED) == process.id) {
    process.stopped_s.reset();
    if (WIFSTOPPED(status)) process.stopped_s = monotonic_s();
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      process.id = 0;
      throw Died(fmt::format("{} {}, {}", named(), ending(status), what_was_done(asked, question)));
    }
  }
  if (process.stopped_s && monotonic_s() - *process.stopped_s > options_.silence_s)
    throw Died(fmt::format("{} has been stopped for {:.3g} s, {}", named(), options_.silence_s,
                           what_was_done(asked, question)));
}

// Waits until the rank has begun to answer. Throws Died if any rank has died.
void RealRanks::wait_for(Rank rank, const RankQuestion& question) {
  constexpr double kLook_s = 0.2;  // how often the other ranks are looked at
  const double until_s = monotonic_s() + options_.deadline_s;
  const Process& asked = processes_.at(rank);
  while (!asked.line->wait(kLook_s)) {
    look_at_launched(rank, question);
    look_at_children(rank, question);
    if (monotonic_s() > until_s)
      throw Died(fmt::format("real rank {} ({}) has not answered for {} s, {}", rank, asked.named,
                             options_.deadline_s, what_was_done(rank, question)));
  }
}

RankAnswer RealRanks::answer(Rank rank, const RankQuestion& question) {
  wait_for(rank, question);
  try {
    return read_answer(*processes_.at(rank).line, options_.deadline_s);
  } catch (const SocketFailure&) {
    throw_dead(rank, question);
  }
}

RankAnswer RealRanks::ask_and_wait(Rank rank, const RankQuestion& question) {
  ask(rank, question);
  return answer(rank, question);
}

std::string RealRanks::what_was_done(Rank rank, const RankQuestion& question) const {
  if (question.ask == RankQuestion::Ask::clock)
    return fmt::format("while rank {} was asked for its time", rank);
  if (question.ask == RankQuestion::Ask::loss || question.ask == RankQuestion::Ask::values)
    return fmt::format("while rank {} was asked for its results", rank);
  return "at " + describe(program_, rank, question.step.stream, question.step.index);
}

// The rank has closed its line, so it has ended or is about to; or another one of the launch has died.
void RealRanks::throw_dead(Rank rank, const RankQuestion& question) {
  Process& process = processes_.at(rank);
  if (process.id <= 0) look_at_launched(rank, question);
  const int id = std::exchange(process.id, 0);
  int status = 0;
  while (id > 0 && waitpid(id, &status, 0) < 0 && errno == EINTR) {
  }
  throw Died(fmt::format("real rank {} ({}) {}, {}", rank, process.named, id > 0 ? ending(status) : "is gone",
                         what_was_done(rank, question)));
}

double RealRanks::execute(const Step& step, const Instruction&) {
  const bool recorded = options_.recording != nullptr && options_.recording->origin().inside_computes &&
                        receives_inside(program_, step);
  RankAnswer done =
      ask_and_wait(step.rank, {.ask = RankQuestion::Ask::execute, .step = step, .recorded = recorded});
  if (recorded && options_.recorder != nullptr)
    options_.recorder->add(step, options_.recording->values(step));
  kernels_ = std::move(done.kernels);
  return done.number;
}

// How far the clock of the rank's host is ahead of this one's.
double RealRanks::ahead_s(Rank rank) {
  constexpr int kTimes = 64;
  const Process& process = processes_.at(rank);
  if (process.ahead_s) return *process.ahead_s;
  double ahead_s = 0, quickest_s = kForEver_s;
  for (int i = 0; i < kTimes; ++i) {
    const double begin_s = monotonic_s();
    const double there_s =
        ask_and_wait(rank, {.ask = RankQuestion::Ask::clock, .step = {rank, {}, 0}}).number;
    const double end_s = monotonic_s();
    if (end_s - begin_s >= quickest_s) continue;
    quickest_s = end_s - begin_s;
    ahead_s = there_s - (begin_s + end_s) / 2;
  }
  processes_.at(rank).ahead_s = ahead_s;
  return ahead_s;
}

// A rank that died makes those fail that it moves bytes with, so its failure counts before theirs.
std::optional<double> RealRanks::communicate(const std::vector<Step>& together, bool complete) {
  const bool shares = !complete && together.size() > 1 && options_.recording == nullptr;
  const auto question_of = [&](const Step& step) {
    const bool comes = receives(program_, step);
    return RankQuestion{.ask = complete ? RankQuestion::Ask::move : RankQuestion::Ask::imagine,
                        .step = step,
                        .keeps = comes && options_.recorder != nullptr,
                        .recorded = comes && !complete && options_.recording != nullptr,
                        .shares = shares};
  };
  std::vector<double> ahead_s;
  if (processes_.empty()) start_all();
  for (const Step& step : together) ahead_s.push_back(complete ? this->ahead_s(step.rank) : 0);
  for (const Step& step : together) ask(step.rank, question_of(step));
  paths_.clear();
  std::exception_ptr failure, death;
  double begin_s = -kForEver_s, end_s = -kForEver_s;  // of the last rank
  for (std::size_t i = 0; i < together.size(); ++i) try {
      const RankQuestion question = question_of(together[i]);
      const RankAnswer moved = answer(together[i].rank, question);
      begin_s = std::max(begin_s, moved.begin_s - ahead_s[i]);
      end_s = std::max(end_s, moved.end_s - ahead_s[i]);
      paths_[together[i]] = moved.paths;
      if (question.keeps) options_.recorder->add(together[i], moved.values);
    } catch (const Died&) {
      if (!death) death = std::current_exception();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  if (death) std::rethrow_exception(death);
  if (failure) std::rethrow_exception(failure);
  if (!complete) return std::nullopt;
  return std::max(0.0, end_s - begin_s);
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

const RankHost& RealRanks::host(Rank rank) {
  if (processes_.empty()) start_all();
  return processes_.at(rank).host;
}

void serve_real_rank(const Job& job, const Program& program, const std::vector<Rank>& ranks,
                     const RealRanksOptions& options) {
  const std::vector<Rank> real = ascending(ranks);
  Meeting met = meet(options.place.value(), real, program_hash(program), agreed(job, real, options),
                     options.machine, options.rendezvous_timeout_s);
  auto& [asking, process] = *met.others.begin();
  process.socket.end_when_silent(options.deadline_s);  // it may read the answers of other ranks first
  const auto name = [served = met.rank, asking = asking](Rank number) {
    return number == kLeader ? fmt::format("the process of real rank {}, which simulates,", asking)
                             : fmt::format("real rank {}", served);
  };
  Connections connections({.rank = options.place->rank, .silence_s = options.silence_s, .name = name});
  connections.add(kLeader, std::move(process.socket));
  LaunchedLine line(connections, kLeader);
  ServerPlace place{met.rank, std::move(met.door), met.places, options.place->token, line};
  try {
    answer_questions(job, program, server_options(real, options, place), line);
  } catch (const SocketFailure& failure) {
    throw RunFailure(failure.what());
  }
}

}  // namespace motley
