// Threads that work on one call together.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mutex.h"

#if !defined(__wasm__) || defined(_REENTRANT)
#define ANYDEPTH_THREADS 1
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
class Team {
 public:
  explicit Team(int size) {
    for (int part = 1; part < size; ++part) threads_.emplace_back([this, part] { work(part); });
  }
  ~Team() {
    ends_ = true;
    wake();
    for (std::thread& one : threads_) one.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // False in a fork of the process that made it, which has none of its threads: it can neither run nor be destroyed there.
  bool here() const { return process_ == process(); }

  // body(part) for each part below `size()`, a thread each. It must not throw.
  template <class Body>
  void run(const Body& body) {
    call_ = [](const void* given, int part) { (*static_cast<const Body*>(given))(part); };
    body_ = &body;
    pending_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    wake();
    body(0);
    for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) rest(spins);
  }

  // The same of a body that may throw: when all have ended, the first part's exception is thrown again.
  template <class Body>
  void run_or_throw(const Body& body) {
    std::vector<std::exception_ptr> failed(size());
    run([&](int part) {
      try {
        body(part);
      } catch (...) {
        failed[part] = std::current_exception();
      }
    });
    for (const std::exception_ptr& one : failed)
      if (one) std::rethrow_exception(one);
  }

 private:
  static constexpr int SPINS = 4000;  // some tens of microseconds

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
    generation_.fetch_add(1);
    if (asleep_.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_.notify_all();
  }

  void work(int part) {
    for (uint32_t seen = 0;; ++seen) {
      for (int spins = 0; generation_.load() == seen; ++spins) {
        if (spins < SPINS) {
          rest(spins);
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_.fetch_add(1);
        woken_.wait(lock, [&] { return generation_.load() != seen; });
        asleep_.fetch_sub(1);
      }
      if (ends_) return;
      call_(body_, part);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }

  const int64_t process_ = process();
  std::vector<std::thread> threads_;
  void (*call_)(const void*, int) = nullptr;
  const void* body_ = nullptr;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0}, asleep_{0};
  std::atomic<bool> ends_{false};
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
