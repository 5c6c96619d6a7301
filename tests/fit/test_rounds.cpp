// Rounds of the fit in a world whose figures are known, and fits that leave runs out.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/fit_world.hpp"
#include "tools/fit/results.hpp"

using namespace motley;
using namespace motley::fit;

namespace {

Eigen::VectorXd errors_of(PowerWorld& world, const std::vector<FitRun>& runs, const Eigen::VectorXd& values) {
  const std::vector<double> steps = world.step_s(values);
  Eigen::VectorXd errors(static_cast<Eigen::Index>(runs.size()));
  for (std::size_t i = 0; i < runs.size(); ++i)
    errors[static_cast<Eigen::Index>(i)] = std::log(steps[i] / runs[i].measured_s);
  return errors;
}

}  // namespace

TEST_CASE("figures that made the runs are found again") {
  std::vector<FitRun> runs = some_runs();
  Plan plan = shipped_plan();
  plan.error = 1e-4;  // the runs outweigh any prior
  const Figures figures(plan, runs);
  const Eigen::VectorXd truth = figures.prior().mean + random_vector(figures.count(), 0.2, 5);
  PowerWorld world(figures, runs, truth);
  Fit fit(figures, runs, {"megatron-2023", "nemo-2024", "llm-foundry-2024"});
  fit.run(world, figures.prior().mean, 6);
  CHECK((fit.values() - truth).cwiseAbs().maxCoeff() < 0.01);
  CHECK(world.asked() < 6 * 11);  // the fit ends when figures no longer move
}

TEST_CASE("the errors are told as a fit begins, and after each of its rounds") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  PowerWorld world(figures, runs, figures.prior().mean + random_vector(figures.count(), 0.2, 5));
  std::vector<int> told;
  std::vector<double> worst;
  Fit fit(figures, runs, {"megatron-2023"}, [&](int round, const Eigen::VectorXd& errors) {
    told.push_back(round);
    worst.push_back(errors.cwiseAbs().maxCoeff());
  });
  fit.run(world, figures.prior().mean, 2);
  CHECK(told == std::vector<int>{0, 1, 2});
  CHECK(worst.front() == errors_of(world, runs, figures.prior().mean).cwiseAbs().maxCoeff());
  CHECK(worst.back() == errors_of(world, runs, fit.values()).cwiseAbs().maxCoeff());
}

TEST_CASE(
    "by the shipped priors errors of the runs fall to a tenth, and a repeated fit is the same to the bit") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  const Eigen::VectorXd truth = figures.prior().mean + 0.3 * random_vector(figures.count(), 1, 6);
  PowerWorld world(figures, runs, truth);
  const std::set<std::string> all = {"megatron-2023", "nemo-2024", "llm-foundry-2024"};
  Fit fit(figures, runs, all), again(figures, runs, all);
  fit.run(world, figures.prior().mean, 3);
  again.run(world, figures.prior().mean, 3);
  CHECK(fit.values() == again.values());
  CHECK(errors_of(world, runs, fit.values()).cwiseAbs().mean() <
        0.1 * errors_of(world, runs, figures.prior().mean).cwiseAbs().mean());
}

TEST_CASE("other software stays where it is when one is fitted alone") {
  std::vector<FitRun> runs = some_runs(), own;
  const Figures figures(shipped_plan(), runs);
  const Eigen::VectorXd truth = figures.prior().mean + 0.3 * random_vector(figures.count(), 1, 8);
  for (const FitRun& run : runs)
    if (run.software == "nemo-2024") own.push_back(run);
  PowerWorld world(figures, own, truth);
  Fit fit(figures, own, {"nemo-2024"});
  const Eigen::VectorXd begin = figures.prior().mean + 0.1 * random_vector(figures.count(), 1, 9);
  fit.run(world, begin, 2);
  int moved = 0;
  for (Eigen::Index i = 0; i < figures.count(); ++i) {
    const bool mine = figures.names()[static_cast<std::size_t>(i)].software == "nemo-2024";
    CHECK(fit.moves(i) == mine);
    if (!mine) CHECK(fit.values()[i] == begin[i]);
    moved += fit.values()[i] != begin[i] ? 1 : 0;
  }
  CHECK(moved > 10);
  for (const LeftOut& each : fit.leave_out())
    for (Eigen::Index i = 0; i < figures.count(); ++i)
      if (!fit.moves(i)) CHECK(each.values[i] == begin[i]);
}

TEST_CASE("a figure that no run tells of goes the way of its kin, less far") {
  std::vector<FitRun> runs = runs_of("zb", "megatron-2023", "a100-80gb-sxm", 60);
  for (const auto& one : {runs_of("zb", "megatron-2023", "h100-80gb-sxm", 1),
                          runs_of("sc21", "megatron-2021", "a100-80gb-sxm", 1)})
    runs.insert(runs.end(), one.begin(), one.end());
  const Figures figures(shipped_plan(), runs);
  const Eigen::Index told = figures.index(runs.front(), "layer_launch"),
                     kin = figures.index(runs.back(), "layer_launch"),
                     same_software = figures.index(runs.at(60), "layer_launch"),
                     other = figures.index(runs.back(), "step_overhead");
  LinearErrors linear{figures.prior().mean, Eigen::VectorXd::Constant(60, -0.3),
                      Eigen::MatrixXd::Zero(60, figures.count())};
  linear.jacobian.col(told).setOnes();
  Pulls pulls;
  pulls.weights.assign(60, 1);
  pulls.free.assign(static_cast<std::size_t>(figures.count()), true);
  const Eigen::VectorXd moved = solve(linear, figures.prior(), pulls, false).values - figures.prior().mean;
  CHECK(moved[told] == Approx(0.3).epsilon(0.02));
  // A figure of another software on the same chip moves by the shares for all and for the chip.
  const Plan& plan = figures.plan();
  CHECK(moved[kin] == Approx((plan.alike_all + plan.alike_chip) * moved[told]).epsilon(1e-3));
  // A figure of the same software on another chip moves by the shares for all and for the software.
  CHECK(moved[same_software] == Approx((plan.alike_all + plan.alike_software) * moved[told]).epsilon(1e-3));
  CHECK(std::abs(moved[other]) < 1e-6);
}

