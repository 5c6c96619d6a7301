// Appends kernels and the tensors they touch to a stage's blocks: what all parts of a layer are written with. It knows
// shapes and bytes, not which kernels a layer has. Read next: models/compile_kernels.cpp, models/compile_latent.cpp,
// models/compile_experts.cpp.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/compile.hpp"
#include "models/routing.hpp"

namespace motley {

using Ids = std::vector<std::int32_t>;

class KernelWriter {
 public:
  KernelWriter(const Job& job, ProgramClass& of_class);

  const Transformer& transformer() const { return transformer_; }
  std::int64_t tp() const { return tp_; }
  std::int64_t B() const { return B_; }
  std::int64_t T() const { return T_; }  // tokens of a sequence here
  // Of the experts of the layer that is written.
  std::int64_t expert_parts() const { return class_.expert_parallel; }
  std::int64_t expert_cut() const { return class_.expert_tensor_parallel; }
  ExpertExchange exchange() const;
  std::int64_t N() const { return N_; }  // rows of a micro-batch
  // Of them, those that this rank has where they are divided over the tensor-parallel group; else all.
  std::int64_t rows_between() const { return N_ / row_parts_; }

  // What is appended next belongs there.
  void set_block(int block) { block_ = block; }
  void set_layer(std::int64_t layer) { layer_ = static_cast<int>(layer); }  // as Parameter::layer
  void set_again(bool again) { again_ = again; }                            // a recomputed forward
  int layer() const { return layer_; }
  bool again() const { return again_; }

  int add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape,
                 int parameter = -1);
  int activation(const std::string& name, std::vector<std::int64_t> shape);  // in the precision of training
  int exact(const std::string& name, std::vector<std::int64_t> shape);       // in fp32
  int gradient(const std::string& name, std::vector<std::int64_t> shape);    // of an activation
  int exact_gradient(const std::string& name, std::vector<std::int64_t> shape);  // in fp32
  // A row a copy of a token that experts have here: room for the most that an exchange can bring.
  int expert_rows(const std::string& name, std::int64_t width);
  int expert_rows_gradient(const std::string& name, std::int64_t width);
  const Tensor& tensor(int id) const { return class_.tensors[static_cast<std::size_t>(id)]; }

  // The tensors of those parameters that are there.
  Ids weights(std::initializer_list<std::string> names) const;
  Ids layer_weights(std::initializer_list<const char*> names) const;

  // Whether no gradient reaches that parameter's tensor.
  bool frozen(int parameter) const { return frozen_[static_cast<std::size_t>(parameter)]; }

