// Pass "offload": what a rank keeps in the memory of its node. Optimizer states (ZeRO-Offload, arXiv:2101.06840):
// their gradients are copied down, the node's processor steps, renewed parameters are copied up, bucket by bucket, so
// that the three overlap: once all gradients are complete or, where gradients overlap the last backward, as each
// bucket is. Activations: copied down after a micro-batch's forward, and up while the compute before its backward
// runs.
// Assumes: each chip's host memory is that of its own socket.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

using Ids = std::vector<std::int32_t>;

class Offloader {
 public:
  Offloader(const Job& job, ProgramClass& of_class) : job_(job), class_(of_class) {}

  void offload_activations(double share) {
    if (share <= 0) return;
    for (int chunk = 0; chunk < static_cast<int>(class_.chunks.size()); ++chunk) {
      const Moved moved = move_kept(chunk, share);
      if (moved.kept.empty()) continue;
      moved_.emplace(chunk, moved);
    }
    copy_out();
    copy_in();
  }

  void offload_optimizer(double share) {
    if (share <= 0) return;
    std::vector<State> states = chosen_states(share);
    if (states.empty()) return;
    std::reverse(states.begin(), states.end());  // as backwards complete them
    std::vector<std::vector<State>> buckets;
    std::int64_t bytes = 0;
    for (const State& state : states) {
      if (buckets.empty() || bytes >= job_.strategy.bucket_bytes) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(state);
      bytes += tensor(state.host_gradient).bytes;
    }
    const auto complete = job_.strategy.overlap_gradients
                              ? completions(buckets)
                              : std::vector<std::vector<After>>(buckets.size(), {completion()});
    for (std::size_t i = 0; i < buckets.size(); ++i) step_on_host(buckets[i], complete[i]);
    leave_optimizer();
  }

 private:
  // What is kept of a chunk's layers, there and back.
  struct Moved {
    Ids kept, on_host, back;
    std::int64_t bytes = 0;
  };
  struct State {
    std::int32_t optimizer = -1, shard = -1;
    std::int32_t gradient = -1, parameter = -1;  // on the chip; -1: parts of the shard's tensors
    std::int32_t host_gradient = -1, host_parameter = -1;
  };

  Tensor& tensor(int id) { return class_.tensors[at(id)]; }
  std::vector<Instruction>& instructions(StreamKind kind) {
    return class_.streams[at(stream_of(class_, kind))].instructions;
  }
  // The next instruction of that stream, and the last.
  After next_of(StreamKind kind) {
    const int stream = stream_of(class_, kind);
    return {static_cast<std::int16_t>(stream),
            static_cast<std::int32_t>(class_.streams[at(stream)].instructions.size())};
  }

  int add_copy(int id, const char* suffix, bool on_host) {
    Tensor made = tensor(id);
    made.name += suffix;
    made.on_host = on_host;
    class_.tensors.push_back(std::move(made));
    return static_cast<int>(class_.tensors.size()) - 1;
  }

  // ---- activations

  // Of tensors that forwards write for backwards: not what is sent on, nor what another chunk's forward reads.
  Moved move_kept(int chunk, double share) {
    const Chunk& of = class_.chunks[at(chunk)];
    const auto layers = std::llround(share * static_cast<double>(of.last_layer - of.first_layer));
    std::set<int> written, read, elsewhere;
    for (const Stream& stream : class_.streams)
      for (const Instruction& instruction : stream.instructions)
        if (instruction.op == Op::send)
          elsewhere.insert(instruction.tensors.begin(), instruction.tensors.end());
    for (const Block& block : class_.blocks)
      for (const Kernel& kernel : block.kernels) {
        const bool mine = block.chunk == chunk;
        if (mine && block.pass == Pass::forward) {
          if (!is_collective(kernel.op) && kernel.layer >= of.first_layer &&
              kernel.layer < of.first_layer + layers)
            written.insert(kernel.out.begin(), kernel.out.end());
        } else {
          (mine ? read : elsewhere).insert(kernel.in.begin(), kernel.in.end());
        }
      }
    Moved moved;
    for (int id : written) {
      if (!read.contains(id) || elsewhere.contains(id)) continue;
      moved.kept.push_back(id);
      moved.on_host.push_back(add_copy(id, ".on_host", true));
      moved.back.push_back(add_copy(id, ".back", false));
      moved.bytes += tensor(id).bytes;
    }
    read_back(chunk, moved);
    return moved;
  }

