// Readers of single nouns from a parsed YAML node, and printers of their pieces: what the files
// that read scenarios, clusters and strategies share. Read next: models/scenario.cpp.
#pragma once

#include <string>

#include "models/scenario.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

// `path`: where it stands, or would; files it names are searched beside that.
Scenario read_scenario(const Yaml& node, const std::string& path);

// `short_form`: tensor_parallel, pipeline_parallel and data_parallel may stand for the templates;
// they are expanded for the transformer and training shape. Every refusal points at its key.
// Throws the Refusals of strategy_complaint.hpp.
Strategy read_strategy(const Yaml& node, const Transformer& transformer, const Train& train);
// The explicit form alone, unchecked against any transformer.
Strategy read_explicit_strategy(const Yaml& node);

// Inline: our own keys, or those of a Hugging Face config.json when `model_type` stands there.
Transformer read_transformer(const Yaml& node, const std::string& default_name);
Transformer read_hugging_face(const Yaml& node, const std::string& default_name);

// `folder`: where chips named in it are searched first.
Cluster read_cluster(const Yaml& node, const std::string& default_name, const std::string& folder);
Chip read_chip(const Yaml& node, const std::string& default_name);
// Some figures of a chip alone, each {value, source}: they replace the chip's own.
void replace_figures(const Yaml& node, Chip& chip);
std::string print(const Chip& chip, const std::string& indent);

// The first of `<folder>/<name>` and `<data>/<under>/<name>` that is a file, where `name` gets
// `extension` unless it has it; a text with a `/` is a path, from `folder` or from here. Throws
// Refusal file-not-found naming what is there.
std::string find_file(const std::string& name, const std::string& folder, const std::string& under,
                      const std::string& extension, const Location& asked_from);
std::string folder_of(const std::string& path);  // "." when it has none
std::string stem_of(const std::string& path);    // "a/b.yaml" -> "b"

}  // namespace motley
