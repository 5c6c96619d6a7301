// Schedules as data: their bubbles have closed forms, their memory has bounds, and schedules that users write are
// checked.
#include <catch2/catch.hpp>
#include <map>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Case {
  PipelineShape shape;
  Timetable timetable;
  ScheduleResult result;
  double work_s = 0;  // the work of one rank
  double bubble_s() const { return result.makespan_s - work_s; }
  double idle_s() const {  // the most of any rank, between its first and its last action
    double most_s = 0;
    for (const RankTimes& rank : result.ranks) most_s = std::max(most_s, rank.idle_s());
    return most_s;
  }
  int in_flight() const {
    int most = 0;
    for (const RankTimes& rank : result.ranks) most = std::max(most, rank.in_flight);
    return most;
  }
};

Case run(Schedule schedule, int p, int m, PassTimes times = {}, int chunks = 0) {
  Case pipeline;
  pipeline.shape = {p, chunks > 0 ? chunks : standard_chunks(schedule), m};
  const ScheduleTimes all{{times}, 0};
  pipeline.timetable = make_timetable(schedule, pipeline.shape, all);
  pipeline.result = evaluate(pipeline.timetable, all).value();
  pipeline.work_s = pipeline.shape.chunks * m * (times.forward_s + times.duration(Pass::backward));
  return pipeline;
}

// The most that the rank holds: each micro-batch in flight counts as one, and as `held_for_weights` from its input
// gradient to its weight gradient.
double peak_of(const std::vector<Action>& actions, const ScheduleTimes& times) {
  double now = 0, peak = 0;
  for (const Action& action : actions) {
    const double held = times.pass_times(action.virtual_stage).held_for_weights;
    if (action.pass == Pass::forward) now += 1;
    if (action.pass == Pass::input_gradient) now += held - 1;
    if (action.pass == Pass::weight_gradient) now -= held;
    peak = std::max(peak, now);
  }
  return peak;
}

std::string complaint(const std::string& csv, int micro_batches) {
  return find_complaint(parse_csv(csv, "test"), micro_batches).value_or("");
}

constexpr int kRanks[] = {1, 2, 3, 4, 5, 8};

}  // namespace

TEST_CASE("the bubble of GPipe and of 1F1B is (p-1)/m of the work") {
  for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
    for (int p : kRanks)
      for (int m : {1, 2, 7, 32}) {
        CAPTURE(name_of(schedule), p, m);
        const Case pipeline = run(schedule, p, m, {0.5, 0.75, 0.5});
        CHECK(pipeline.bubble_s() / pipeline.work_s == Approx((p - 1.0) / m).epsilon(1e-12).margin(1e-12));
        CHECK(pipeline.in_flight() == (schedule == Schedule::gpipe ? m : std::min(p, m)));
      }
}

TEST_CASE("the bubble of the interleaved schedule is (p-1)/(v m) of the work") {
  for (int p : kRanks)
    for (int v : {1, 2, 3, 4})
      for (int rounds : {1, 2, 5}) {
        CAPTURE(p, v, rounds);
        const Case pipeline = run(Schedule::interleaved, p, rounds * p, {0.5, 0.75, 0.5}, v);
        CHECK(pipeline.bubble_s() / pipeline.work_s ==
              Approx((p - 1.0) / (v * rounds * p)).epsilon(1e-12).margin(1e-12));
      }
}

TEST_CASE("the bubble of ZB-H1 is (p-1)(F+I-W), with 1F1B's memory") {
  for (const PassTimes times : {PassTimes{1, 1, 1}, {1, 1.2, 0.8}, {2, 3, 1}})
    for (int p : kRanks)
      for (int m : {2 * p, 4 * p + 1}) {
        CAPTURE(p, m, times.weight_gradient_s);
        const Case pipeline = run(Schedule::zb_h1, p, m, times);
        const double closed_s =
            (p - 1) * (times.forward_s + times.input_gradient_s - times.weight_gradient_s);
        CHECK(pipeline.bubble_s() == Approx(closed_s).epsilon(1e-12).margin(1e-9));
        CHECK(pipeline.in_flight() == p);
      }
}

TEST_CASE(
    "no rank of ZB-H2 waits more than (p-1)(F+I-2W) once it has begun, with 2p-1 micro-batches in flight") {
  for (const PassTimes times : {PassTimes{1, 1, 1}, {1, 1.1, 0.9}})
    for (int p : kRanks)
      for (int m : {2 * p, 4 * p + 1}) {
        CAPTURE(p, m, times.weight_gradient_s);
        const Case pipeline = run(Schedule::zb_h2, p, m, times);
        const double closed_s =
            (p - 1) * (times.forward_s + times.input_gradient_s - 2 * times.weight_gradient_s);
        CHECK(pipeline.idle_s() == Approx(closed_s).epsilon(1e-12).margin(1e-9));
        CHECK(pipeline.in_flight() == 2 * p - 1);
      }
}

