#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace anydepth {

// Aligned memory, to be released with std::free; throws if there is none.
inline void* aligned_memory(size_t alignment, size_t bytes) {
  void* found = nullptr;
  if (posix_memalign(&found, alignment, bytes ? bytes : 1) != 0) throw std::bad_alloc();
  return found;
}

// A buffer that grows and is reused, aligned to a cache line.
template <class T>
class Buffer {
 public:
  T* get(size_t count) {
    if (count > size_) {
      size_ = count;
      memory_.reset(static_cast<T*>(aligned_memory(64, count * sizeof(T))));
    }
    return memory_.get();
  }
  T* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};

}  // namespace anydepth
