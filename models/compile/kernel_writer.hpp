// KernelWriter appends kernels, and the tensors they touch, to the blocks of a stage: what all parts of a layer are
// written with. It knows shapes and bytes, not which kernels a layer has. Read next: models/compile/stage_parts.hpp.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
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
  std::int64_t T() const { return T_; }  // tokens of a sequence here
  std::int64_t N() const { return N_; }  // rows of a micro-batch
  // Rows this rank holds between cut matmuls: N/tp under sequence parallelism, else N.
  std::int64_t rows_between() const { return N_ / row_parts_; }
  // The layer that is written divides its experts over so many ranks, and cuts each of them in so many parts.
  std::int64_t expert_parts() const { return rank_program_.expert_parallel; }
  std::int64_t expert_cut() const { return rank_program_.expert_tensor_parallel; }
  ExpertExchange exchange() const;
  // Whether a chip of the cluster has no fused attention: such attention keeps the softmax of its scores, whole, where
  // a fused one keeps a number a row.
  bool keeps_scores() const { return keeps_scores_; }

  // Kernels appended from now on belong to that block and layer.
  void set_block(BlockId block) { block_ = block; }
  void set_layer(std::int64_t layer) { layer_ = static_cast<int>(layer); }  // as Parameter::layer
  void set_again(bool again) { again_ = again; }                            // a recomputed forward
  int layer() const { return layer_; }
  bool again() const { return again_; }

  // Names begin with the layer's, but add_tensor() takes the whole name.
  TensorId add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape,
                      std::optional<int> parameter = {});
  TensorId activation(const std::string& name, std::vector<std::int64_t> shape);      // in Train::precision
  TensorId exact(const std::string& name, std::vector<std::int64_t> shape);           // in fp32
  TensorId gradient(const std::string& name, std::vector<std::int64_t> shape);        // in Train::precision
  TensorId exact_gradient(const std::string& name, std::vector<std::int64_t> shape);  // in fp32
  // A row for each copy of a token that experts have here: room for the most that an exchange can bring.
  TensorId expert_rows(const std::string& name, std::int64_t width);
  TensorId expert_rows_gradient(const std::string& name, std::int64_t width);
  // The sum a + b, a tensor of its own.
  TensorId sum_of(TensorId a, TensorId b, const std::string& name, TensorRole role);
  // What crosses ranks where a chunk begins or ends: use chunk_input or chunk_output, role activation or its gradient.
  TensorId boundary(ChunkId chunk, TensorUse use, TensorRole role);
  // Gives a tensor that exists the name and use that boundary() would give it.
  void make_boundary(TensorId id, ChunkId chunk, TensorUse use);
  void set_use(TensorId id, TensorUse use) { rank_program_.tensors[id].use = use; }
  const Tensor& tensor(TensorId id) const { return rank_program_.tensors[id]; }

  // Parameters, gradients and optimizer states of `held`, indices into `all`.
  void add_parameter_tensors(const std::vector<Parameter>& all, const std::vector<int>& held);
  // The tensors of those parameters that are there.
  Ids weights(std::initializer_list<std::string> names) const;
  Ids layer_weights(std::initializer_list<const char*> names) const;
  // Whether no gradient reaches that parameter's tensor.
  bool frozen(TensorId parameter) const { return frozen_[at(parameter)]; }

  // Appends a kernel. Bytes moved: every operand once; callers say where that is not so. The reference holds until
  // the next kernel.
  Kernel& emit(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // y(m,n) = x(m,k) w(n,k)', and its gradients; in Train::matmuls where that is given and `narrow` allows it. `x` may
  // be none where the weight is frozen.
  void matmul(TensorId x, TensorId y, const Ids& parameters, std::int64_t n, std::int64_t k,
              bool narrow = true);
  void matmul_gradients(TensorId dy, TensorId dx, std::optional<TensorId> x, const Ids& parameters,
                        std::int64_t n, std::int64_t k, bool narrow = true);
  // A linear layer by its name, "qkv", with the adapter that may stand beside it. Returns y, or where an adapter adds
  // to it another tensor; `kept` is what the adapter's backward needs.
  TensorId linear(TensorId x, TensorId y, const std::string& name, std::int64_t n, std::int64_t k,
                  std::optional<TensorId>& kept);
  // Its backward, from dy to the gradient of x, of name `dx`.
  TensorId linear_gradients(TensorId dy, const std::string& dx, std::optional<TensorId> x,
                            const std::string& name, std::int64_t n, std::int64_t k,
                            std::optional<TensorId> kept);
  // A matmul of the `rows` copies of tokens that the experts have, `counts` of them each.
  void grouped_matmul(TensorId x, TensorId counts, TensorId y, const Ids& weight, std::int64_t n,
                      std::int64_t k);
  void grouped_matmul_gradients(TensorId dy, TensorId counts, TensorId dx, TensorId x, const Ids& weight,
                                std::int64_t n, std::int64_t k);
  // Exchanges between the ranks among which experts are divided; nothing where one has them all.
  void all_to_all(TensorId id);
  // A reduce_scatter or all_gather over the ranks that have parts of the same sequences.
  void over_context(KernelOp op, TensorId id);
  // Reduces over the tensor-parallel group; nothing where that has one rank.
  void all_reduce(TensorId id, ReduceOp reduce = ReduceOp::sum);
  // Where rows are divided over the tensor-parallel group: sum_rows() goes from all rows, of which each rank has a part
  // of the sum, to the sum of this rank's rows, all_rows() from this rank's rows to all, own_rows() from all to this
  // rank's without a sum. Elsewhere sum_rows() is an all_reduce, and all three return `id`.
  TensorId sum_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  TensorId all_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  TensorId own_rows(TensorId id, const std::string& name, TensorRole role = TensorRole::activation);
  // Appends a kernel that works row by row and stands between cut matmuls.
  Kernel& emit_between(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // A norm over the first `width` of each row's elements.
  void norm(TensorId x, TensorId y, TensorId statistics, const Ids& weight, std::int64_t width);
  void norm_backward(Ids in, TensorId dx, const Ids& weight, std::int64_t width);
  // The norm of that name over the hidden width, between cut matmuls; and from dy to the gradient of x, of name `dx`,
  // with `residual`, what else reaches x.
  TensorId norm_between(TensorId x, const std::string& name, TensorId& statistics);
  TensorId norm_between_backward(TensorId dy, TensorId x, TensorId statistics, const std::string& name,
                                 const std::string& dx, std::optional<TensorId> residual = {});

 private:
  Ids weights_of(const std::string& linear) const;  // [bias]
  TensorId scaled(TensorId id, const std::string& name, TensorRole role);
  TensorId part_of_rows(TensorId whole, const std::string& name, TensorRole role);
  std::string prefixed(const std::string& name) const;
  void shape_of_matmul(Kernel& kernel, std::int64_t n, std::int64_t k);
  void shape_of_grouped(Kernel& kernel, std::int64_t n, std::int64_t k);
  void cast(Kernel& kernel, std::int64_t elements);
  void accumulate_bytes(Kernel& kernel, const Ids& parameters);

  std::int64_t expected_bytes_of(TensorId id) const;

  const Transformer& transformer_;
  RankProgram& rank_program_;
  const std::int64_t tp_;
  const std::int64_t row_parts_;  // tp_ where sequence_parallel, else 1
  const Train& train_;
  const Format format_, gradient_format_;
  const std::int64_t B_, T_, N_;
  const bool keeps_scores_;

  std::map<std::string, TensorId> parameter_ids_;
  std::vector<bool> frozen_;  // by tensor, of parameters
  std::set<TensorId> expert_rows_;
  BlockId block_;
  int layer_ = 0;
  bool again_ = false;
};

}  // namespace motley