TEST_CASE("no rank of ZB-V waits once it has begun when F = I = W, with 2p half micro-batches in flight") {
  for (int p : kRanks)
    for (int m : {2 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const Case pipeline = run(Schedule::zb_v, p, m);
      CHECK(pipeline.idle_s() == Approx(0).margin(1e-9));
      CHECK(pipeline.bubble_s() == Approx(p - 1).margin(1e-9));  // ranks begin one after another
      CHECK(pipeline.in_flight() == 2 * p);
    }
}

// The authors' (p-1)(F&B + B - 3W) counts a pair as done when both passes are done; here the forward of a pair is sent
// on at once.
TEST_CASE(
    "the bubble of DualPipeV is (p-1)(F+I-W) when F = I = W, below its authors' bound, with 2p+1 halves in "
    "flight") {
  for (int p : {2, 3, 4, 5, 8})
    for (int m : {2 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const Case pipeline = run(Schedule::dualpipe_v, p, m);
      CHECK(pipeline.bubble_s() == Approx(p - 1).margin(1e-9));
      CHECK(pipeline.in_flight() == 2 * p + 1);
      const PassTimes times{1, 1.2, 0.8};
      const double pair_s = times.forward_s + times.duration(Pass::backward);
      const double bound_s =
          (p - 1) * (pair_s + times.duration(Pass::backward) - 3 * times.weight_gradient_s);
      CHECK(run(Schedule::dualpipe_v, p, m, times).bubble_s() <= bound_s);
    }
}

TEST_CASE("every schedule of every shape is sound, ends with a single buffer, and reads back from its CSV") {
  std::map<std::string, int> shapes;
  for (const std::string& name : schedule_names())
    for (int p : kRanks)
      for (int m : {1, 2, 3, 4, 6, 10, 17}) {
        const Schedule schedule = schedule_named(name);
        const PipelineShape shape{p, standard_chunks(schedule), m};
        if (find_complaint(schedule, shape)) continue;
        ++shapes[name];
        CAPTURE(name, p, m);
        const Timetable timetable = make_timetable(schedule, shape);
        CHECK(find_complaint(timetable, m).value_or("") == "");
        CHECK(placement(timetable) == placement(schedule, shape));
        CHECK(parse_csv(to_csv(timetable), "test") == timetable);
        for (int buffers : {1, 2}) CHECK(evaluate(timetable, {{}, 0.1}, buffers).has_value());
      }
  // Six pipelines times seven counts of micro-batches, less the shapes that a schedule does not allow.
  CHECK(shapes == std::map<std::string, int>{{"gpipe", 42},
                                             {"1f1b", 42},
                                             {"interleaved", 15},
                                             {"zb-h1", 42},
                                             {"zb-h2", 42},
                                             {"zb-v", 42},
                                             {"dualpipe-v", 18}});
}

TEST_CASE("more buffers never make a schedule end later, transfers never earlier") {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = schedule_named(name);
    const Timetable timetable = make_timetable(schedule, {4, standard_chunks(schedule), 8});
    CAPTURE(name);
    const auto makespan = [&](double transfer_s, int buffers) {
      return evaluate(timetable, {{}, transfer_s}, buffers)->makespan_s;
    };
    CHECK(makespan(0.25, 2) <= makespan(0.25, 1));
    CHECK(makespan(0.25, 0) <= makespan(0.25, 2));
    CHECK(makespan(0, 2) < makespan(0.25, 2));
  }
}

TEST_CASE("a V turns on the last rank and ends where it began, a loop comes round") {
  CHECK(placement(Schedule::zb_v, {3, 2, 6}) == std::vector<int>{0, 1, 2, 2, 1, 0});
  CHECK(placement(Schedule::interleaved, {3, 2, 6}) == std::vector<int>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("the interleaved order of two ranks, two chunks and four micro-batches is Megatron-LM's") {
  CHECK(to_csv(make_timetable(Schedule::interleaved, {2, 2, 4})) ==
        "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
        "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

TEST_CASE("weight gradients fill what would be idle, and which gaps depends on how long they take") {
  const Timetable equal = make_timetable(Schedule::zb_h1, {3, 1, 4}, {{{1, 1, 1}}, 0});
  CHECK(to_csv(equal) ==
        "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
        "1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3\n"
        "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3\n");
  // Short weight gradients leave room for one more of them before the last input gradient arrives.
  const Timetable short_ones = make_timetable(Schedule::zb_h1, {3, 1, 4}, {{{1, 1, 0.3}}, 0});
  CHECK(to_csv(short_ones).find("1I2,1W1,1W2,1I3,1W3") != std::string::npos);
}

TEST_CASE(
    "weight gradients are put off within the memory of the schedule's micro-batches, or by their count") {
  std::map<std::string, int> sparing;  // schedules of which less is put off than by count
  for (unsigned seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Schedule schedule = dice.one_of({Schedule::zb_h1, Schedule::zb_h2, Schedule::zb_v});
    const int p = dice.one_of({2, 3, 4, 6}), chunks = standard_chunks(schedule);
    const int most = schedule == Schedule::zb_h1 ? p : schedule == Schedule::zb_h2 ? 2 * p - 1 : 2 * p;
    const PipelineShape shape{p, chunks, dice.one_of({2, 5, 2 * p, 4 * p}), 0, dice.once_in(2)};
    ScheduleTimes times;
    double most_held = 0;
    for (int stage = 0; stage < p * chunks; ++stage) {
      times.stages.push_back({dice.one_of({0.8, 1.0, 1.3}), dice.one_of({0.7, 1.0, 1.5}),
                              dice.one_of({0.4, 1.0, 1.2}), dice.one_of({0.3, 1.0, 1.4, 1.8, 28.0})});
      most_held = std::max(most_held, times.stages.back().held_for_weights);
    }
    const Timetable within_memory = make_timetable(schedule, shape, times);
    const Timetable by_count = make_timetable(schedule, shape, put_off_by_count(times));
    CHECK(find_complaint(within_memory, shape.micro_batches).value_or("") == "");
    for (std::size_t rank = 0; rank < at(p); ++rank) {
      const double peak = peak_of(within_memory.ranks[rank], times);
      CHECK(peak <= most + std::max(0.0, most_held - 1) + 1e-9);
      CHECK(peak_of(by_count.ranks[rank], put_off_by_count(times)) <= most + 1e-9);
      sparing[std::string(name_of(schedule))] += peak < peak_of(by_count.ranks[rank], times) - 1e-9 ? 1 : 0;
    }
    if (most_held <= 1) CHECK(within_memory == by_count);
  }
  for (const char* name : {"zb-h1", "zb-h2", "zb-v"}) CHECK(sparing[name] > 50);
}

TEST_CASE("shapes that a schedule is not for are named") {
  CHECK(find_complaint(Schedule::interleaved, {4, 2, 6}).value_or("").find("groups of the 4 ranks") !=
        std::string::npos);
  CHECK(find_complaint(Schedule::zb_v, {4, 3, 8}).value_or("") ==
        "zb-v holds 2 virtual stages a rank, not 3");
  CHECK(find_complaint(Schedule::one_f_one_b, {4, 2, 8}).value_or("") ==
        "1f1b holds 1 virtual stage a rank, not 2");
  CHECK(find_complaint(Schedule::dualpipe_v, {4, 2, 7}).value_or("") ==
        "dualpipe-v on 4 ranks wants 8 micro-batches or more, not 7");
}

TEST_CASE("CSV with spaces, empty cells and overlapped pairs is read as PyTorch writes it") {
  const Timetable read = parse_csv("0F0, ,0F1,(0F2;0B0)OVERLAP_F_B,\r\n\n,1F0,1I0,1W0\n", "test");
  CHECK(to_csv(read) == "0F0,0F1,0F2,0B0\n1F0,1I0,1W0\n");
}

TEST_CASE("what is wrong with a written schedule is said in its words") {
  CHECK(complaint("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 2) == "");
  CHECK(complaint("0F0,0B0\n1F0,1B0\n", 2) ==
        "4 actions: 2 virtual stages and 2 micro-batches make at least 8");
  CHECK(complaint("0F0,0B0\n1F0,1B0,1F1,1B1\n", 1) ==
        "1F1 is of a micro-batch that is not there: a step has 1");
  CHECK(complaint("0F0,0F0,0B0,0B0\n", 2) == "0F0 is there twice");
  CHECK(complaint("0F0,0F1,0B0,1F0,1F1,1B1\n0B1,1B0\n", 2) == "ranks 0 and 1 both run virtual stage 0");
  CHECK(complaint("0F0,0B0,0I0\n", 1) == "0B0 is there, and a split backward as well");
  CHECK(complaint("0F0,0I0\n", 1) == "0W0 is missing");
  CHECK(complaint("0F0,0W0,0I0\n", 1) == "0W0 comes before 0I0");
  CHECK(complaint("0B0,0F0\n", 1) == "0B0 comes before 0F0");
  CHECK(complaint("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", 2) ==
        "virtual stages 0 and 1 run the forwards of micro-batches in different orders");
  CHECK(complaint("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2) == "its ranks wait for each other for ever");
  CHECK(complaint("", 1) == "0 actions: 0 virtual stages and 1 micro-batches make at least 0");
  CHECK(complaint(",\n0F0,0B0\n", 1) == "rank 0 does nothing");
}

TEST_CASE("a cell that is no action is refused where it stands") {
  for (const std::string bad : {"0G1", "F0", "0F", "0SEND_F1", "(0F0;0B0)", "0F1000001", "0F0x", "-1F0"}) {
    CAPTURE(bad);
    try {
      parse_csv("0F0\n1F0," + bad + "\n", "plan.csv");
      FAIL("accepted");
    } catch (const Refusal& refusal) {
      CHECK(refusal.kind() == "bad-schedule");
      CHECK(std::string(refusal.what()).find("plan.csv:2:5") != std::string::npos);
    }
  }
}

TEST_CASE("a schedule is drawn with time to the right and a dot where a rank waits") {
  CHECK(to_grid(make_timetable(Schedule::one_f_one_b, {2, 1, 2}), {{{1, 1, 1}}, 0}) ==
        "rank 0   F0 F1 ......B0    ...B1    \n"
        "rank 1   ...F0 B0    F1 B1    ......\n");
}
