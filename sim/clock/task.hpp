// A Task is a coroutine that waits in virtual time: what a stream of a rank does, written as if it blocked. It runs
// until its first wait when it is called; `co_await` on it goes on when it has ended, and throws what it threw. A Task
// owns its frame (some hundred bytes, instead of a stack). It knows nothing of time: see sim/clock/clock.hpp.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace motley {

class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> caller = std::noop_coroutine();  // who awaits the end
    std::exception_ptr failure;

    struct End {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
        return ended.promise().caller;
      }
      void await_resume() noexcept {}
    };
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    End final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { failure = std::current_exception(); }
  };

  Task() = default;
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const { return frame_.done(); }
  void await_suspend(std::coroutine_handle<> caller) { frame_.promise().caller = caller; }
  void await_resume() const {
    if (frame_.promise().failure) std::rethrow_exception(frame_.promise().failure);
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

}  // namespace motley
