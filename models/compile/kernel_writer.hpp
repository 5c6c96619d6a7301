// KernelWriter appends kernels, and the tensors that they use, to the blocks of a stage; all parts of a layer are
// written with it. It knows shapes and bytes, not which kernels a layer has. Read next:
// models/compile/stage_parts.hpp.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/program/routing.hpp"
#include "models/scenario/job.hpp"

namespace motley {

using Ids = std::vector<TensorId>;

class KernelWriter {
 public:
  KernelWriter(const Job& job, RankProgram& rank_program);

  const Transformer& transformer() const { return transformer_; }
  const Train& train() const { return train_; }
  const RankProgram& rank_program() const { return rank_program_; }
  std::int64_t tp() const { return tp_; }
  std::int64_t B() const { return B_; }
  std::int64_t T() const { return T_; }  // tokens of a sequence on this rank
  std::int64_t N() const { return N_; }  // rows of a micro-batch
  // Rows this rank holds between cut matmuls: N/tp under sequence parallelism, else N.
  std::int64_t rows_between() const { return N_ / row_parts_; }
  // Number of ranks over which the experts of a layer are divided, and number of parts in which each expert is cut.
  std::int64_t expert_parts() const { return rank_program_.expert_parallel; }
  std::int64_t expert_cut() const { return rank_program_.expert_tensor_parallel; }
  const ExpertExchange& exchange() const;  // of the layer; valid until the next layer's is asked for
  // Whether a chip of the cluster has no fused attention. Such attention keeps the whole softmax of its scores; a
  // fused one keeps one number for each row.
  bool keeps_scores() const { return keeps_scores_; }
  // Whether experts' activations are multiplied by the router's weights (ExpertWeights::activation).
  bool weighs_activations() const { return weighs_activations_; }
  // Whether keys and values of other ranks come while this rank attends.
  bool overlaps_context() const { return overlaps_context_; }

  // The block and layer of the kernels that are appended from now on.
  void set_block(BlockId block) { block_ = block; }
  void set_layer(std::int64_t layer) { layer_ = static_cast<int>(layer); }  // numbered as Parameter::layer
  void set_again(bool again) { again_ = again; }                            // true: a recomputed forward
  int layer() const { return layer_; }
  bool again() const { return again_; }

  // Each adds a tensor. The name gets the layer's as a prefix, but add_tensor() takes the whole name.
  TensorId add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape,
                      std::optional<int> parameter = {});
  TensorId activation(const std::string& name, std::vector<std::int64_t> shape);      // in Train::precision
  TensorId exact(const std::string& name, std::vector<std::int64_t> shape);           // in fp32
  TensorId gradient(const std::string& name, std::vector<std::int64_t> shape);        // in Train::precision
  TensorId exact_gradient(const std::string& name, std::vector<std::int64_t> shape);  // in fp32
  // Each adds a tensor with a row for each copy of a token for the experts here, for as many as an exchange can bring.
  // `sent`: in the format in which copies travel to experts. expert_numbers(): one number a row, in fp32.
  TensorId expert_rows(const std::string& name, std::int64_t width, bool sent = false);
  TensorId expert_rows_gradient(const std::string& name, std::int64_t width, bool sent = false);
  TensorId expert_numbers(const std::string& name, TensorRole role = TensorRole::activation);
  // Returns the sum a + b, a new tensor.
  TensorId sum_of(TensorId a, TensorId b, const std::string& name, TensorRole role);
  // Adds a tensor that crosses ranks at the beginning or end of a chunk: use chunk_input or chunk_output, role
  // activation or its gradient.
  TensorId boundary(ChunkId chunk, TensorUse use, TensorRole role);
  // Gives an existing tensor the name and use that boundary() would give it.
  void make_boundary(TensorId id, ChunkId chunk, TensorUse use);
  void set_use(TensorId id, TensorUse use) { rank_program_.tensors[id].use = use; }
  const Tensor& tensor(TensorId id) const { return rank_program_.tensors[id]; }

  // Adds parameters, gradients and optimizer states of `held`, which are indices into `all`.
  void add_parameter_tensors(const std::vector<Parameter>& all, const std::vector<int>& held);
  // Returns the tensors of those of the named parameters that exist.
  Ids weights(std::initializer_list<std::string> names) const;
  Ids layer_weights(std::initializer_list<const char*> names) const;
  // Whether the parameter's tensor gets no gradient.
  bool frozen(TensorId parameter) const { return frozen_[at(parameter)]; }

