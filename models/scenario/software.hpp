// What a generation of training software makes of a chip and of a network: figures that replace the chip's own, fitted
// to published runs of it. platforms/software/ holds them, each with its source. It has no code for any one of them.
// Read next: models/cost/compute_cost.hpp, which says what the figures mean.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/scenario/interval.hpp"

namespace motley {

// Replaces, in every group of the cluster, the chip's figures that the file platforms/software/`name`.yaml gives for
// that chip, and multiplies the rates of NICs by its `network`. A chip it does not know inherits from the nearest kin
// that it does: of the same vendor, with the nearest 16-bit peak; shares of a peak by how far they are from that chip's
// own. One without kin stays as it is. Refuses a name that is not there. Returns how far runs of that software lay from
// their predictions; where a chip inherits or has no kin, how far those of any did.
Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster);
Interval use_software(const std::string& name, Cluster& cluster);
// What software of that name keeps in memory (platforms/kept/`name`.yaml), where that is known: the same on every chip.
// Part of use_software.
void use_kept(const std::string& name, Cluster& cluster);
// use_software() with what stands in such a file, without use_kept().
Interval use_figures(const Yaml& software, Cluster& cluster);

// Intervals of runs that took no part in a fit, from platforms/published/unseen.yaml.
Interval interval_of_unseen();    // no software is named
Interval interval_of_left_out();  // software is named, but no run like this one took part in its fit
Interval interval_of_experts();   // the model has experts, and no run of such a model took part in any fit

}  // namespace motley
