// Files of measurements that other programs wrote: torch.profiler's traces, and what nccl-tests and perftest print.
// tests/sim/profiles/ has two profiles that were measured on an H200 (2026-11, PyTorch 2.11, tools/measure-torch); all
// that is read of them is kept, long names of kernels are cut. The figures of the tables below are made up.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/calibration/measured_files.hpp"
#include "models/calibration/nccl_tests.hpp"
#include "models/calibration/perftest.hpp"
#include "models/calibration/torch_profile.hpp"
#include "models/calibration/transfer_fit.hpp"

using namespace motley;

namespace {

std::string profile_path(const std::string& name) {
  return std::string(MOTLEY_SOURCE_DIR) + "/tests/sim/profiles/" + name;
}

std::string describe(const KernelSample& sample) {
  const MeasuredShape& shape = sample.shape;
  if (shape.n == 0)
    return fmt::format("{} of {} bytes {}", name_of(sample.kernel), shape.bytes, name_of(sample.format));
  return fmt::format("{} {} x {} x {} {}", name_of(sample.kernel), shape.m, shape.n, shape.k,
                     name_of(sample.format));
}

std::string kernel_table(const Measurements& measurements) {
  std::string text;
  for (const KernelSample& sample : measurements.samples.kernels)
    text += fmt::format("{} | {:.4g} FLOP | {} x {:.1f} us\n", describe(sample), sample.shape.flops,
                        sample.times.size(), sample.shape.seconds * 1e6);
  return text;
}

// A profile of one operation, `name`, whose kernel takes 7 us.
std::string profile_of(const std::string& name, const std::string& sizes, const std::string& types,
                       const std::string& more = "", const std::string& caller = "") {
  const auto operation = [](const std::string& title, int id, const std::string& arguments) {
    return fmt::format(
        R"({{"ph":"X","cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":{},"dur":{},"args":{{"External id":{}{}}}}},)",
        title, id, 100 - 2 * id, id, arguments);
  };
  return R"({"traceEvents":[)" + (caller.empty() ? "" : operation(caller, 1, "")) +
         operation(name, 2, fmt::format(R"(,"Input Dims":{},"Input type":{}{})", sizes, types, more)) +
         R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":50,"dur":7,"args":{"External id":2}}]})";
}

const std::string kTwoMatrices = R"(["c10::BFloat16","c10::BFloat16"])";

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const Refusal& refusal) {
    return refusal.kind() + ": " + refusal.what();
  }
  return "";
}

const std::string kAllReduce =
    "# nThread 1 nGpus 4 minBytes 1024 maxBytes 1048576 step: 32(factor) warmup iters: 5 iters: 20 agg "
    "iters: 1 "
    "validation: 1 graph: 0\n"
    "#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid   1001 on      hostA device  0 [0x07] A GPU\n"
    "#  Rank  1 Group  0 Pid   1001 on      hostA device  1 [0x0a] A GPU\n"
    "#  Rank  2 Group  0 Pid   1001 on      hostA device  2 [0x47] A GPU\n"
    "#  Rank  3 Group  0 Pid   1001 on      hostA device  3 [0x4d] A GPU\n"
    "#\n"
    "#                                                              out-of-place                       "
    "in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
    "busbw "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  "
    "(GB/s)\n"
    "        1024           256     float     sum      -1    10.24    0.10    0.15      0    10.30    0.10   "
    " 0.15     "
    " 0\n"
    "       32768          8192     float     sum      -1    12.50    2.62    3.93      0    12.60    2.60   "
    " 3.90    "
    "N/A\n"
    "     1048576        262144     float     sum      -1   1.2e+2    8.74   13.11      0   121.00    8.67   "
    "13.00      "
    "0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 5.7\n";

const std::string kWriteBandwidth =
    "---------------------------------------------------------------------------------------\n"
    "                    RDMA_Write BW Test\n"
    " Dual-port       : OFF\t\tDevice         : mlx5_0\n"
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    " 4096       5000             9000.00            8192.00\t\t     2.097152\n"
    " 65536      5000             11100.50           10000.00\t\t     0.160000\n"
    "---------------------------------------------------------------------------------------\n";

const std::string kWriteLatency =
    "                    RDMA_Write Latency Test\n"
    " Number of qps   : 1\t\tTransport type : IB\n"
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% "
    "percentile[usec]   99.9% percentile[usec] \n"
    " 2       1000          1.01           5.79         1.25     \t       1.30        \t0.08   \t\t1.40    "
    "\t\t5.79\n"
    " 4096    1000          1.90           6.10         2.05     \t       2.10        \t0.08   \t\t2.40    "
    "\t\t6.10\n";

}  // namespace

