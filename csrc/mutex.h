// A mutex, and its stand-in where there are no threads.
#pragma once

#include <mutex>

namespace anydepth {

#if defined(__wasm__) && !defined(_REENTRANT)
struct Mutex {
  void lock() {}
  void unlock() {}
};
#else
using Mutex = std::mutex;
#endif
using Lock = std::lock_guard<Mutex>;

}  // namespace anydepth
