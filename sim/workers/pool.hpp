// Many tasks at once, each in a forked process of its own. SimGrid has one engine in a process, and the memory of a
// task is freed with its process, so that a thousand tasks need no more memory than the few that run at once. The pool
// knows nothing about simulations: a task is any function. Read next: sim/workers/child.hpp, sim/workers/message.hpp.
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
  std::size_t processes = 0;  // how many run at once; 0: one for each processor that this process may use
  // The name of a task in messages; empty: "task 3", counted from 0.
  std::function<std::string(std::size_t task)> name = {};
  // Called in this process when a task begins and again when it has ended. `ended`: how many tasks have ended.
  std::function<void(std::size_t task, std::size_t ended)> progress = {};
};

namespace pool {

// How many processors this process may use.
std::size_t processors();

// How a task ended: the first value that a child writes.
enum class Outcome : char { value = 'v', refusal = 'r', failure = 'f', bug = 'b' };

// `work` runs in the children, once for each task below `count`, and writes Outcome::value and then the value. `take`
// runs in this process and reads the value.
void run(std::size_t count, const std::function<void(std::size_t task, MessageWriter& out)>& work,
         const std::function<void(std::size_t task, MessageReader& in)>& take, const PoolOptions& options);

}  // namespace pool

// Returns the values of task(0), task(1), ..., task(count - 1) in that order, in whatever order the tasks end: the same
// tasks give the same result with any number of processes. `task` sees a copy of this process's memory and changes
// nothing in this process. A value may have any type that sim/workers/message.hpp can send.
//
// What a task throws is thrown here: a Refusal with all its fields, a std::logic_error as std::logic_error, anything
// else as RunFailure. A process that ends without an answer (killed, for example) is a RunFailure that names its task.
// If several tasks fail, the one with the lowest number counts; tasks after it are killed or never begun.
//
// No child outlives this process: when this process is interrupted or killed, or leaves by an exception, the kernel or
// the pool kills its children. A terminal sends SIGINT to all processes at once; only this one answers it. The caller
// must be the process's first and only thread.
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

// The same for one task. `name`: its name in messages.
template <class Work>
auto run_in_child(const Work& work, const std::string& name = "a simulation") {
  PoolOptions options;
  options.name = [&name](std::size_t) { return name; };
  return std::move(map_in_pool(
                       1, [&work](std::size_t) { return work(); }, options)
                       .front());
}

}  // namespace motley
