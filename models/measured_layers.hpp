// Layers as they were measured on a chip, in place of what its kernels should take: a file of platforms/layers/ holds
// seconds of one model's embedding, layers and head, forward and backward, by chip, tensor-parallel degree and
// micro-batch. It knows no program: models/compute_cost.cpp asks it. Read next: platforms/README.md.
#pragma once

#include <string>

#include "models/cluster.hpp"
#include "models/strategy.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

enum class LayerPlace : std::uint8_t { embedding, layer, head };

// Between two micro-batches measured, on the straight line between them. Throws Refusal("not-measured") for a degree
// that was not measured and for a micro-batch smaller or larger than those that were.
LayerTimes measured_times(const Chip& chip, std::int64_t tensor_parallel, std::int64_t micro_batch);
double measured_s(const LayerTimes& times, LayerPlace place, bool backward);

// Gives every chip of the cluster its layers of that file. Refuses ("not-measured") a chip that the file does not
// have, and another model, sequence or precision than those it was measured with.
void use_layers(const Yaml& name, const std::string& folder, const Transformer& transformer,
                const Train& train, Cluster& cluster);
// The same for a name of platforms/layers/; false where the file does not have them, and nothing is changed.
bool use_layers(const std::string& name, const Transformer& transformer, const Train& train,
                Cluster& cluster);

// Of a chip: `layers`.
MeasuredLayers read_layers(const Yaml& node);
std::string print(const MeasuredLayers& layers, const std::string& indent);

}  // namespace motley
