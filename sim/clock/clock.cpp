#include "sim/clock/clock.hpp"

#include <algorithm>
#include <limits>

#include "models/base/refusal.hpp"

namespace motley {

void Clock::put(std::size_t place, const Entry& entry) {
  heap_[place] = entry;
  entry.alarm->place_ = place;
}

void Clock::rise(std::size_t place, const Entry& entry) {
  while (place > 0 && entry.before(heap_[(place - 1) / 2])) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, entry);
}

void Clock::sink(std::size_t place, const Entry& entry) {
  for (;;) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
    if (!heap_[child].before(entry)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, entry);
}

void Clock::set(Alarm& alarm, double at_s) {
  MOTLEY_CHECK(alarm.clock_ == nullptr);
  alarm.clock_ = this;
  const Entry entry{at_s, set_++, &alarm};
  heap_.push_back(entry);
  rise(heap_.size() - 1, entry);
}

void Clock::cancel(Alarm& alarm) {
  if (alarm.clock_ == nullptr) return;
  alarm.clock_ = nullptr;
  const std::size_t place = alarm.place_;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (place == heap_.size()) return;
  if (place > 0 && last.before(heap_[(place - 1) / 2]))
    rise(place, last);
  else
    sink(place, last);
}

double Clock::next_s() const {
  return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().at_s;
}

void Clock::move_to(double time_s) {
  now_s_ = std::max(now_s_, time_s);
  while (!stopped_ && next_s() <= now_s_ + kTogether_s) {
    Alarm& alarm = *heap_.front().alarm;
    cancel(alarm);
    alarm.ring();
    run_ready();
  }
}

void Clock::run_ready() {
  while (!stopped_ && !ready_.empty()) {
    const std::coroutine_handle<> next = ready_.front();
    ready_.pop_front();
    next.resume();
  }
}

}  // namespace motley
