// Pass "offload": tensors that a rank keeps in the memory of its node. Optimizer states (ZeRO-Offload,
// arXiv:2101.06840): their gradients are copied to the host, the node's processor steps, and renewed parameters are
// copied to the chip, bucket by bucket, so that the three overlap. This begins once all gradients are complete or,
// where gradients overlap the last backward, as soon as each bucket is complete. Activations: each layer's are copied
// to the host while the next layer's forward runs, and back while the backward of the layer after it runs.
// Assumes: each chip's host memory is that of its own socket.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

using Ids = std::vector<TensorId>;

// Appends an instruction to the stream of that kind, and returns its end.
After append(RankProgram& rank_program, StreamKind kind, Instruction instruction) {
  const StreamId stream = stream_of(rank_program, kind);
  auto& instructions = rank_program.streams[stream].instructions;
  instructions.push_back(std::move(instruction));
  return {stream, static_cast<std::int32_t>(instructions.size()) - 1};
}

// A copy of an activation has no use: passes that look for a use mean the original.
TensorId add_copy(RankProgram& rank_program, TensorId id, const char* suffix, bool on_host) {
  Tensor copy = rank_program.tensors[id];
  copy.name += suffix;
  copy.on_host = on_host;
  if (!copy.parameter) {
    copy.use = TensorUse::plain;
    copy.chunk = {};
  }
  return rank_program.tensors.add(std::move(copy));
}

// Offloads the activations of one rank program, layer by layer: one layer is copied while the next one is computed.
class ActivationOffload {
 public:
  explicit ActivationOffload(RankProgram& rank_program) : rank_program_(rank_program) {}

  void run(double share) {
    if (share <= 0) return;
    for (const ChunkId chunk : rank_program_.chunks.ids()) parts_[chunk] = parts_of(chunk, share);
    cut();
    copy_out();
    copy_in();
  }

 private:
  // The kept tensors that kernels of one layer are the last of a forward to use, and their copies on the host and back
  // on the chip.
  struct Part {
    Ids kept, on_host, back;
    std::int64_t bytes = 0;
    int complete = 0;  // number of the forward's kernels that are done when all its uses are
    std::map<BlockId, int> first_reads;  // the first kernel that reads one of them, by block of a backward
  };
  // What is copied in one micro-batch.
  struct Passage {
    ChunkId chunk;
    std::int32_t micro_batch = 0;
    std::size_t part = 0;
    auto operator<=>(const Passage&) const = default;
  };
  // Where a part is complete, or first read: the index of the compute, and the number of its block's kernels before.
  struct Place {
    int index = 0;
    Passage passage;
    int kernels = 0;
  };

  RankProgram& rank_program_;
  std::map<ChunkId, std::vector<Part>> parts_;
  std::map<Passage, After> out_;  // ends of the copies to the host

  std::vector<Instruction>& computes() { return rank_program_.streams[kComputeStream].instructions; }
  const Block& block_at(int index) {
    return rank_program_.blocks[std::get<Compute>(computes()[at(index)].body).block];
  }

