// What a generation of training software makes of a chip and of a network: figures fitted to published runs of the
// software, which replace the chip's own. platforms/software/ holds them, each with its source. No code is particular
// to one software. Read next: models/cost/compute_cost.hpp, which says what the figures mean.
#pragma once

#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/scenario/interval.hpp"

namespace motley {

// Replaces, in every group of the cluster, the chip's figures by those that the file platforms/software/`name`.yaml
// gives for that chip, and multiplies the rates of NICs by its `network`. CPUs keep their figures. A chip that the file
// lacks takes them from its kin in the file, chips of the same vendor and family: of these, the one with the nearest
// 16-bit peak. Its shares of a peak are scaled in the ratio that the software changes those of its kin. If some chip
// has no kin either, all chips take neutral_figures(): a fleet is treated alike. Refuses an unknown name. Returns the
// interval of runs of that software around their predictions: never narrower the less is known of the software on these
// chips. `none` changes no figure: the interval is then that of runs around what their chips' own figures predict.
Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster);
Interval use_software(const std::string& name, Cluster& cluster);
// Predicts the usual software: what platforms/software/usual.yaml makes of any chip.
Interval use_usual_software(Cluster& cluster);

// The figures of the chips of each group. Before any software is applied they are the chips' own.
using OwnFigures = std::vector<ChipSoftware>;
OwnFigures own_figures(const Cluster& cluster);
// Gives the chips of the same cluster their own figures back, so that its steps are as short as the chips' kernels
// allow. The share of collectives that computes hide stays the software's: it is no figure of a chip.
void use_own_figures(const OwnFigures& own, Cluster& cluster);

// Applies what the software keeps in memory (platforms/kept/`name`.yaml, if there is such a file) to every chip that
// is no CPU.
void use_kept(const std::string& name, Cluster& cluster);
// Does what use_software() does, with the content of such a file, but without what the software keeps in memory.
// `name` is the software's.
Interval use_figures(const Yaml& software, Cluster& cluster, const std::string& name = "");

// What a software makes of a chip of which it has no figures: the lines of the file's `any`, or where it has none, the
// geometric means over the chips of its `on`. The shares (gemm_efficiency, attention_efficiency) are factors on the
// chip's own. A figure of 0 is unknown.
// Assumes: attention is fused on a chip of which nothing is known, as it is in the library of every vendor today.
ChipSoftware neutral_figures(const Yaml& software);
// Multiplies the chip's shares by those of `neutral`, and fills in the figures that the chip does not have.
// Assumes: launches, steps and passes over memory are the software's own, alike on every chip.
void use_neutral_figures(const ChipSoftware& neutral, Chip& chip);
// The keys that a neutral figure can have.
std::vector<std::string> neutral_keys();

// Intervals of runs that took part in no fit, from platforms/published/unseen.yaml.
Interval interval_of_unnamed();   // for a scenario that names no software
Interval interval_of_left_out();  // for named software, if no run like this one took part in its fit
Interval interval_of_experts();   // for a model with experts, if no run of such a model took part in any fit
Interval interval_of_own();       // around what the chips' own figures predict
// The regime and the words of `interval`, and the bounds of both.
Interval widened(const Interval& interval, const Interval& other);
// The interval if the model has experts: no run of such a model took part in any fit, so nothing is calibrated.
Interval interval_with_experts(const Interval& interval);

}  // namespace motley