  // Appends a kernel. Bytes moved: every operand once; callers say where that is not so. The reference holds until
  // the next kernel.
  Kernel& emit(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // out(m,n) = x(m,k) w(n,k)', and its gradients; in Train::matmuls where that is given and `narrow` allows it
  void matmul(int x, int y, const Ids& parameters, std::int64_t n, std::int64_t k, bool narrow = true);
  void matmul_gradients(int dy, int dx, int x, const Ids& parameters, std::int64_t n, std::int64_t k,
                        bool narrow = true);
  // A linear layer by its name, "qkv", with the adapter that may stand beside it: y, or where that adds to it, another
  // tensor; `kept` is what the adapter's backward needs. And from dy to the gradient of x.
  int linear(int x, int y, const std::string& name, std::int64_t n, std::int64_t k, int& kept);
  int linear_gradients(int dy, const std::string& dx, int x, const std::string& name, std::int64_t n,
                       std::int64_t k, int kept);
  // a + b, a tensor of its own.
  int sum_of(int a, int b, const std::string& name, TensorRole role);
  // The same for the `rows` copies of tokens that the experts have, `counts` of them each.
  void grouped_matmul(int x, int counts, int y, const Ids& weight, std::int64_t n, std::int64_t k);
  void grouped_matmul_gradients(int dy, int counts, int dx, int x, const Ids& weight, std::int64_t n,
                                std::int64_t k);
  // Between the ranks among which experts are divided; nothing where one has them all.
  void all_to_all(int id);
  // reduce_scatter or all_gather over the ranks that have parts of the same sequences.
  void over_context(KernelOp op, int id);
  // Over the tensor-parallel group; nothing where that has one rank.
  void all_reduce(int id, ReduceOp reduce = ReduceOp::sum);
  // Where rows are divided over the tensor-parallel group: from all rows, of which each rank has a part of the sum, to
  // the sum of this rank's rows; and from this rank's rows to all. Else an all_reduce, and the same tensor.
  int sum_rows(int id, const std::string& name, TensorRole role = TensorRole::activation);
  int all_rows(int id, const std::string& name, TensorRole role = TensorRole::activation);
  int own_rows(int id, const std::string& name, TensorRole role = TensorRole::activation);  // no sum
  // Kernels by rows that stand between cut matmuls.
  Kernel& emit_between(KernelOp op, Ids in, Ids out, Ids parameters = {});
  // A norm over the first `width` of each row's elements.
  void norm(int x, int y, int statistics, const Ids& weight, std::int64_t width);
  void norm_backward(Ids in, int dx, const Ids& weight, std::int64_t width);

 protected:
  void add_parameter_tensors(const std::vector<Parameter>& all, const std::vector<int>& held);

  const Transformer& transformer_;
  ProgramClass& class_;
  const std::int64_t tp_;
  const std::int64_t row_parts_;  // tp_ where sequence_parallel, else 1
  const Train& train_;
  const Format format_, gradient_format_;
  const std::int64_t B_, sequence_, T_, N_;

 private:
  Ids weights_of(const std::string& linear) const;  // [bias]
  int scaled(int id, const std::string& name, TensorRole role);
  int part_of_rows(int whole, const std::string& name, TensorRole role);
  std::string prefixed(const std::string& name) const;
  void shape_of_matmul(Kernel& kernel, std::int64_t n, std::int64_t k);
  void shape_of_grouped(Kernel& kernel, std::int64_t n, std::int64_t k);
  void cast(Kernel& kernel, std::int64_t elements);
  void accumulate_bytes(Kernel& kernel, const Ids& parameters);

  std::int64_t expected_bytes_of(int id) const;

  std::map<std::string, int> parameter_ids_;
  std::vector<bool> frozen_;  // by tensor, of parameters
  std::set<int> expert_rows_;
  int block_ = 0, layer_ = 0;
  bool again_ = false;
};

// What the routed experts of a layer keep for their backward (models/compile_experts.cpp).
struct KeptExperts {
  int logits = -1, weights = -1, taken = -1, rows = -1, counts = -1, sent_counts = -1;
  int copies = -1, inner = -1, activated = -1, out = -1;
  int shared_inner = -1, shared_activated = -1, shared_out = -1, shared_gate = -1;
};
// From y(N,C) to the sum of a token's experts (N,C), still to be summed over tensor-parallel ranks.
int experts_forward(KernelWriter& writer, int y, KeptExperts& kept);
// From the gradient of that sum to the gradient of y, summed over tensor-parallel ranks: of this rank's rows.
int experts_backward(KernelWriter& writer, int y, const KeptExperts& kept, int dout);

// What latent attention keeps from y to its heads (models/compile_latent.cpp).
struct KeptLatent {
  int q_latent = -1, q_normed = -1, q_statistics = -1;
  int kv_latent = -1, kv_normed = -1, kv_statistics = -1;
};
// From y(N,C) to qkv, keys and queries turned by position.
int latent_forward(KernelWriter& writer, int y, KeptLatent& kept);
// From the gradient of qkv to the gradient of y, summed over tensor-parallel ranks: of this rank's rows.
int latent_backward(KernelWriter& writer, int y, const KeptLatent& kept, int dqkv);

}  // namespace motley