TEST_CASE("a profile of a training step becomes samples of its kernels") {
  const Measurements llama = read_measurements(profile_path("llama.json"));
  std::map<KernelOp, std::size_t> times;
  for (const KernelSample& sample : llama.samples.kernels) times[sample.kernel.op] += sample.times.size();
  // Two layers of four products each, and the head.
  for (const KernelOp op :
       {KernelOp::matmul, KernelOp::matmul_input_gradient, KernelOp::matmul_weight_gradient})
    CHECK(times[op] == 9);
  for (const KernelOp op : {KernelOp::norm, KernelOp::norm_backward}) CHECK(times[op] == 5);
  for (const KernelOp op : {KernelOp::attention, KernelOp::attention_backward, KernelOp::activation,
                            KernelOp::activation_backward})
    CHECK(times[op] == 2);
  CHECK(times[KernelOp::add_residual] == 4);
  for (const KernelOp op : {KernelOp::embed, KernelOp::embed_backward, KernelOp::logits_maximum,
                            KernelOp::logits_sum, KernelOp::loss, KernelOp::loss_backward})
    CHECK(times[op] == 1);
  const std::string table = kernel_table(llama);
  for (const char* line :
       {"matmul 4096 x 128256 x 2048 bf16 | 2.152e+12 FLOP | 1 x 2717.9 us\n",
        "matmul_weight_gradient 4096 x 128256 x 2048 bf16 | 2.152e+12 FLOP | 1 x 2689.0 us\n",
        "matmul_input_gradient 4096 x 128256 x 2048 bf16 | 2.152e+12 FLOP | 1 x 2531.3 us\n",
        "attention 32 x 4096 x 64 bf16 | 1.374e+11 FLOP | 2 x 289.9 us\n",
        "logits_sum of 1050673152 bytes bf16 | 0 FLOP | 1 x 1756.9 us\n",
        "gated_activation of 201326592 bytes bf16 | 0 FLOP | 2 x 185.2 us\n"}) {
    INFO(table);
    CHECK(table.find(line) != std::string::npos);
  }
  REQUIRE(llama.samples.optimizer.size() == 1);
  CHECK(llama.samples.optimizer[0].bytes == 34.0 * 384313344);  // of so many parameters
  CHECK(llama.samples.optimizer[0].seconds == Approx(4110.0e-6).epsilon(1e-3));
}

TEST_CASE("all work of a profile's GPU is in a sample or named") {
  for (const char* name : {"gpt2.json", "llama.json"}) {
    const Measurements profile = read_measurements(profile_path(name));
    double seconds = 0;
    for (const KernelSample& sample : profile.samples.kernels)
      for (const double each : sample.times) seconds += each;
    for (const OptimizerSample& sample : profile.samples.optimizer) seconds += sample.seconds;
    CHECK(seconds > 0.96 * profile.gpu_s);
    for (const auto& [operation, work] : profile.unread) seconds += work.seconds;
    CHECK(seconds == Approx(profile.gpu_s).epsilon(1e-12));
  }
}

TEST_CASE("a product is a gradient where a node of the backward calls it, and its strides say which") {
  const auto op_of = [](const std::string& strides, const std::string& caller) {
    const Measurements profile =
        read_torch_profile(profile_of("aten::mm", "[[3,5],[5,7]]", kTwoMatrices, strides, caller), "p.json");
    return profile.samples.kernels.empty() ? std::string("unread") : describe(profile.samples.kernels[0]);
  };
  const std::string straight = R"(,"Input Strides":[[5,1],[7,1]])",
                    turned = R"(,"Input Strides":[[1,3],[7,1]])";
  CHECK(op_of(straight, "") == "matmul 3 x 7 x 5 bf16");
  CHECK(op_of(straight, "aten::linear") == "matmul 3 x 7 x 5 bf16");
  CHECK(op_of(straight, "MmBackward0") == "matmul_input_gradient 3 x 5 x 7 bf16");
  CHECK(op_of(turned, "MmBackward0") == "matmul_weight_gradient 5 x 3 x 7 bf16");
  CHECK(op_of("", "MmBackward0") == "unread");
}

