// Many tasks at once, each in a forked process of its own: SimGrid has one engine a process, and whatever a task takes
// of memory goes with its process, so that a thousand tasks need no more than the few that run at once. The pool knows
// nothing of simulations: a task is any function. Read next: sim/workers/child.hpp, sim/workers/message.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/workers/message.hpp"

namespace motley {

struct PoolOptions {
  std::size_t processes = 0;  // at once; 0: as many as this process may use processors
  // What a message calls a task; empty: "task 3", from 0.
  std::function<std::string(std::size_t task)> name = {};
  // Called in this process when a task begins and again when it has ended, with how many have ended.
  std::function<void(std::size_t task, std::size_t ended)> progress = {};
};

namespace pool {

// The first thing that a child writes: what its task came to.
enum class Outcome : char { value = 'v', refusal = 'r', failure = 'f', bug = 'b' };

// `work` runs in children, once for each task below `count`, and writes Outcome::value and the value; `take` runs here
// and reads the value.
void run(std::size_t count, const std::function<void(std::size_t task, MessageWriter& out)>& work,
         const std::function<void(std::size_t task, MessageReader& in)>& take, const PoolOptions& options);

}  // namespace pool

// What task(0), task(1), ..., task(count - 1) return, in that order, whatever the order in which they end: the same
// tasks give the same result with any number of processes. `task` sees this process as it is now and changes nothing
// in it. A value may be of any type that sim/workers/message.hpp can send.
//
// What a task throws is thrown here: Refusal with all it holds, std::logic_error as that, anything else as RunFailure.
// A process that ends otherwise, as one that is killed, is a RunFailure that names its task. Of several tasks that fail
// the first by number counts; tasks behind it are ended or never begun.
//
// No process outlives this one: when this one is interrupted, killed or leaves by an exception, the kernel or the pool
// kills them. SIGINT, which a terminal sends to all processes at once, is answered by this one alone. The caller must
// be the process's first thread, and the only one.
template <class Task>
auto map_in_pool(std::size_t count, const Task& task, const PoolOptions& options = {}) {
  using Value = std::invoke_result_t<Task, std::size_t>;
  std::vector<Value> values(count);
  pool::run(
      count,
      [&task](std::size_t i, MessageWriter& out) {
        const Value value = task(i);
        write_value(out, pool::Outcome::value);
        write_value(out, value);
      },
      [&values](std::size_t i, MessageReader& in) { read_value(in, values[i]); }, options);
  return values;
}

// The same for one task. `name`: what a message calls it.
template <class Work>
auto run_in_child(const Work& work, const std::string& name = "a simulation") {
  PoolOptions options;
  options.name = [&name](std::size_t) { return name; };
  return std::move(map_in_pool(
                       1, [&work](std::size_t) { return work(); }, options)
                       .front());
}

}  // namespace motley
