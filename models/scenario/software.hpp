// What a generation of training software makes of a chip and of a network: figures fitted to published runs of the
// software, which replace the chip's own. platforms/software/ holds them, each with its source. No code is particular
// to one software. Read next: models/cost/compute_cost.hpp, which says what the figures mean.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/scenario/interval.hpp"

namespace motley {

// Replaces, in every group of the cluster, the chip's figures by those that the file platforms/software/`name`.yaml
// gives for that chip, and multiplies the rates of NICs by its `network`. A chip that the file lacks inherits from
// its nearest relative in the file: the chip of the same vendor with the nearest 16-bit peak. Shares of a peak are
// scaled in the ratio that the software changes the relative's. A chip without a relative keeps its figures. Refuses
// an unknown name. Returns the interval of runs of that software around their predictions; if a chip inherits or has
// no relative, interval_of_left_out().
Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster);
Interval use_software(const std::string& name, Cluster& cluster);
// Applies what the software keeps in memory (platforms/kept/`name`.yaml, if there is such a file) to every chip that
// is no CPU. use_software() does this too.
void use_kept(const std::string& name, Cluster& cluster);
// Does what use_software() does, with the content of such a file, but without use_kept().
Interval use_figures(const Yaml& software, Cluster& cluster);

// Intervals of runs that took part in no fit, from platforms/published/unseen.yaml.
Interval interval_of_unseen();    // for a scenario that names no software
Interval interval_of_left_out();  // for named software, if no run like this one took part in its fit
Interval interval_of_experts();   // for a model with experts, if no run of such a model took part in any fit

}  // namespace motley
