// Layers that were measured, given to the chips of a job. Read next: models/cluster/measured_layers.hpp.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// Gives every chip of the cluster the layers that the file `name` has of it. Refuses ("not-measured") a chip that the
// file does not have, and another model, sequence or precision than those it was measured with.
void use_layers(const Yaml& name, const std::string& folder, const Transformer& transformer,
                const Train& train, Cluster& cluster);
// Does so with a file of platforms/layers/. False: it would refuse, and nothing is changed.
bool use_layers(const std::string& name, const Transformer& transformer, const Train& train,
                Cluster& cluster);

}  // namespace motley
