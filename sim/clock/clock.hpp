// Virtual time: a heap of alarms, and the coroutines that may go on now. Alarms of one instant ring in the order in
// which they were set, so a run is repeatable. The Clock moves no bytes: see sim/fabric/flows.hpp, which moves it.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/clock/task.hpp"

namespace motley {

class Clock {
 public:
  // Something that happens at an instant. While it is set its address must not change; its destructor takes it off.
  class Alarm {
   public:
    Alarm() = default;
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;
    virtual ~Alarm() {
      if (clock_ != nullptr) clock_->cancel(*this);
    }
    virtual void ring() = 0;

   private:
    friend class Clock;
    Clock* clock_ = nullptr;  // null: it is not set
    std::size_t place_ = 0;   // in the heap
  };

  // Alarms that are this close ring at one instant. Times are doubles of a few hundred seconds at most: this is just
  // above their rounding.
  static constexpr double kTogether_s = 1e-12;

  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  double now_s() const { return now_s_; }
  void set(Alarm& alarm, double at_s);  // the alarm must not be set
  void cancel(Alarm& alarm);            // does nothing if it is not set
  // Lets a coroutine go on at this instant, after those that were named before.
  void go_on(std::coroutine_handle<> waiting) { ready_.push_back(waiting); }

  double next_s() const;            // when the next alarm rings; infinite: never
  void move_to(double time_s);      // rings every alarm until then, and runs what they let go on
  void run_ready();                 // runs what may go on now, until nothing may
  void stop() { stopped_ = true; }  // nothing goes on any more
  bool stopped() const { return stopped_; }

  // co_await clock.sleep(seconds) goes on after that time; at once if it is not positive.
  class Sleep final : public Alarm {
   public:
    Sleep(Clock& clock, double seconds) : its_clock_(clock), seconds_(seconds) {}
    bool await_ready() const { return !(seconds_ > 0); }
    void await_suspend(std::coroutine_handle<> sleeper) {
      sleeper_ = sleeper;
      its_clock_.set(*this, its_clock_.now_s() + seconds_);
    }
    void await_resume() const {}
    void ring() override { sleeper_.resume(); }

   private:
    Clock& its_clock_;
    double seconds_;
    std::coroutine_handle<> sleeper_;
  };
  Sleep sleep(double seconds) { return {*this, seconds}; }

 private:
  struct Entry {
    double at_s;
    std::uint64_t order;
    Alarm* alarm;
    bool before(const Entry& other) const {
      return at_s != other.at_s ? at_s < other.at_s : order < other.order;
    }
  };
  void put(std::size_t place, const Entry& entry);
  void rise(std::size_t place, const Entry& entry);
  void sink(std::size_t place, const Entry& entry);

  double now_s_ = 0;
  std::uint64_t set_ = 0;  // how many alarms were ever set
  std::vector<Entry> heap_;
  std::deque<std::coroutine_handle<>> ready_;
  bool stopped_ = false;
};

// Where one coroutine waits until another wakes it.
class Parking {
 public:
  auto wait() {
    struct Awaiter {
      Parking& parking;
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<> waiting) { parking.waiting_ = waiting; }
      void await_resume() const {}
    };
    return Awaiter{*this};
  }
  void wake(Clock& clock) {
    if (waiting_) clock.go_on(std::exchange(waiting_, {}));
  }

 private:
  std::coroutine_handle<> waiting_;
};

}  // namespace motley