TEST_CASE("a round that made things worse is taken back by halves") {
  // A world so far from linear that the step of the linear optimum is much too long.
  class Bent : public Predictor {
   public:
    Bent(const Figures& figures, Eigen::Index at) : begin_(figures.prior().mean[at]), at_(at) {}
    std::vector<double> step_s(const Eigen::VectorXd& values) override {
      const double x = values[at_] - begin_;
      // Flat at first, as far as the derivatives reach; then steep.
      return std::vector<double>(40, std::exp(-0.5 + 0.5 * x + (x > 0.15 ? 20 * (x - 0.15) : 0)));
    }

   private:
    double begin_;
    Eigen::Index at_;
  };
  const std::vector<FitRun> runs = runs_of("zb", "megatron-2023", "a100-80gb-sxm", 40);
  const Figures figures(shipped_plan(), runs);
  Bent world(figures, figures.index(runs[0], "elementwise_passes"));
  std::vector<double> mean;
  Fit fit(figures, runs, {"megatron-2023"},
          [&](int, const Eigen::VectorXd& errors) { mean.push_back(errors.cwiseAbs().mean()); });
  fit.run(world, figures.prior().mean, 1);
  REQUIRE(mean.size() == 2);
  CHECK(mean[1] < mean[0]);
}

TEST_CASE("runs of a size are left out of every set at once, each once, and then each set") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  PowerWorld world(figures, runs, figures.prior().mean + 0.3 * random_vector(figures.count(), 1, 6));
  Fit fit(figures, runs, {"megatron-2023", "nemo-2024", "llm-foundry-2024"});
  fit.run(world, figures.prior().mean, 1);
  std::map<std::string, int> fold_of_size;
  std::set<std::string> seen, sets;
  int fold = 0;
  for (const LeftOut& each : fit.leave_out()) {
    CHECK((each.values - fit.values()).cwiseAbs().maxCoeff() > 1e-6);
    if (!each.set.empty()) {
      sets.insert(each.set);
      CHECK(each.software.size() == 1);
      continue;
    }
    CHECK(each.software.size() == 3);
    ++fold;
    for (const std::string& id : each.ids) {
      CHECK(seen.insert(id).second);
      for (const FitRun& run : runs)
        if (run.id == id) CHECK(fold_of_size.emplace(run.size, fold).first->second == fold);
    }
  }
  CHECK(seen.size() == runs.size());
  CHECK(fold == 4);  // one for each size, as there are fewer sizes than folds
  CHECK(sets == std::set<std::string>{"dgxc", "mpt", "nemo", "zb"});
}

TEST_CASE("a fit without a set is that of a table that never had it") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  const Eigen::VectorXd truth = figures.prior().mean + 0.1 * random_vector(figures.count(), 1, 6);
  PowerWorld world(figures, runs, truth);
  Fit fit(figures, runs, {"megatron-2023", "nemo-2024", "llm-foundry-2024"});
  fit.run(world, figures.prior().mean, 3);
  std::vector<LeftOut> fits = fit.leave_out();
  const auto without =
      std::find_if(fits.begin(), fits.end(), [](const LeftOut& each) { return each.set == "nemo"; });
  REQUIRE(without != fits.end());
  for (FitRun& run : runs)
    if (run.set == "nemo") run.measured_s *= 1000;  // these measurements must have no influence
  Fit blind(figures, runs, {"megatron-2023", "nemo-2024", "llm-foundry-2024"});
  blind.run(world, figures.prior().mean, 3);
  std::vector<LeftOut> others = blind.leave_out();
  const auto same =
      std::find_if(others.begin(), others.end(), [](const LeftOut& each) { return each.set == "nemo"; });
  CHECK((without->values - same->values).cwiseAbs().maxCoeff() < 1e-4);
  CHECK((fit.values() - blind.values()).cwiseAbs().maxCoeff() > 1e-2);
}

TEST_CASE("results list every figure that a fit moves, and no other") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  PowerWorld world(figures, runs, figures.prior().mean);
  for (const std::set<std::string>& moving :
       {std::set<std::string>{"nemo-2024"}, {"megatron-2023", "nemo-2024", "llm-foundry-2024"}}) {
    Fit fit(figures, runs, moving);
    fit.run(world, figures.prior().mean, 1);
    std::vector<FigureName> expected, listed;
    for (const FigureName& name : figures.names())
      if (moving.contains(name.software)) expected.push_back(name);
    for (const auto& each : nlohmann::json::parse(to_json(figures, fit))) {
      listed.push_back(
          {each["software"].get<std::string>(), each.value("chip", ""), each["kind"].get<std::string>()});
      const Eigen::Index at = figures.index(listed.back());
      CHECK(each["value"].get<double>() == Approx(std::exp(fit.values()[at])));
      CHECK(each["spread"].get<double>() == Approx(fit.spread()[at]));
    }
    CHECK((listed == expected));
  }
}
