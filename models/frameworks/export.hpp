// A job in the words of another framework. What the framework cannot say is refused by the key that asks for it. Read
// next: megatron_settings.hpp, launch_files.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/frameworks/framework.hpp"
#include "models/frameworks/scenario_keys.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {

struct ExportOptions {
  std::vector<std::string>
      hosts;  // names in the order of the cluster's nodes; none: a name by group and number
};

// Throws Refusal("inexpressible") at the key of the scenario.
Export export_job(const std::string& name, const Job& job, ExportTarget target, const ScenarioKeys& keys = {},
                  const ExportOptions& options = {});

std::string export_json(const Export& exported);

// What begins every file: the target with its version and source, the scenario and its strategy's hash, as lines of
// comments that begin with `mark`.
std::string export_header(ExportTarget target, const std::string& name, const Job& job,
                          const std::string& mark = "#");

// What Megatron-LM wants in the environment where tensors or sequences are cut, before Blackwell (arguments.py).
std::string environment_of(const Strategy& strategy);

// Quotes a word for a shell where it needs it.
std::string shell_quoted(const std::string& word);

// The files of one target each. All refuse what the target cannot say.
std::vector<ExportedFile> megatron_files(const std::string& name, const Job& job, const Wording& wording,
                                         const ExportOptions& options);
std::vector<ExportedFile> flagscale_files(const std::string& name, const Job& job, const Wording& wording,
                                          const ExportOptions& options);
std::vector<ExportedFile> bridge_files(const std::string& name, const Job& job, const Wording& wording,
                                       const ExportOptions& options);
std::vector<ExportedFile> torchtitan_files(const std::string& name, const Job& job, const Wording& wording);
std::vector<ExportedFile> deepspeed_files(const std::string& name, const Job& job, const Wording& wording);

}  // namespace motley
