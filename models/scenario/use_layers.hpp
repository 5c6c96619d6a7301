// Gives measured layers to the chips of a job. Read next: models/cluster/measured_layers.hpp.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// Gives every chip of the cluster the layers that the file `name` has for it. Refuses ("not-measured") a chip that
// the file lacks, and a model, sequence or precision that differs from the measured one.
void use_layers(const Yaml& name, const std::string& folder, const Transformer& transformer,
                const Train& train, Cluster& cluster);
// Does this with a file of platforms/layers/. Returns false, and changes nothing, where it would refuse.
bool use_layers(const std::string& name, const Transformer& transformer, const Train& train,
                Cluster& cluster);

}  // namespace motley
