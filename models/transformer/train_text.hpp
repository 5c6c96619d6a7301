// The training shape as text: `train:` of a scenario. Read next: models/transformer/train_fields.hpp.
#pragma once

#include <string>
#include <string_view>

#include "models/base/yaml_reader.hpp"
#include "models/transformer/train.hpp"

namespace motley {

// The path of the training text is searched in `folder`. Two keys of the model may stand in the map too, and are not
// read here: `lora` and `extra_prediction_weight`.
Train read_train(const Yaml& node, const std::string& folder);

// A line a key; it reads back equal, from the working directory.
std::string print(const Train& train);
Train parse_train(const std::string& text);

// Tokens of a whole run: `15T`, `300 B`, or a plain number. Throws Refusal.
double to_tokens(const Yaml& node);
double to_goodput(const Yaml& node);  // more than 0, at most 1

}  // namespace motley
