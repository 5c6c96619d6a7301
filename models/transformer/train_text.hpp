// The training shape as text: `train:` of a scenario. Read next: models/transformer/train_fields.hpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/transformer/train.hpp"

namespace motley {

// Reads a training shape. The path of the training text is searched in `folder`. Two keys of the model, `lora` and
// `extra_prediction_weight`, may stand in the map too; they are not read here.
Train read_train(const Yaml& node, const std::string& folder);

// Prints one line for each key. parse_train() reads it back equal from the working directory.
std::string print(const Train& train);
Train parse_train(const std::string& text);
// Every key and its value; "left out" where it is the standard one, which is not printed.
std::vector<std::pair<std::string, std::string>> values_by_key(const Train& train);

// Reads the tokens of a whole run: `15T`, `300 B`, or a plain number. Throws Refusal.
double to_tokens(const Yaml& node);
double to_goodput(const Yaml& node);  // more than 0, at most 1

}  // namespace motley
