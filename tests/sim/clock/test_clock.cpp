// Virtual time: alarms ring in order, and coroutines wait for them.
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <stdexcept>
#include <vector>

#include "sim/clock/clock.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Bell final : Clock::Alarm {
  void ring() override { rang->push_back(number); }
  int number = 0;
  std::vector<int>* rang = nullptr;
};

Task sleep_twice(Clock& clock, double seconds, std::vector<double>& woke) {
  co_await clock.sleep(seconds);
  woke.push_back(clock.now_s());
  co_await clock.sleep(seconds);
  woke.push_back(clock.now_s());
}

Task throw_after(Clock& clock, double seconds) {
  co_await clock.sleep(seconds);
  throw std::runtime_error("late");
}

Task call(Clock& clock, bool& caught) {
  try {
    co_await throw_after(clock, 1);
  } catch (const std::runtime_error&) {
    caught = true;
  }
}

void run(Clock& clock) {
  while (!std::isinf(clock.next_s())) clock.move_to(clock.next_s());
}

}  // namespace

TEST_CASE(
    "alarms ring in the order of their times, whatever is taken off between, and ties as they were set") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Dice dice(seed);
    Clock clock;
    std::vector<int> rang;
    std::deque<Bell> bells(200);
    std::vector<std::pair<double, int>> expected;
    for (int i = 0; i < 200; ++i) {
      Bell& bell = bells[static_cast<std::size_t>(i)];
      bell.number = i;
      bell.rang = &rang;
      expected.emplace_back(dice.one_of({1.0, 2.0, 3.5, 3.75, 8.0, 9.0}), i);
      clock.set(bell, expected.back().first);
    }
    for (std::size_t i = 0; i < 200; ++i)
      if (dice.once_in(3)) {
        clock.cancel(bells[i]);
        expected[i].first = -1;
      }
    std::erase_if(expected, [](const auto& each) { return each.first < 0; });
    std::sort(expected.begin(), expected.end());
    run(clock);
    std::vector<int> order;
    for (const auto& [at_s, number] : expected) order.push_back(number);
    CHECK(rang == order);
  }
}

TEST_CASE("coroutines sleep in virtual time") {
  Clock clock;
  std::vector<double> woke;
  const Task slow = sleep_twice(clock, 3, woke), fast = sleep_twice(clock, 2, woke);
  run(clock);
  CHECK(woke == std::vector<double>{2, 3, 4, 6});
}

TEST_CASE("what a coroutine throws comes out where it is awaited") {
  Clock clock;
  bool caught = false;
  const Task task = call(clock, caught);
  CHECK(!caught);
  run(clock);
  CHECK(caught);
}

TEST_CASE("a coroutine that is dropped while it sleeps takes its alarm with it") {
  Clock clock;
  std::vector<double> woke;
  { const Task dropped = sleep_twice(clock, 1, woke); }
  CHECK(std::isinf(clock.next_s()));
}
