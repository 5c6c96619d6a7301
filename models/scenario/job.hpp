// A Job: everything that compile() reads. Read next: models/compile/compile.hpp.
#pragma once

#include "models/cluster/cluster.hpp"
#include "models/scenario/fidelity.hpp"
#include "models/strategy/strategy.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

struct Job {
  Transformer transformer;
  Cluster cluster;
  Train train;
  Strategy strategy;
  Fidelity fidelity;
};

}  // namespace motley