  // Moves tensors that forwards write for backwards, except those that are sent or that another chunk reads.
  std::vector<Part> parts_of(ChunkId chunk_id, double share) {
    const Chunk& chunk = rank_program_.chunks[chunk_id];
    const auto layers = std::llround(share * static_cast<double>(chunk.last_layer - chunk.first_layer));
    std::set<TensorId> written, read, elsewhere;
    std::map<TensorId, std::pair<int, int>>
        last_uses;  // kernels of the forward that are done, layer of the last
    for (const Stream& stream : rank_program_.streams)
      for (const Instruction& instruction : stream.instructions)
        if (const Send* const send = instruction.as<Send>()) elsewhere.insert(send->tensor);
    for (const Block& block : rank_program_.blocks)
      for (std::size_t i = 0; i < block.kernels.size(); ++i) {
        const Kernel& kernel = block.kernels[i];
        const bool is_of_chunk = block.chunk == chunk_id;
        if (is_of_chunk && block.pass == Pass::forward) {
          if (!is_collective(kernel.op) && kernel.layer >= chunk.first_layer &&
              kernel.layer < chunk.first_layer + layers)
            written.insert(kernel.out.begin(), kernel.out.end());
          for (const Ids* ids : {&kernel.in, &kernel.out})
            for (const TensorId id : *ids) last_uses[id] = {static_cast<int>(i) + 1, kernel.layer};
        } else {
          (is_of_chunk ? read : elsewhere).insert(kernel.in.begin(), kernel.in.end());
        }
      }
    std::map<int, Part> by_layer;
    for (const TensorId id : written) {
      if (!read.contains(id) || elsewhere.contains(id)) continue;
      const auto [complete, layer] = last_uses.at(id);
      Part& part = by_layer[layer];
      part.kept.push_back(id);
      part.on_host.push_back(add_copy(rank_program_, id, ".on_host", true));
      part.back.push_back(add_copy(rank_program_, id, ".back", false));
      part.bytes += rank_program_.tensors[id].bytes;
      part.complete = std::max(part.complete, complete);
    }
    std::vector<Part> parts;
    for (auto& [layer, part] : by_layer) parts.push_back(std::move(part));
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.complete < b.complete; });
    read_back(chunk_id, parts);
    return parts;
  }

  void read_back(ChunkId chunk, std::vector<Part>& parts) {
    std::map<TensorId, std::pair<TensorId, Part*>> backs;
    for (Part& part : parts)
      for (std::size_t i = 0; i < part.kept.size(); ++i) backs[part.kept[i]] = {part.back[i], &part};
    for (const BlockId id : rank_program_.blocks.ids()) {
      Block& block = rank_program_.blocks[id];
      if (block.chunk != chunk || block.pass == Pass::forward) continue;
      for (std::size_t i = 0; i < block.kernels.size(); ++i)
        for (Ids* ids : {&block.kernels[i].in, &block.kernels[i].out})
          for (TensorId& tensor : *ids) {
            const auto back = backs.find(tensor);
            if (back == backs.end()) continue;
            tensor = back->second.first;
            back->second.second->first_reads.try_emplace(id, static_cast<int>(i));
          }
    }
  }

  // Where the parts of each micro-batch are complete (forwards), or are read for the first time (backwards), in the
  // order of the compute stream.
  std::vector<Place> places(bool forward) {
    std::vector<Place> list;
    std::set<Passage> read;
    for (int i = 0; i < static_cast<int>(computes().size()); ++i) {
      const Instruction& instruction = computes()[at(i)];
      const Compute* const compute = instruction.as<Compute>();
      if (compute == nullptr || (block_at(i).pass == Pass::forward) != forward) continue;
      const ChunkId chunk = block_at(i).chunk;
      const std::vector<Part>& parts = parts_.at(chunk);
      std::vector<Place> here;
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const Passage passage{chunk, instruction.micro_batch, k};
        if (forward) {
          if (parts[k].complete > compute->first_kernel && parts[k].complete <= compute->last_kernel)
            here.push_back({i, passage, parts[k].complete});
          continue;
        }
        const auto first = parts[k].first_reads.find(compute->block);
        if (first != parts[k].first_reads.end() && first->second >= compute->first_kernel &&
            first->second < compute->last_kernel && read.insert(passage).second)
          here.push_back({i, passage, first->second});
      }
      std::stable_sort(here.begin(), here.end(),
                       [](const Place& a, const Place& b) { return a.kernels < b.kernels; });
      list.insert(list.end(), here.begin(), here.end());
    }
    return list;
  }

  void cut() {
    std::vector<ComputePoint> points;
    for (const bool forward : {true, false})
      for (const Place& place : places(forward)) points.push_back({place.index, place.kernels});
    cut_computes(rank_program_, points);
  }

  // The first piece of the pass of a micro-batch that the compute there, or the last one before it, is a piece of.
  int begin_of_pass(int index) {
    const auto begins = [&] {
      const Compute* const compute = computes()[at(index)].as<Compute>();
      return compute != nullptr && compute->first_kernel == 0;
    };
    while (index > 0 && !begins()) --index;
    return index;
  }

  Instruction copy_of(const Passage& passage, bool down) const {
    const Part& part = parts_.at(passage.chunk)[passage.part];
    const Ids &from = down ? part.kept : part.on_host, &into = down ? part.on_host : part.back;
    Instruction instruction;
    instruction.body = Copy{from, into, std::nullopt, part.bytes};
    instruction.micro_batch = passage.micro_batch;
    instruction.frees = from;
    return instruction;
  }

  // A part's forward waits for the copy of the part before the last: at most two are on the chip.
  void copy_out() {
    std::vector<After> copies;
    int begin = 0;  // after the compute that completed the part before
    for (const Place& place : places(true)) {
      if (copies.size() >= 2)
        computes()[at(std::max(begin, begin_of_pass(place.index)))].after.push_back(
            copies[copies.size() - 2]);
      Instruction copy = copy_of(place.passage, true);
      copy.after = {{kComputeStream, place.index}};
      copies.push_back(append(rank_program_, StreamKind::to_host, std::move(copy)));
      out_[place.passage] = copies.back();
      begin = place.index + 1;
    }
  }

  // A part comes back while the part before it is read, and the first one of a backward while the compute before that
  // runs.
  void copy_in() {
    int before = 0;  // the first compute that reads the part before
    for (const Place& place : places(false)) {
      const int pass = begin_of_pass(place.index);
      const int issued = std::max(before, pass > 0 ? begin_of_pass(pass - 1) : 0);
      Instruction copy = copy_of(place.passage, false);
      copy.after = {out_.at(place.passage)};
      if (issued > 0) copy.after.push_back({kComputeStream, issued - 1});
      computes()[at(place.index)].after.push_back(
          append(rank_program_, StreamKind::from_host, std::move(copy)));
      before = place.index;
    }
  }
};