TEST_CASE("operations whose sizes fit no kernel are named, not read") {
  for (const auto& [name, sizes, types] :
       {std::array<std::string, 3>{"aten::mm", "[[3,5],[6,7]]", kTwoMatrices},
        {"aten::mm", "[[3,5],[5,7]]", R"(["double","double"])"},
        {"aten::mm", "[[0,5],[5,0]]", R"(["int","int"])"},
        {"aten::add_", "[[3,5],[3,5]]", R"(["float","int"])"},
        {"aten::sort", "[[3,5]]", R"(["float"])"}}) {
    const Measurements profile = read_torch_profile(profile_of(name, sizes, types), "p.json");
    CHECK(profile.samples.kernels.empty());
    REQUIRE(profile.unread.size() == 1);
    CHECK(profile.unread.begin()->first == name);
    CHECK(profile.unread.begin()->second.seconds == Approx(7e-6));
  }
}

TEST_CASE("a kernel that names no operation belongs to the operation whose call launched it") {
  std::string text = profile_of("aten::mm", "[[3,5],[5,7]]", kTwoMatrices);
  const std::string named = R"("args":{"External id":2}}])", launched = R"("args":{"correlation":9}},)";
  text.replace(text.find(named), named.size(),
               launched +
                   R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":97,)" +
                   R"("dur":1,"args":{"External id":2,"correlation":9}}])");
  CHECK(read_torch_profile(text, "p.json").samples.kernels.size() == 1);
}

TEST_CASE("events of a profile whose kind or category is missing or no text are passed over") {
  std::string text = profile_of("aten::mm", "[[3,5],[5,7]]", kTwoMatrices);
  text.insert(text.find('[') + 1, R"({"ph":"X","ts":1,"dur":1},{"ph":"X","cat":3,"name":4},{"ph":5},{},)");
  CHECK(read_torch_profile(text, "p.json").samples.kernels.size() == 1);
}

TEST_CASE(
    "the gradient of a bias, which is a sum of what its product reads, is a part of that product's sample") {
  std::string text = profile_of("aten::mm", "[[3,5],[5,7]]", kTwoMatrices,
                                R"(,"Input Strides":[[1,3],[7,1]])", "MmBackward0");
  text.insert(
      text.find('[') + 1,
      R"({"ph":"X","cat":"cpu_op","name":"aten::sum","pid":1,"tid":1,"ts":200,"dur":5,)"
      R"("args":{"External id":3,"Input Dims":[[3,5]],"Input type":["c10::BFloat16"]}},)"
      R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":210,"dur":2,"args":{"External id":3}},)");
  const Measurements profile = read_torch_profile(text, "p.json");
  REQUIRE(profile.samples.kernels.size() == 1);
  CHECK(describe(profile.samples.kernels[0]) == "matmul_weight_gradient 5 x 3 x 7 bf16");
  CHECK(profile.samples.kernels[0].shape.seconds == Approx(9e-6));
  CHECK(profile.unread.empty());
}

TEST_CASE("attention without a causal mask is no sample of causal attention") {
  const std::string sizes = "[[2,4,8,16],[2,4,8,16],[2,4,8,16],[],[]]";
  const std::string types = R"(["float","float","float","Scalar","Scalar"])";
  for (const auto& [causal, count] : {std::pair{"True", 1}, {"False", 0}}) {
    const std::string values = fmt::format(R"(,"Concrete Inputs":["","","","0.","{}"])", causal);
    const Measurements profile = read_torch_profile(
        profile_of("aten::_scaled_dot_product_flash_attention", sizes, types, values), "p.json");
    CHECK(profile.samples.kernels.size() == static_cast<std::size_t>(count));
    if (count > 0) CHECK(profile.samples.kernels[0].shape.flops == 4.0 * 8 * 8 * 8 * 16);
  }
}