  void read_back(int chunk, const Moved& moved) {
    std::map<int, int> back;
    for (std::size_t i = 0; i < moved.kept.size(); ++i) back[moved.kept[i]] = moved.back[i];
    for (Block& block : class_.blocks) {
      if (block.chunk != chunk || block.pass == Pass::forward) continue;
      for (Kernel& kernel : block.kernels)
        for (Ids* ids : {&kernel.in, &kernel.out})
          for (std::int32_t& id : *ids)
            if (const auto found = back.find(id); found != back.end()) id = found->second;
    }
  }

  // Computes that are one pass of one micro-batch: a forward, or (a part of) a backward; in their order.
  struct Run {
    int first = 0, last = 0;  // in the compute stream
    int chunk = 0, micro_batch = 0;
    bool forward = false;
  };
  std::vector<Run> runs() const {
    std::vector<Run> list;
    const auto& computes = class_.streams[0].instructions;
    for (int i = 0; i < static_cast<int>(computes.size()); ++i) {
      const Instruction& compute = computes[at(i)];
      if (compute.op != Op::compute) continue;
      if (compute.first_kernel > 0 && !list.empty()) {  // a further piece
        list.back().last = i;
        continue;
      }
      const Block& block = class_.blocks[at(compute.block)];
      list.push_back({i, i, block.chunk, compute.micro_batch, block.pass == Pass::forward});
    }
    return list;
  }

  Instruction copy_of(const Ids& from, const Ids& into, int micro_batch, std::int64_t bytes) const {
    Instruction copy;
    copy.op = Op::copy;
    copy.micro_batch = micro_batch;
    copy.tensors = from;
    copy.into = into;
    copy.bytes = bytes;
    return copy;
  }

  // A forward waits for the copies of the one before the last: at most two keep theirs on the chip.
  void copy_out() {
    std::vector<After> made;
    for (const Run& run : runs()) {
      const auto moved = moved_.find(run.chunk);
      if (!run.forward || moved == moved_.end()) continue;
      if (made.size() >= 2)
        class_.streams[0].instructions[at(run.first)].after.push_back(made[made.size() - 2]);
      Instruction copy =
          copy_of(moved->second.kept, moved->second.on_host, run.micro_batch, moved->second.bytes);
      copy.after = {{0, run.last}};
      copy.frees = copy.tensors;
      made.push_back(next_of(StreamKind::to_host));
      out_[{run.chunk, run.micro_batch}] = made.back();
      instructions(StreamKind::to_host).push_back(std::move(copy));
    }
  }