// In the last runs of backwards: the last addition to the gradient of each parameter, and the end of all computes.
struct LastAdditions {
  std::map<TensorId, ComputePoint> of_parameter;
  ComputePoint end;
};

LastAdditions find_last_additions(const RankProgram& rank_program) {
  const auto& computes = rank_program.streams[kComputeStream].instructions;
  std::map<BlockId, std::int32_t> last_run;  // micro-batch of a block's last run
  for (const Instruction& instruction : computes)
    if (const Compute* const compute = instruction.as<Compute>())
      last_run[compute->block] = instruction.micro_batch;
  LastAdditions last;
  for (std::size_t index = 0; index < computes.size(); ++index) {
    const Compute* const compute = computes[index].as<Compute>();
    if (compute == nullptr || last_run.at(compute->block) != computes[index].micro_batch) continue;
    last.end = std::max(last.end, ComputePoint{static_cast<int>(index), compute->last_kernel});
    const Block& block = rank_program.blocks[compute->block];
    for (int i = compute->first_kernel; i < compute->last_kernel && block.pass != Pass::forward; ++i)
      for (const TensorId named : block.kernels[at(i)].parameters) {
        ComputePoint& latest = last.of_parameter[named];
        latest = std::max(latest, ComputePoint{static_cast<int>(index), i + 1});
      }
  }
  return last;
}

// Offloads the optimizer state of one rank program.
class OptimizerOffload {
 public:
  OptimizerOffload(const Job& job, RankProgram& rank_program) : job_(job), rank_program_(rank_program) {}

  void run(double share) {
    if (share <= 0) return;
    find_companions();
    std::vector<State> states = chosen_states(share);
    if (states.empty()) return;
    std::reverse(states.begin(), states.end());  // the order in which backwards complete them
    std::vector<std::vector<State>> buckets;
    std::int64_t bytes = 0;
    for (const State& state : states) {
      if (buckets.empty() || bytes >= job_.strategy.bucket_bytes) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(state);
      bytes += rank_program_.tensors[state.host_gradient].bytes;
    }
    const auto complete = job_.strategy.overlap_gradients
                              ? completions(buckets)
                              : std::vector<std::vector<After>>(buckets.size(), {completion()});
    for (std::size_t i = 0; i < buckets.size(); ++i) step_on_host(buckets[i], complete[i]);
    leave_optimizer();
  }

 private:
  struct State {
    TensorId optimizer;
    std::optional<ShardId> shard;
    std::optional<TensorId> gradient, parameter;  // tensors on the chip; none: parts of the shard's tensors
    TensorId host_gradient, host_parameter;
  };

  // What belongs to an optimizer state: its shard, or the gradient and the parameter of its transformer's parameter.
  struct Companions {
    std::map<TensorId, ShardId> shards;
    std::map<int, TensorId> gradients, parameters;
  };

  const Job& job_;
  RankProgram& rank_program_;
  std::map<ShardId, After> renewed_;
  Companions companions_;
  std::optional<LastAdditions> last_additions_;

  void find_companions() {
    for (const ShardId shard : rank_program_.shards.ids())
      companions_.shards[rank_program_.shards[shard].optimizer] = shard;
    for (const TensorId id : rank_program_.tensors.ids()) {
      const Tensor& tensor = rank_program_.tensors[id];
      if (!tensor.parameter || tensor.on_host) continue;
      if (tensor.role == TensorRole::gradient) companions_.gradients[*tensor.parameter] = id;
      if (tensor.role == TensorRole::parameter) companions_.parameters[*tensor.parameter] = id;
    }
  }

