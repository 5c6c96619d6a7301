// Measured times of layers on a chip, which replace the prices of its kernels. A file of platforms/layers/ holds
// seconds of one model's embedding, layers and head, forward and backward, by chip, tensor-parallel degree and
// micro-batch. This part knows no Program: models/cost/measured_kernels.hpp calls it. Read next: platforms/README.md.
#pragma once

#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

enum class LayerPlace : std::uint8_t { embedding, layer, head };

// The times at that degree and micro-batch; linearly interpolated between two measured micro-batches. Throws
// Refusal("not-measured") for a degree that was not measured, and for a micro-batch outside the measured range.
LayerTimes measured_times(const Chip& chip, std::int64_t tensor_parallel, std::int64_t micro_batch);
double measured_s(const LayerTimes& times, LayerPlace place, bool backward);

// Read the key `layers` of a chip's file, and two of its parts that files of platforms/layers also have.
MeasuredLayers read_layers(const Yaml& node);
std::vector<LayerTimes> read_layer_times(const Yaml& node);
bool read_communication(const Yaml& node);  // `included`: true; `excluded`: false
std::string print(const MeasuredLayers& layers, const std::string& indent);

}  // namespace motley
