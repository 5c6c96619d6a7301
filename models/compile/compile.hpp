// Transformer x Cluster x Strategy -> Program: a list of named passes, each a function from Program
// to Program. Read next: models/check/check.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct CompilePass {
  std::string name;
  std::string does;  // one line, printed by `motley show program --passes`
  std::function<void(const Job&, Program&)> run;
};
// In the order in which compile() runs them.
const std::vector<CompilePass>& compile_passes();

Program compile(const Job& job);

}  // namespace motley