  std::vector<Instruction>& computes() { return rank_program_.streams[kComputeStream].instructions; }

  // Chooses whole states in their order, as many as fit in the share.
  std::vector<State> chosen_states(double share) {
    double all = 0, taken = 0;
    for (const Tensor& tensor : rank_program_.tensors)
      if (tensor.role == TensorRole::optimizer) all += static_cast<double>(tensor.bytes);
    std::vector<State> states;
    for (const TensorId id : rank_program_.tensors.ids()) {  // tensors that are added meanwhile are not
                                                             // visited
      const Tensor& tensor = rank_program_.tensors[id];
      if (tensor.role != TensorRole::optimizer) continue;
      taken += static_cast<double>(tensor.bytes);
      if (taken > share * all + 0.5) break;
      states.push_back(move_state(id));
    }
    return states;
  }

  State move_state(TensorId id) {
    rank_program_.tensors[id].on_host = true;
    rank_program_.static_bytes -= rank_program_.tensors[id].bytes;
    State state;
    state.optimizer = id;
    if (const auto divided = companions_.shards.find(id); divided != companions_.shards.end()) {
      state.shard = divided->second;
      const Shard& shard = rank_program_.shards[*state.shard];
      state.gradient = shard.gradient_part;
      state.parameter = shard.parameter_part;
      state.host_gradient = add_part(id, ".gradient", TensorRole::gradient, job_.train.gradients);
      state.host_parameter = add_part(id, ".parameter", TensorRole::parameter, job_.train.precision);
      return state;
    }
    const int parameter = rank_program_.tensors[id].parameter.value();
    state.gradient = companions_.gradients.at(parameter);
    state.parameter = companions_.parameters.at(parameter);
    state.host_gradient = add_copy(rank_program_, state.gradient.value(), ".on_host", true);
    state.host_parameter = add_copy(rank_program_, state.parameter.value(), ".on_host", true);
    return state;
  }

  // Adds the host's tensor for this rank's part of a shard.
  TensorId add_part(TensorId optimizer, const char* suffix, TensorRole role, Format format) {
    Tensor part = rank_program_.tensors[optimizer];
    part.name += suffix;
    part.role = role;
    part.format = format;
    part.shape = {rank_program_.tensors[optimizer].shape.at(1)};
    part.bytes = part.shape[0] * bytes_of(format);
    return rank_program_.tensors.add(std::move(part));
  }

  // Copies gradients to the host, steps, and copies parameters to the chip.
  void step_on_host(const std::vector<State>& bucket, const std::vector<After>& complete) {
    OptimizerStep step;
    for (const State& state : bucket)
      for (const TensorId id : {state.optimizer, state.host_gradient, state.host_parameter})
        step.tensors.push_back(id);
    Instruction instruction;
    instruction.body = std::move(step);
    instruction.after = {copy_bucket(bucket, true, complete)};
    const After stepped = append(rank_program_, StreamKind::host, std::move(instruction));
    const After up = copy_bucket(bucket, false, {stepped});
    for (const State& state : bucket)
      if (state.shard) renewed_[*state.shard] = up;
  }

  // Copies gradients to the host (down), or parameters to the chip; returns the end of the last copy. Parts of a
  // shard that the chip holds whole have copies of their own.
  After copy_bucket(const std::vector<State>& bucket, bool down, const std::vector<After>& after) {
    Copy whole;
    std::vector<Copy> copies;
    for (const State& state : bucket) {
      const std::optional<TensorId> here = down ? state.gradient : state.parameter;
      const TensorId there = down ? state.host_gradient : state.host_parameter;
      Copy& copy = here ? whole : copies.emplace_back();
      if (!here) copy.shard = state.shard;
      const auto tensors_here = [&] {
        if (here) return Ids{*here};
        const Shard& shard = rank_program_.shards[state.shard.value()];
        return down ? shard.gradients : shard.parameters;
      }();
      Ids &on_chip = down ? copy.tensors : copy.into, &on_host = down ? copy.into : copy.tensors;
      on_chip.insert(on_chip.end(), tensors_here.begin(), tensors_here.end());
      on_host.push_back(there);
      copy.bytes += rank_program_.tensors[there].bytes;
    }
    if (!whole.tensors.empty()) copies.push_back(std::move(whole));
    After last;
    for (Copy& copy : copies) {
      Instruction instruction;
      instruction.body = std::move(copy);
      instruction.after = after;
      last =
          append(rank_program_, down ? StreamKind::to_host : StreamKind::from_host, std::move(instruction));
    }
    return last;
  }

