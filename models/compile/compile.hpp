// Compiles Transformer x Cluster x Strategy into a Program by a list of named passes, each a function from Program to
// Program. Read next: models/check/check.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct CompilePass {
  std::string name;
  std::string does;  // one line for `motley show program --passes`
  std::function<void(const Job&, Program&)> run;
};
// The passes in the order in which compile() runs them.
const std::vector<CompilePass>& compile_passes();

Program compile(const Job& job);
// Whether every job is refused for its size whose only pipeline has so many micro-batches and such degrees, whatever
// its stages: its layers alone have more instructions than compile() takes.
bool is_too_large(const Job& job, std::int64_t micro_batches, std::int64_t context_parallel,
                  std::int64_t expert_parallel);
// Ranks alone, without groups, as compile() places them. It refuses only what has no place.
Program place_ranks(const Job& job);

}  // namespace motley