  // Appends a kernel that moves the bytes of every operand once; callers change the bytes of other kernels. The
  // reference is valid until the next kernel.
  Kernel& emit(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // Append y(m,n) = x(m,k) w(n,k)', and its gradients; in Train::matmuls if that is given and `narrow` allows it. `x`
  // may be none if the weight is frozen.
  void matmul(TensorId x, TensorId y, const Ids& parameters, std::int64_t n, std::int64_t k,
              bool narrow = true);
  void matmul_gradients(TensorId dy, TensorId dx, std::optional<TensorId> x, const Ids& parameters,
                        std::int64_t n, std::int64_t k, bool narrow = true);
  // Appends a linear layer by its name, "qkv", with its adapter if it has one. Returns y, or the sum of y and the
  // adapter's output; `kept` is what the adapter's backward needs.
  TensorId linear(TensorId x, TensorId y, const std::string& name, std::int64_t n, std::int64_t k,
                  std::optional<TensorId>& kept);
  // Appends the backward of linear(), from dy to the gradient of x, which is named `dx`.
  TensorId linear_gradients(TensorId dy, const std::string& dx, std::optional<TensorId> x,
                            const std::string& name, std::int64_t n, std::int64_t k,
                            std::optional<TensorId> kept);
  // Makes the last kernel also write a copy of its input in Train::kept_inner. Returns what is kept for the backward:
  // the copy, or the input itself.
  TensorId keep_inner(TensorId inner);
  // Appends a matmul of the copies of tokens that the experts have, `counts` copies for each expert.
  void grouped_matmul(TensorId x, TensorId counts, TensorId y, const Ids& weight, std::int64_t n,
                      std::int64_t k);
  void grouped_matmul_gradients(TensorId dy, TensorId counts, TensorId dx, TensorId x, const Ids& weight,
                                std::int64_t n, std::int64_t k);
  // Exchanges a tensor between the ranks over which experts are divided; does nothing if one rank has them all.
  void all_to_all(TensorId id);
  // Appends a reduce_scatter or all_gather over the ranks that have parts of the same sequences.
  void over_context(KernelOp op, TensorId id);
  // Reduces over the tensor-parallel group; does nothing if the group is one rank.
  void all_reduce(TensorId id, ReduceOp reduce = ReduceOp::sum);
  // Convert rows where they are divided over the tensor-parallel group. sum_rows() turns all rows, of which each rank
  // has a part of the sum, into the sum of this rank's rows; all_rows() gathers all rows from each rank's; own_rows()
  // takes this rank's rows without a sum. Where rows are not divided, sum_rows() is an all_reduce, and all three
  // return `id`.
  TensorId sum_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  TensorId all_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  TensorId own_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  // Appends a kernel that works row by row and stands between cut matmuls.
  Kernel& emit_between(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // Appends a norm over the first `width` elements of each row.
  void norm(TensorId x, TensorId y, TensorId statistics, const Ids& weight, std::int64_t width);
  void norm_backward(Ids in, TensorId dx, const Ids& weight, std::int64_t width);
  // Append the named norm over the hidden width, between cut matmuls, and its backward from dy to the gradient of x,
  // which is named `dx`. `residual` is a further gradient of x, which is added.
  TensorId norm_between(TensorId x, const std::string& name, TensorId& statistics);
  TensorId norm_between_backward(TensorId dy, TensorId x, TensorId statistics, const std::string& name,
                                 const std::string& dx, std::optional<TensorId> residual = {});

 private:
  Ids weights_of(const std::string& linear) const;  // weight[, bias]
  std::optional<TensorId> dequantize(TensorId weight, const char* pass);
  void read_dequantized(Kernel& kernel, TensorId weight, std::optional<TensorId> wide);
  TensorId scaled(TensorId id, const std::string& name, TensorRole role);
  TensorId part_of_rows(TensorId whole, const std::string& name, TensorRole role);
  std::string prefixed(const std::string& name) const;
  void shape_of_matmul(Kernel& kernel, std::int64_t n, std::int64_t k);
  void shape_of_grouped(Kernel& kernel, std::int64_t n, std::int64_t k);
  bool has_narrow_matmuls() const;  // in the current layer
  void cast(Kernel& kernel, std::int64_t elements);
  void keep_copy(Kernel& kernel, TensorId operand);
  TensorId kept_operand(TensorId operand);  // its narrow copy, if there is one
  Kernel& emit_weight_gradient(KernelOp op, const Ids& operands, const Ids& parameters, bool narrow);
  void accumulate_bytes(Kernel& kernel, const Ids& parameters);

  std::int64_t expected_bytes_of(TensorId id) const;
  TensorId add_expert_rows(const std::string& name, TensorRole role, Format format, std::int64_t width);

  const Transformer& transformer_;
  RankProgram& rank_program_;
  const std::int64_t tp_;
  const std::int64_t row_parts_;  // tp_ under sequence parallelism, else 1
  const Train& train_;
  const Format format_, gradient_format_;
  const std::int64_t B_, T_, N_;
  const bool keeps_scores_, overlaps_context_, weighs_activations_;

  std::map<std::string, TensorId> parameter_ids_;
  std::vector<bool> frozen_;      // by tensor; true for parameters that are not trained
  std::set<TensorId> quantized_;  // frozen parameters in NF4
  std::set<TensorId> expert_rows_;
  std::map<TensorId, TensorId> copies_;  // narrow copies of operands that weight gradients read
  std::map<TensorId, std::pair<BlockId, std::size_t>> recomputed_;  // the kernel that wrote a tensor again
  BlockId block_;
  int layer_ = 0;
  struct LayerRouting {
    int layer = 0;
    ExpertExchange exchange;
    std::int64_t busiest = 0;  // rows of the layer's busiest expert
  };
  mutable std::optional<LayerRouting> layer_routing_;  // of the layer that was asked for last
  bool again_ = false;
};

}  // namespace motley