TEST_CASE("a damaged profile is refused at its line, or read") {
  const std::string whole = read_text_file(profile_path("gpt2.json"));
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    std::string damaged = whole.substr(0, 20'000);
    damaged.resize(random() % damaged.size());
    CHECK(refusal_of([&] { read_torch_profile(damaged, "p.json"); }).starts_with("bad-profile: p.json:"));
    damaged = whole.substr(0, 20'000);
    damaged = damaged.substr(0, damaged.rfind(",\n")) + "]}";
    for (const char* text : {"1e999", "-3", "NaN", "\"x\"", "[[[", "9999999999999999999"})
      if (const auto number = damaged.find_first_of("0123456789", random() % damaged.size());
          number != std::string::npos && random() % 4 == 0)
        damaged.replace(number, 1, text);
    const std::string refusal = refusal_of([&] { read_torch_profile(damaged, "p.json"); });
    INFO(refusal);
    CHECK((refusal.empty() || refusal.find(": p.json:") != std::string::npos));
  }
}

TEST_CASE("each size of nccl-tests is a time out of place and one in place") {
  const auto samples = read_nccl_tests(kAllReduce, "here/all_reduce_perf.txt");
  REQUIRE(samples.size() == 6);
  for (const TransferSample& sample : samples) {
    CHECK(sample.kind == TransferKind::all_reduce);
    CHECK(sample.ranks == 4);
  }
  CHECK(samples[3].bytes == 32768);
  CHECK(samples[3].seconds == Approx(12.6e-6));
  CHECK(samples[4].seconds == Approx(120e-6));
  // Since 2.17 the output names its test.
  CHECK(read_nccl_tests("# Collective test starting: ./reduce_scatter_perf\n" + kAllReduce, "out.txt")[0]
            .kind == TransferKind::reduce_scatter);
  // Older versions leave `redop` blank where nothing is reduced.
  std::string blank = kAllReduce;
  for (auto sum = blank.find("  sum "); sum != std::string::npos; sum = blank.find("  sum "))
    blank.replace(sum, 6, "      ");
  CHECK(read_nccl_tests(blank, "all_gather.txt")[3].seconds == Approx(12.6e-6));
}

TEST_CASE("perftest's averages and typical latencies are read, in the unit of the table") {
  const auto bandwidth = read_perftest(kWriteBandwidth, "bw.txt");
  REQUIRE(bandwidth.size() == 2);
  CHECK(bandwidth[0].kind == TransferKind::write_bandwidth);
  CHECK(bandwidth[0].bytes / bandwidth[0].seconds == Approx(8192.0 * 1048576));
  std::string in_bits = kWriteBandwidth;
  for (auto unit = in_bits.find("MB/sec"); unit != std::string::npos; unit = in_bits.find("MB/sec"))
    in_bits.replace(unit, 6, "Gb/sec");
  CHECK(read_perftest(in_bits, "bw.txt")[1].seconds == Approx(65536 / (10000.0 * 1e9 / 8)));
  const auto latency = read_perftest(kWriteLatency, "lat.txt");
  REQUIRE(latency.size() == 2);
  CHECK(latency[0].kind == TransferKind::write_latency);
  CHECK(latency[0].seconds == Approx(1.25e-6));
}

TEST_CASE("transfers made with known constants give these back, also among noise and outliers") {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.1);
  std::uniform_real_distribution<double> draw(0, 1);
  for (const double spread : {0.0, 1.0}) {
    std::vector<TransferSample> samples;
    for (double bytes = 1024; bytes < 3e9; bytes *= 2)
      for (int repeat = 0; repeat < 20; ++repeat) {
        double seconds = 12e-6 + bytes / 42e9;
        seconds *= std::max(0.5, 1 + spread * noise(random));
        if (spread > 0 && draw(random) < 0.05) seconds *= 5;
        samples.push_back({TransferKind::all_gather, 8, bytes, seconds});
      }
    const auto fits = fit_transfers(samples);
    REQUIRE(fits.size() == 1);
    REQUIRE(fits[0].pieces.size() == 1);
    const double most = spread > 0 ? 0.05 : 0.01;
    CHECK(fits[0].pieces[0].latency_s == Approx(12e-6).epsilon(most));
    CHECK(fits[0].pieces[0].bytes_per_s == Approx(42e9).epsilon(most));
    CHECK(fits[0].bus_bytes_per_s() == Approx(42e9 * 7 / 8).epsilon(most));
    CHECK(fits[0].held_out_mean.value() < 0.06);
  }
}

TEST_CASE("two protocols have two pieces, and no piece is added where one line predicts held-out sizes") {
  std::vector<TransferSample> samples;
  for (double bytes = 1024; bytes < 3e9; bytes *= 2) {
    const double seconds = bytes < 1e6 ? 5e-6 + bytes / 4e9 : 100e-6 + bytes / 90e9;
    samples.push_back({TransferKind::all_reduce, 2, bytes, seconds});
  }
  const auto fits = fit_transfers(samples);
  REQUIRE(fits[0].pieces.size() == 2);
  CHECK(fits[0].pieces[1].from_bytes == 1048576);
  CHECK(fits[0].pieces[0].bytes_per_s == Approx(4e9).epsilon(0.01));
  CHECK(fits[0].pieces[1].latency_s == Approx(100e-6).epsilon(0.01));
  CHECK(fits[0].held_out_mean.value() < 0.01);
}
