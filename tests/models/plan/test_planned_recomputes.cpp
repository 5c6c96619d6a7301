// What the stages of a plan may recompute: legal in every model that ships, and worth its time.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "models/plan/planned_recomputes.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/scenario.hpp"

using namespace motley;

namespace {

std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(MOTLEY_SOURCE_DIR "/scenarios/models"))
    if (entry.path().extension() == ".yaml" || entry.path().extension() == ".json")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Job job_of(const std::string& model) {
  const std::string text = fmt::format(
      "model: {}\ncluster: dgx-h100-pod\ntrain: {{global_batch: 64, sequence: 1024}}\nplan: {{}}\n", model);
  return read_scenario(parse_yaml(text, "text"), "text", ScenarioUse::plan).job;
}

}  // namespace

TEST_CASE("what plans may recompute is legal in every model that ships, from nothing to everything",
          "[plan]") {
  std::size_t with_inner = 0, with_latent = 0;
  for (const std::string& model : shipped_models()) {
    if (model.rfind("tiny", 0) == 0) continue;  // with fewer tokens
    CAPTURE(model);
    Job job = job_of(model);
    const std::vector<Recompute> list = planned_recomputes(job.transformer);
    CHECK(list.front() == Recompute::none);
    CHECK(list.back() == Recompute::full);
    std::set<std::string> words;
    for (const Recompute& recompute : list) {
      CHECK(words.insert(text_of(recompute)).second);
      job.strategy = expand(job.transformer, job.train, 1, 1, 1);
      job.strategy.recompute = recompute;
      CHECK_NOTHROW(validate(job.transformer, job.train, job.strategy));
      with_inner += recompute.has(Module::inner) ? 1 : 0;
      with_latent += recompute.has(Module::latent) ? 1 : 0;
    }
  }
  CHECK(with_inner > 10);
  CHECK(with_latent > 2);
}

TEST_CASE("modules that plans may recompute give back more bytes a second than attention, or large layers",
          "[plan]") {
  int large = 0;
  for (const std::string model :
       {"llama-3-70b", "llama-2-13b", "qwen3-8b", "gpt2-xl", "gpt3-175b", "llama-3.1-405b"}) {
    CAPTURE(model);
    const Job job = job_of(model);
    StagePricer pricer(job);
    const StagePrice* const kept = pricer.price({0, 1, Recompute::none}, 1, 1);
    REQUIRE(kept != nullptr);
    struct Saving {
      double bytes = 0, seconds = 0;  // of a layer and micro-batch
      double each_second() const { return bytes / seconds; }
    };
    const auto saving = [&](const Recompute& recompute) {
      const StagePrice* const again = pricer.price({0, 1, recompute}, 1, 1);
      REQUIRE(again != nullptr);
      return Saving{kept->bytes.layer_in_flight - again->bytes.layer_in_flight,
                    again->least_layer_s - kept->least_layer_s};
    };
    const Saving light = saving(pricer.recomputes().at(1)), heavy = saving(pricer.recomputes().at(2));
    const Saving attention = saving(Recompute::selective), full = saving(Recompute::full);
    CHECK(light.bytes > attention.bytes);
    CHECK(light.each_second() > 2 * attention.each_second());
    CHECK(heavy.bytes > light.bytes);
    CHECK(heavy.bytes < full.bytes);
    CHECK(heavy.each_second() > attention.each_second());
    if (parameter_count(job.transformer) < 60'000'000'000)
      continue;  // kernels so small that whole layers are as good
    CHECK(light.each_second() > full.each_second());
    CHECK(heavy.each_second() > full.each_second());
    ++large;
  }
  CHECK(large == 3);
}
