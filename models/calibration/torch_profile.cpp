#include "models/calibration/torch_profile.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/calibration/torch_events.hpp"
#include "models/calibration/torch_operations.hpp"

namespace motley {
namespace {

// An operation with the GPU's time for it and for what it calls.
struct Call {
  const HostOperation* operation = nullptr;
  double seconds = 0;
  bool is_wide = true;  // kernels of fp32 elements
  std::optional<KernelSample> kernel;
  bool is_taken = false;  // its time is in a sample
};

class Profile {
 public:
  explicit Profile(TorchEvents events) : events_(std::move(events)) {}

  Measurements measure() {
    collect_calls();
    for (std::size_t i = 0; i < calls_.size(); ++i) join(i);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Call& call = calls_[i];
      if (call.is_taken) continue;
      if (call.kernel)
        add(*call.kernel, call.seconds);
      else
        leave(call.operation->name, call.seconds);
    }
    use_precision();
    add_samples(read_, measurements_.samples);
    make_one_job(measurements_.samples);
    return std::move(measurements_);
  }

 private:
  // Kernels that only move bytes have the format of training, as a Program's: that of the products, by their time.
  void use_precision() {
    std::map<Format, double> seconds;
    for (const KernelSample& sample : read_.kernels)
      if (sample.shape.flops > 0) seconds[sample.format] += sample.shape.seconds;
    if (seconds.empty()) return;
    const Format precision =
        std::max_element(seconds.begin(), seconds.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    for (KernelSample& sample : read_.kernels)
      if (!(sample.shape.flops > 0)) sample.format = precision;
  }

  const HostOperation& operation_at(int index) const {
    return events_.operations[static_cast<std::size_t>(index)];
  }

  // The outermost operation that samples are made of, or else the operation itself.
  int owner_of(int index) const {
    int owner = index;
    for (int outer = index; outer >= 0; outer = operation_at(outer).parent)
      if (is_sampled(operation_at(outer).name)) owner = outer;
    return owner;
  }

  Callers callers_of(const HostOperation& operation) const {
    Callers callers;
    if (operation.parent >= 0) callers.caller = operation_at(operation.parent).name;
    for (int outer = operation.parent; outer >= 0 && !callers.in_backward; outer = operation_at(outer).parent)
      callers.in_backward = operation_at(outer).name.find("Backward") != std::string::npos;
    return callers;
  }

  void collect_calls() {
    std::unordered_map<std::int64_t, int> by_id;
    for (std::size_t i = 0; i < events_.operations.size(); ++i)
      if (events_.operations[i].id) by_id.try_emplace(*events_.operations[i].id, static_cast<int>(i));
    std::map<int, Call> calls;
    for (const GpuWork& work : events_.work) {
      measurements_.gpu_s += work.seconds;
      const auto operation = work.operation ? by_id.find(*work.operation) : by_id.end();
      if (operation == by_id.end()) {
        leave(work.name, work.seconds);
        continue;
      }
      Call& call = calls[owner_of(operation->second)];
      call.seconds += work.seconds;
      if (work.name.find("BFloat16") != std::string::npos) call.is_wide = false;
    }
    for (auto& [index, call] : calls) {
      call.operation = &operation_at(index);
      call.kernel = kernel_of(*call.operation, callers_of(*call.operation));
      calls_.push_back(std::move(call));
    }
  }

  // The call that is `ahead` places after call `i` on its thread, if it has that name and nothing took it.
  Call* neighbour(std::size_t i, std::ptrdiff_t ahead, std::string_view name) {
    const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(i) + ahead;
    if (place < 0 || place >= static_cast<std::ptrdiff_t>(calls_.size())) return nullptr;
    Call& call = calls_[static_cast<std::size_t>(place)];
    if (call.is_taken || call.operation->thread != calls_[i].operation->thread) return nullptr;
    return call.operation->name == name ? &call : nullptr;
  }
  // The same, if it has that many elements, too.
  Call* alike(std::size_t i, std::ptrdiff_t ahead, std::string_view name, double elements,
              std::size_t operand = 0) {
    Call* const call = neighbour(i, ahead, name);
    return call != nullptr && elements_of(*call->operation, operand) == elements ? call : nullptr;
  }

  static const std::string& type_of(const Call& call) { return call.operation->operands.front().type; }

  void join(std::size_t i) {
    Call& call = calls_[i];
    if (call.is_taken || call.operation->operands.empty()) return;
    const std::string& name = call.operation->name;
    if (name == "aten::silu") {
      join_gated(i);
    } else if (name == "aten::silu_backward") {
      join_gated_backward(i);
    } else if (name == "aten::_log_softmax") {
      join_loss(i);
    } else if (name == "aten::_log_softmax_backward_data") {
      join_loss_backward(i);
    } else if (name == "aten::_fused_adamw_") {
      join_optimizer(i);
    } else if (call.kernel && call.kernel->kernel.op == KernelOp::norm_backward) {
      join_residual(i);
    } else if (call.kernel && call.kernel->kernel.op == KernelOp::matmul_weight_gradient) {
      join_bias(i);
    }
  }

  // silu(gate) * up reads gate and up and writes one: 3 x F of each row.
  void join_gated(std::size_t i) {
    const Call& silu = calls_[i];
    Call* const product = alike(i, 1, "aten::mul", elements_of(*silu.operation, 0));
    if (product == nullptr) return;
    take(moving_kernel(KernelOp::activation, 3 * bytes_of(*silu.operation, 0), type_of(silu),
                       KernelVariant::gated),
         {&calls_[i], product});
  }

  // It reads da, gate and up, and writes the gradients of both: 5 x F of each row.
  void join_gated_backward(std::size_t i) {
    const Call& silu = calls_[i];
    const double elements = elements_of(*silu.operation, 0);
    Call* const first = alike(i, -2, "aten::mul", elements);
    Call* const second = alike(i, -1, "aten::mul", elements);
    if (first == nullptr || second == nullptr) return;
    take(moving_kernel(KernelOp::activation_backward, 5 * bytes_of(*silu.operation, 0), type_of(silu),
                       KernelVariant::gated),
         {first, second, &calls_[i], alike(i, 1, "aten::cat", 2 * elements)});
  }

  // Assumes: of the time of log_softmax, each of its two passes over the logits takes half.
  void join_loss(std::size_t i) {
    Call& softmax = calls_[i];
    const double elements = elements_of(*softmax.operation, 0);
    Call* const widening = alike(i, -1, "aten::copy_", elements);
    const HostOperation& reads = widening == nullptr ? *softmax.operation : *widening->operation;
    const std::size_t source = widening == nullptr ? 0 : 1;
    if (reads.operands.size() <= source) return;
    const double bytes = bytes_of(reads, source);
    const std::string& type = reads.operands[source].type;
    const double seconds = softmax.seconds + (widening == nullptr ? 0 : widening->seconds);
    const auto maximum = moving_kernel(KernelOp::logits_maximum, bytes, type);
    const auto sum = moving_kernel(KernelOp::logits_sum, bytes, type);
    if (!maximum || !sum) return;
    add(*maximum, seconds / 2);
    add(*sum, seconds / 2);
    softmax.is_taken = true;
    if (widening != nullptr) widening->is_taken = true;
    // It reads a maximum and two sums of each row, and writes a loss.
    if (Call* const loss = alike(i, 1, "aten::nll_loss_forward", elements))
      take(moving_kernel(KernelOp::loss, 16 * elements_of(*loss->operation, 1), "float"), {loss});
  }

  // It reads logits and writes their gradients, both as narrow as the model's.
  void join_loss_backward(std::size_t i) {
    Call& softmax = calls_[i];
    const double elements = elements_of(*softmax.operation, 0);
    Call* const nll = alike(i, -1, "aten::nll_loss_backward", elements, 1);
    if (nll == nullptr) return;
    Call* const narrowing = alike(i, 1, "aten::copy_", elements);
    const std::string& type = type_of(narrowing == nullptr ? softmax : *narrowing);
    take(moving_kernel(KernelOp::loss_backward, 2 * elements * width_of(type), type),
         {nll, &softmax, narrowing});
  }

  void join_residual(std::size_t i) {
    Call& norm = calls_[i];
    Call* const sum = alike(i, 1, "aten::add_", elements_of(*norm.operation, 0));
    if (sum == nullptr || sum->kernel) return;
    take(moving_kernel(KernelOp::norm_backward, 4 * bytes_of(*norm.operation, 0), type_of(norm),
                       norm.kernel->kernel.variant),
         {&norm, sum});
  }

  void join_bias(std::size_t i) {
    Call& product = calls_[i];
    const auto& gradient = product.operation->operands.front();  // dy', with as many elements as dy
    if (gradient.sizes.empty()) return;
    const double elements = elements_of(*product.operation, 0);
    for (const std::ptrdiff_t ahead : {1, 2})
      if (Call* const sum = alike(i, ahead, "aten::sum", elements)) {
        take(product.kernel, {&product, sum});
        return;
      }
  }

  // Bytes as optimizer_step_bytes() counts them: parameters, moments and gradients, the narrow copy of the parameters,
  // and gradients that are set to 0.
  void join_optimizer(std::size_t i) {
    Call& adamw = calls_[i];
    const double elements = elements_of(*adamw.operation, 0);
    const double width = adamw.is_wide ? 4 : 2;
    double bytes = elements * width * 7;
    if (!(bytes > 0)) return;
    std::ptrdiff_t next = 1;
    Call* const copy = alike(i, next, "aten::_foreach_copy_", elements);
    if (copy != nullptr) ++next;
    Call* const clear = alike(i, next, "aten::_foreach_zero_", elements);
    if (copy != nullptr) bytes += elements * 2;
    if (clear != nullptr) bytes += elements * width;
    double seconds = 0;
    for (Call* const each : {&adamw, copy, clear}) {
      if (each == nullptr) continue;
      each->is_taken = true;
      seconds += each->seconds;
    }
    if (seconds > 0) read_.optimizer.push_back({bytes, seconds});
  }

  // Makes one sample of all these calls; a null stands for none.
  void take(const std::optional<KernelSample>& kernel, std::initializer_list<Call*> calls) {
    if (!kernel) return;
    double seconds = 0;
    for (Call* const call : calls) {
      if (call == nullptr) continue;
      call->is_taken = true;
      seconds += call->seconds;
    }
    add(*kernel, seconds);
  }

  void add(const KernelSample& kernel, double seconds) {
    if (!(seconds > 0)) return;
    KernelSample& sample = read_.kernels.emplace_back(kernel);
    sample.times = {seconds};
    sample.shape.seconds = seconds;
  }

  void leave(const std::string& name, double seconds) {
    UnreadWork& work = measurements_.unread[name];
    ++work.times;
    work.seconds += seconds;
  }

  TorchEvents events_;
  std::vector<Call> calls_;  // in the order of TorchEvents::operations
  Samples read_;             // one for each call, those of one shape not yet put together
  Measurements measurements_;
};

}  // namespace

Measurements read_torch_profile(const std::string& text, const std::string& path) {
  TorchEvents events = read_torch_events(text, path);
  if (events.work.empty())
    throw Refusal(Exit::usage, "no-gpu-work", {.file = path, .line = 1, .column = 1},
                  "no GPU worked in this profile",
                  "profile with `activities=[CPU, CUDA]` of ProfilerActivity");
  return Profile(std::move(events)).measure();
}

}  // namespace motley
