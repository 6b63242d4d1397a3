// Threads that work on one call together.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mutex.h"

#if !defined(__wasm__) || defined(_REENTRANT)
#define ANYDEPTH_THREADS 1
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif
#else
#define ANYDEPTH_THREADS 0
#endif

namespace anydepth {

#if ANYDEPTH_THREADS
// The caller's thread and others, which wait for work: briefly awake, as work comes every few microseconds in a call.
// Who has done his own part takes those of others that are still asleep: the caller never waits for a thread that has
// not begun, such as one whose core another program has taken.
class Team {
 public:
  explicit Team(int size) : taken_(size) {
    for (int part = 1; part < size; ++part) threads_.emplace_back([this, part] { work(part); });
  }
  ~Team() {
    ends_ = true;
    wake();
    for (std::thread& one : threads_) one.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(taken_.size()); }
  // False in a fork of the process that made it, which has none of its threads: it can neither run nor be destroyed there.
  bool here() const { return process_ == process(); }

  // body(part) for each part below `size()`, by any of the threads; parts must not wait for one another. It must not
  // throw. For small parts of about equal size: where other programs keep the cores busy, one thread is soon faster than
  // several that wait for each other, and the caller goes on alone for a while.
  template <class Body>
  void run(const Body& body) {
    if (alone_ > 0) {
      --alone_;
      for (int part = 0; part < size(); ++part) body(part);
      return;
    }
    const auto began = std::chrono::steady_clock::now();
    const int done = share(body);
    const auto own = std::chrono::steady_clock::now();
    wait();
    const auto waited = std::chrono::steady_clock::now() - own;
    if (waited > 2 * (own - began) + std::chrono::microseconds(100)) {  // another has lost its core in its part
      alone_ = penalty_;
      penalty_ = std::min(2 * penalty_, 16384);
      steady_ = absent_ = 0;
    } else if (++steady_ > 1000) {
      penalty_ = LEAST_PENALTY;
    }
    absent_ = done == size() ? absent_ + 1 : 0;
    if (absent_ > 16) alone_ = LEAST_PENALTY;
  }

  // The same of a body that may throw, and of parts of any size: when all have ended, the first part's exception is
  // thrown again.
  template <class Body>
  void run_or_throw(const Body& body) {
    std::vector<std::exception_ptr> failed(size());
    share([&](int part) {
      try {
        body(part);
      } catch (...) {
        failed[part] = std::current_exception();
      }
    });
    wait();
    for (const std::exception_ptr& one : failed)
      if (one) std::rethrow_exception(one);
  }

 private:
  static constexpr int SPINS = 4000;  // some tens of microseconds
  static constexpr int LEAST_PENALTY = 256;  // calls

  // Begins a call, and does what of it this thread can do; says how many parts that were.
  template <class Body>
  int share(const Body& body) {
    call_ = [](const void* given, int part) { (*static_cast<const Body*>(given))(part); };
    body_ = &body;
    pending_.store(size(), std::memory_order_relaxed);
    wake();
    return take_parts(0, calls_.load(std::memory_order_relaxed));
  }

  void wait() const {
    for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) rest(spins);
  }

  static int64_t process() {
#if defined(__unix__) || defined(__APPLE__)
    return getpid();
#else
    return 0;
#endif
  }

  static void rest(int spins) {
    if (spins > SPINS) {
      std::this_thread::yield();
      return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("yield");
#endif
  }

  void wake() {
    calls_.fetch_add(1);
    if (asleep_.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_.notify_all();
  }

  // Runs the parts of this call that nobody has taken, from `own` on. Every call takes every part once, so that a part
  // that is still of the call before is free, and none is for a thread that comes too late: its body is gone.
  int take_parts(int own, uint64_t call) {
    int done = 0;
    for (int i = 0; i < size(); ++i) {
      const int part = (own + i) % size();
      uint64_t before = call - 1;
      if (!taken_[part].compare_exchange_strong(before, call)) continue;
      call_(body_, part);
      pending_.fetch_sub(1, std::memory_order_release);
      ++done;
    }
    return done;
  }

  void work(int own) {
    for (uint64_t seen = 0;;) {
      uint64_t call = calls_.load();
      for (int spins = 0; call == seen; ++spins, call = calls_.load()) {
        if (spins < SPINS) {
          rest(spins);
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_.fetch_add(1);
        woken_.wait(lock, [&] { return calls_.load() != seen; });
        asleep_.fetch_sub(1);
      }
      if (ends_) return;
      take_parts(own, seen = call);
    }
  }

  const int64_t process_ = process();
  std::vector<std::thread> threads_;
  void (*call_)(const void*, int) = nullptr;
  const void* body_ = nullptr;
  std::atomic<uint64_t> calls_{0};
  std::vector<std::atomic<uint64_t>> taken_;  // for each part the last call that took it
  std::atomic<int> pending_{0}, asleep_{0};
  std::atomic<bool> ends_{false};
  int alone_ = 0, penalty_ = LEAST_PENALTY, steady_ = 0, absent_ = 0;  // of the caller: see `run`
  std::mutex mutex_;
  std::condition_variable woken_;
};
#else
class Team {
 public:
  explicit Team(int) {}
  int size() const { return 1; }
  bool here() const { return true; }
  template <class Body>
  void run(const Body& body) {
    body(0);
  }
  template <class Body>
  void run_or_throw(const Body& body) {
    body(0);
  }
};
#endif

}  // namespace anydepth
