// Compiles Transformer x Cluster x Strategy into a Program by a list of named passes, each a function from Program to
// Program. Read next: models/check/check.hpp.
#pragma once

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
// Ranks alone, without groups, as compile() places them. It refuses only what has no place.
Program place_ranks(const Job& job);

}  // namespace motley
