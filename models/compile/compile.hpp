// Transformer x Cluster x Strategy -> Program: a list of named passes, each a function from Program
// to Program. Read next: models/check.hpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/program.hpp"
#include "models/strategy.hpp"
#include "models/transformer.hpp"

namespace motley {

struct Job {  // everything compile() reads
  Transformer transformer;
  Cluster cluster;
  Train train;
  Strategy strategy;
  Fidelity fidelity;
};

struct CompilePass {
  std::string name;
  std::string does;  // one line, printed by `motley show program --passes`
  std::function<void(const Job&, Program&)> run;
};
// In order: place, tensors and kernels, schedule, transfers, gradient reduction, optimizer,
// offload, separate tensor-parallel collectives, lifetimes.
const std::vector<CompilePass>& compile_passes();

Program compile(const Job& job);

}  // namespace motley
