// Simulations in forked children: SimGrid has one engine a process. The trace comes back through a temporary file, as
// it lies in memory: both ends are the same binary.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <type_traits>

#include "models/refusal.hpp"
#include "sim/world.hpp"

namespace motley {
namespace {

static_assert(std::is_trivially_copyable_v<TraceEvent>);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// What came of it: the first byte written.
enum class Outcome : char { trace = 't', refusal = 'r', failure = 'f' };

class Writer {
 public:
  explicit Writer(std::FILE* file) : file_(file) {}
  template <class T>
  void values(const T* data, std::size_t count) {
    MOTLEY_CHECK(count == 0 || std::fwrite(data, sizeof(T), count, file_) == count);
  }
  template <class T>
  void value(const T& data) {
    values(&data, 1);
  }
  void text(const std::string& text) {
    value(text.size());
    values(text.data(), text.size());
  }

 private:
  std::FILE* file_;
};

class Reader {
 public:
  explicit Reader(std::FILE* file) : file_(file) {}
  template <class T>
  bool values(T* data, std::size_t count) {
    return count == 0 || std::fread(data, sizeof(T), count, file_) == count;
  }
  template <class T>
  T value() {
    T data{};
    MOTLEY_CHECK(values(&data, 1));
    return data;
  }
  std::string text() {
    std::string text(value<std::size_t>(), '\0');
    MOTLEY_CHECK(values(text.data(), text.size()));
    return text;
  }

 private:
  std::FILE* file_;
};

void write_trace_to(Writer& out, const Trace& trace) {
  out.value(Outcome::trace);
  out.text(trace.strategy_hash);
  out.text(trace.program_hash);
  out.text(trace.world);
  out.value(trace.measured_ranks.size());
  out.values(trace.measured_ranks.data(), trace.measured_ranks.size());
  out.value(trace.stand_ins.size());
  out.values(trace.stand_ins.data(), trace.stand_ins.size());
  out.value(trace.events.size());
  out.values(trace.events.data(), trace.events.size());
}

Trace read_trace_from(Reader& in) {
  Trace trace;
  trace.strategy_hash = in.text();
  trace.program_hash = in.text();
  trace.world = in.text();
  trace.measured_ranks.resize(in.value<std::size_t>());
  MOTLEY_CHECK(in.values(trace.measured_ranks.data(), trace.measured_ranks.size()));
  trace.stand_ins.resize(in.value<std::size_t>());
  MOTLEY_CHECK(in.values(trace.stand_ins.data(), trace.stand_ins.size()));
  trace.events.resize(in.value<std::size_t>());
  MOTLEY_CHECK(in.values(trace.events.data(), trace.events.size()));
  return trace;
}

[[noreturn]] void throw_refusal(Reader& in) {
  const auto exit_code = in.value<Exit>();
  const std::string kind = in.text();
  Location where;
  where.file = in.text();
  where.line = in.value<int>();
  where.column = in.value<int>();
  const std::string message = in.text();
  throw Refusal(exit_code, kind, where, message, in.text());
}

void run_and_write(const std::function<Trace()>& work, Writer& out) {
  try {
    write_trace_to(out, work());
  } catch (const Refusal& refusal) {
    out.value(Outcome::refusal);
    out.value(refusal.exit_code());
    out.text(refusal.kind());
    out.text(refusal.where().file);
    out.value(refusal.where().line);
    out.value(refusal.where().column);
    out.text(refusal.message());
    out.text(refusal.hint());
  } catch (const std::exception& failure) {
    out.value(Outcome::failure);
    out.text(failure.what());
  }
}

}  // namespace

Trace run_in_child(const std::function<Trace()>& work) {
  const File file(std::tmpfile());
  if (file == nullptr) throw RunFailure("cannot make a temporary file for a simulation's trace");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw RunFailure("cannot fork a process for a simulation");
  if (child == 0) {
    Writer out(file.get());
    run_and_write(work, out);
    std::fflush(file.get());
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::rewind(file.get());
  Reader in(file.get());
  Outcome outcome{};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !in.values(&outcome, 1))
    throw RunFailure(fmt::format("a simulation died (wait status {})", status));
  if (outcome == Outcome::refusal) throw_refusal(in);
  if (outcome == Outcome::failure) throw RunFailure(in.text());
  return read_trace_from(in);
}

Trace simulate_in_child(const Job& job, const Program& program, const SimOptions& options) {
  return run_in_child([&] { return simulate(job, program, options); });
}

}  // namespace motley