  // Before the first part of its backward, beside the compute before that.
  void copy_in() {
    const std::vector<Run> all = runs();
    std::set<std::pair<int, int>> there;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Run& run = all[i];
      const auto moved = moved_.find(run.chunk);
      if (run.forward || moved == moved_.end() || !there.insert({run.chunk, run.micro_batch}).second)
        continue;
      Instruction copy =
          copy_of(moved->second.on_host, moved->second.back, run.micro_batch, moved->second.bytes);
      copy.after = {out_.at({run.chunk, run.micro_batch})};
      if (i >= 2) copy.after.push_back({0, all[i - 2].last});
      copy.frees = copy.tensors;
      const After back = next_of(StreamKind::from_host);
      class_.streams[0].instructions[at(run.first)].after.push_back(back);
      instructions(StreamKind::from_host).push_back(std::move(copy));
    }
  }

  // ---- the optimizer's state

  // Whole states in their order, as many as the share holds.
  std::vector<State> chosen_states(double share) {
    double all = 0, taken = 0;
    for (const Tensor& each : class_.tensors)
      if (each.role == TensorRole::optimizer) all += static_cast<double>(each.bytes);
    std::vector<State> states;
    for (int id = 0, count = static_cast<int>(class_.tensors.size()); id < count; ++id) {
      if (tensor(id).role != TensorRole::optimizer) continue;
      taken += static_cast<double>(tensor(id).bytes);
      if (taken > share * all + 0.5) break;
      states.push_back(move_state(id));
    }
    return states;
  }

  State move_state(int id) {
    tensor(id).on_host = true;
    class_.static_bytes -= tensor(id).bytes;
    State state;
    state.optimizer = id;
    for (std::size_t s = 0; s < class_.shards.size(); ++s)
      if (class_.shards[s].optimizer == id) state.shard = static_cast<std::int32_t>(s);
    if (state.shard >= 0) {
      const Shard& shard = class_.shards[at(state.shard)];
      state.gradient = shard.gradient_part;
      state.parameter = shard.parameter_part;
      state.host_gradient = add_part(id, ".gradient", TensorRole::gradient, job_.train.gradients);
      state.host_parameter = add_part(id, ".parameter", TensorRole::parameter, job_.train.precision);
      return state;
    }
    for (int other = 0, count = static_cast<int>(class_.tensors.size()); other < count; ++other) {
      if (tensor(other).parameter != tensor(id).parameter || tensor(other).on_host) continue;
      if (tensor(other).role == TensorRole::gradient) state.gradient = other;
      if (tensor(other).role == TensorRole::parameter) state.parameter = other;
    }
    state.host_gradient = add_copy(state.gradient, ".on_host", true);
    state.host_parameter = add_copy(state.parameter, ".on_host", true);
    return state;
  }

  // Of this rank's part of a shard.
  int add_part(int optimizer, const char* suffix, TensorRole role, Format format) {
    Tensor made = tensor(optimizer);
    made.name += suffix;
    made.role = role;
    made.format = format;
    made.shape = {tensor(optimizer).shape.at(1)};
    made.bytes = made.shape[0] * bytes_of(format);
    class_.tensors.push_back(std::move(made));
    return static_cast<int>(class_.tensors.size()) - 1;
  }

  // Down, step, up. Parts of a shard that the chip holds whole go by themselves.
  void step_on_host(const std::vector<State>& bucket, const std::vector<After>& complete) {
    Instruction step;
    step.op = Op::optimizer;
    for (const State& state : bucket)
      for (std::int32_t id : {state.optimizer, state.host_gradient, state.host_parameter})
        step.tensors.push_back(id);
    const auto copy = [&](StreamKind kind, bool down, const std::vector<After>& after) {
      Instruction whole = copy_of({}, {}, -1, 0);
      std::vector<Instruction> made;
      for (const State& state : bucket) {
        const std::int32_t here = down ? state.gradient : state.parameter;
        const std::int32_t there = down ? state.host_gradient : state.host_parameter;
        const Shard* const shard = state.shard >= 0 ? &class_.shards[at(state.shard)] : nullptr;
        const Ids on_chip = here >= 0 ? Ids{here} : down ? shard->gradients : shard->parameters;
        const Ids &from = down ? on_chip : Ids{there}, &into = down ? Ids{there} : on_chip;
        if (here < 0) {
          made.push_back(copy_of(from, into, -1, tensor(there).bytes));
          made.back().shard = state.shard;
          continue;
        }
        whole.tensors.insert(whole.tensors.end(), from.begin(), from.end());
        whole.into.insert(whole.into.end(), into.begin(), into.end());
        whole.bytes += tensor(there).bytes;
      }
      if (!whole.tensors.empty()) made.push_back(std::move(whole));
      for (Instruction& each : made) {
        each.after = after;
        instructions(kind).push_back(std::move(each));
      }
      return last_of(kind);
    };
    step.after = {copy(StreamKind::to_host, true, complete)};
    instructions(StreamKind::host).push_back(std::move(step));
    const After up = copy(StreamKind::from_host, false, {last_of(StreamKind::host)});
    for (const State& state : bucket)
      if (state.shard >= 0) renewed_[state.shard] = up;
  }
  After last_of(StreamKind kind) {
    After next = next_of(kind);
    --next.index;
    return next;
  }

  // Of each bucket: the last reductions of its gradients, or where nobody reduces them, the kernel that adds last.
  std::vector<std::vector<After>> completions(const std::vector<std::vector<State>>& buckets) {
    std::vector<std::vector<After>> complete(buckets.size());
    std::vector<ComputePoint> points;
    std::vector<std::pair<std::size_t, ComputePoint>> of_bucket;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      ComputePoint latest;
      for (const State& state : buckets[i]) {
        const After reduced = last_reduction(state);
        if (reduced.index < 0)
          latest = std::max(latest, last_addition(state));
        else if (complete[i].empty())
          complete[i].push_back(reduced);
        else
          complete[i][0].index = std::max(complete[i][0].index, reduced.index);
      }
      if (latest.kernels == 0) continue;
      points.push_back(latest);
      of_bucket.emplace_back(i, latest);
    }
    const auto ends = cut_computes(class_, points);
    for (const auto& [bucket, point] : of_bucket) complete[bucket].push_back({0, ends.at(point)});
    return complete;
  }

  // Index -1: there is none.
  After last_reduction(const State& state) const {
    const int stream = find_stream(class_, StreamKind::collective);
    After last{static_cast<std::int16_t>(stream), -1};
    if (stream < 0) return last;
    const auto& all = class_.streams[at(stream)].instructions;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Ids& ids = all[i].tensors;
      const bool of_shard = state.shard >= 0 && all[i].shard == state.shard;
      if (of_shard || std::find(ids.begin(), ids.end(), state.gradient) != ids.end())
        last.index = static_cast<std::int32_t>(i);
    }
    return last;
  }

  // In the last runs of backwards; a parameter that none of them names is complete with the last of all.
  ComputePoint last_addition(const State& state) const {
    const auto& computes = class_.streams[0].instructions;
    std::map<int, std::int32_t> last_run;  // micro-batch, by block
    for (const Instruction& each : computes)
      if (each.op == Op::compute) last_run[each.block] = each.micro_batch;
    ComputePoint latest, end;
    for (std::size_t index = 0; index < computes.size(); ++index) {
      const Instruction& each = computes[index];
      if (each.op != Op::compute || last_run.at(each.block) != each.micro_batch) continue;
      end = std::max(end, ComputePoint{static_cast<int>(index), each.last_kernel});
      const Block& block = class_.blocks[at(each.block)];
      for (int i = each.first_kernel; i < each.last_kernel && block.pass != Pass::forward; ++i) {
        const Ids& named = block.kernels[at(i)].parameters;
        if (std::find(named.begin(), named.end(), state.parameter) != named.end())
          latest = std::max(latest, ComputePoint{static_cast<int>(index), i + 1});
      }
    }
    return latest.kernels > 0 ? latest : end;
  }

  // When every gradient is complete: what the chip's own step waits for.
  After completion() {
    const Instruction& step = class_.streams[0].instructions[at(optimizer_index())];
    if (!step.after.empty()) return step.after[0];
    return {0, optimizer_index() - 1};
  }
  int optimizer_index() const { return static_cast<int>(class_.streams[0].instructions.size()) - 1; }

  // The chip steps what is left; parameters that all hold whole are gathered once they are renewed, here or there.
  void leave_optimizer() {
    const int index = optimizer_index();
    for (Stream& stream : class_.streams)
      for (Instruction& instruction : stream.instructions) {
        if (instruction.op != Op::collective || instruction.shard < 0) continue;
        const auto renewed = renewed_.find(instruction.shard);
        for (After& after : instruction.after)
          if (after == After{0, index} && renewed != renewed_.end()) after = renewed->second;
      }
    const bool left = std::any_of(class_.tensors.begin(), class_.tensors.end(), [](const Tensor& each) {
      return each.role == TensorRole::optimizer && !each.on_host;
    });
    if (!left) class_.streams[0].instructions.pop_back();
  }

  const Job& job_;
  ProgramClass& class_;
  std::map<int, Moved> moved_;                // by chunk
  std::map<std::pair<int, int>, After> out_;  // by chunk and micro-batch
  std::map<std::int32_t, After> renewed_;     // by shard
};

const Offload& offload_of(const Job& job, const ProgramClass& of_class) {
  const Stage& of = job.strategy.templates[at(of_class.pipeline)].stages[at(of_class.stage)];
  return of.offload ? *of.offload : job.strategy.offload;
}

}  // namespace

void offload_to_hosts(const Job& job, Program& program) {
  std::set<std::int32_t> offloading;
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    const Offload& offload = offload_of(job, program.classes[i]);
    if (offload == Offload{}) continue;
    offloading.insert(static_cast<std::int32_t>(i));
    Offloader offloader(job, program.classes[i]);
    offloader.offload_activations(offload.activations);
    offloader.offload_optimizer(offload.optimizer);
  }
  for (const RankEntry& entry : program.ranks)
    if (offloading.contains(entry.of_class))
      host_route(job.cluster, entry.chip, true);  // refuses where there is none
}

}  // namespace motley