  // The instructions for which each bucket waits: the last reductions of its gradients or, for gradients that are not
  // reduced, the last kernel that adds to them.
  std::vector<std::vector<After>> completions(const std::vector<std::vector<State>>& buckets) {
    std::vector<std::vector<After>> complete(buckets.size());
    std::vector<ComputePoint> points;
    std::vector<std::pair<std::size_t, ComputePoint>> points_by_bucket;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      ComputePoint latest;
      for (const State& state : buckets[i]) {
        const std::optional<After> reduced = last_reduction(state);
        if (!reduced)
          latest = std::max(latest, last_addition(state));
        else if (complete[i].empty())
          complete[i].push_back(*reduced);
        else
          complete[i][0].index = std::max(complete[i][0].index, reduced->index);
      }
      if (latest.kernels == 0) continue;
      points.push_back(latest);
      points_by_bucket.emplace_back(i, latest);
    }
    const auto ends = cut_computes(rank_program_, points);
    for (const auto& [bucket, point] : points_by_bucket)
      complete[bucket].push_back({kComputeStream, ends.at(point)});
    return complete;
  }

  std::optional<After> last_reduction(const State& state) const {
    const auto stream = find_stream(rank_program_, StreamKind::collective);
    if (!stream) return std::nullopt;
    std::optional<After> last;
    const auto& reductions = rank_program_.streams[*stream].instructions;
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const auto ids = moved_tensors(reductions[i]);
      const bool is_of_shard = state.shard && shard_of(reductions[i]) == state.shard;
      if (is_of_shard || std::find(ids.begin(), ids.end(), state.gradient) != ids.end())
        last = After{*stream, static_cast<std::int32_t>(i)};
    }
    return last;
  }

  // The last addition to the gradient in the last runs of backwards; a parameter that no backward names is complete
  // at the end of all backwards.
  ComputePoint last_addition(const State& state) {
    if (!last_additions_) last_additions_ = find_last_additions(rank_program_);
    const auto& latest = last_additions_->of_parameter;
    const auto of_state = state.parameter ? latest.find(*state.parameter) : latest.end();
    return of_state == latest.end() ? last_additions_->end : of_state->second;
  }

  // The end of the instruction that completes every gradient, for which the chip's own step waits.
  After completion() {
    const Instruction& step = computes()[at(optimizer_index())];
    if (!step.after.empty()) return step.after[0];
    return {kComputeStream, optimizer_index() - 1};
  }
  int optimizer_index() { return static_cast<int>(computes().size()) - 1; }

  // The chip steps the other states. Parameters that all ranks hold whole are gathered after the step that renews
  // them, on the chip or on the host.
  void leave_optimizer() {
    const After chip_step{kComputeStream, optimizer_index()};
    for (Stream& stream : rank_program_.streams)
      for (Instruction& instruction : stream.instructions) {
        const Collective* const collective = instruction.as<Collective>();
        if (collective == nullptr || !collective->shard) continue;
        const auto renewed = renewed_.find(*collective->shard);
        for (After& after : instruction.after)
          if (after == chip_step && renewed != renewed_.end()) after = renewed->second;
      }
    const bool any_left = std::any_of(
        rank_program_.tensors.begin(), rank_program_.tensors.end(),
        [](const Tensor& tensor) { return tensor.role == TensorRole::optimizer && !tensor.on_host; });
    if (!any_left) computes().pop_back();
  }
};

const Offload& offload_of(const Job& job, const RankProgram& rank_program) {
  const Stage& stage = job.strategy.templates[at(rank_program.pipeline)].stages[at(rank_program.stage)];
  return stage.offload ? *stage.offload : job.strategy.offload;
}

}  // namespace

void offload_to_hosts(const Job& job, Program& program) {
  std::set<RankProgramId> offloading;
  for (const RankProgramId id : program.rank_programs.ids()) {
    RankProgram& rank_program = program.rank_programs[id];
    const Offload& offload = offload_of(job, rank_program);
    if (offload == Offload{}) continue;
    offloading.insert(id);
    ActivationOffload(rank_program).run(offload.activations);
    OptimizerOffload(job, rank_program).run(offload.optimizer);
  }
  for (const RankEntry& entry : program.ranks)
    if (offloading.contains(entry.rank_program))
      host_route(job.cluster, entry.chip, true);  // refuses a chip without a host
}

}  // namespace motley
