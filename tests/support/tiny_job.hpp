// Small jobs for tests: a GPT-2 or Llama shape that runs in milliseconds, on one node of equal chips.
#pragma once

#include "models/compile/compile.hpp"

namespace motley::tests {

Transformer tiny_transformer(Family family = Family::gpt2);

// A tiny transformer with what is special in a family that descends from Llama; on odd layers, if layers may differ.
Transformer tiny_variant(const std::string& name);
// Adds two trained modules that predict further tokens.
Transformer with_extra_predictions(Transformer t);
const std::vector<std::string>& variants();            // those that real ranks train
const std::vector<std::string>& simulated_variants();  // those that are simulated only

Chip tiny_chip();

Cluster tiny_cluster(int chips);

struct Degrees {
  std::int64_t tp = 1, pp = 1, dp = 1;
};

Job tiny_job(Degrees degrees, const Transformer& transformer);
Job tiny_job(Degrees degrees, Family family = Family::gpt2);

// Every plain shape on up to four ranks: degrees x schedule x recompute x overlaps x levels of collectives.
std::vector<Job> every_small_job(Family family);

// Experts divided over 1, 2 and 4 of up to four ranks, and cut like the rest or not at all.
std::vector<Job> every_expert_job(const Transformer& transformer);

// Experts divided over ranks whose forwards and backwards alternate: on one stage, and on two in every schedule that
// allows it.
std::vector<Job> every_overlapped_expert_job(const Transformer& transformer);

// Every schedule with chunks or split backwards on up to four ranks, and one read from CSV, where half of the backwards
// are split.
std::vector<Job> every_scheduled_job(Family family);

// What replicas may divide (zero 1 to 3, over all or over some), with every kind of schedule, on up to four ranks.
std::vector<Job> every_divided_job(Family family);

// The same cluster with memory in its nodes; each chip has a link of its own to it.
Cluster with_hosts(Cluster cluster);

// States and activations in the memory of the node, all or a part, with every kind of schedule and of division.
std::vector<Job> every_offloaded_job(Family family);

// Replicas that divide what they hold, with experts that are divided, or cut less than the rest, on up to eight ranks.
std::vector<Job> every_divided_expert_job(const Transformer& transformer);

// Stages of one pipeline with different numbers of replicas, some also cut in unlike ways, on up to eight ranks.
std::vector<Job> every_job_of_unlike_replicas(Family family);

// Neighbouring stages with different tensor-parallel degrees, and equal ones that gather, of one chunk and of several,
// on up to seven ranks a replica.
std::vector<Job> every_resharded_job(Family family);

}  // namespace motley::tests
