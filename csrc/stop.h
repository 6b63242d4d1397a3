// What may end a translation before it is done.
#pragma once

#include <chrono>
#include <cstdint>

#include "buffer.h"

namespace anydepth {

struct Stopped : Error {
  using Error::Error;
};

// A flag that another thread sets, or a deadline.
struct StopConditions {
  const volatile int32_t* abort = nullptr;
  bool has_deadline = false;
  std::chrono::steady_clock::time_point deadline;

  void check() const {
    if (abort != nullptr && *abort != 0) throw Stopped("the search was aborted");
    if (has_deadline && std::chrono::steady_clock::now() >= deadline)
      throw Stopped("the search was stopped: its time was over");
  }
};

// Checks them at some of many small steps, so that the checks cost nothing.
class StopChecker {
 public:
  explicit StopChecker(const StopConditions& stop) : stop_(stop) {}
  void step() {
    if (++steps_ % EVERY == 0) stop_.check();
  }

 private:
  static constexpr uint32_t EVERY = 1 << 14;
  const StopConditions& stop_;
  uint32_t steps_ = 0;
};

}  // namespace anydepth
