#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace anydepth {

// Memory that grows and is kept: rows of numbers that begin at a cache line.
template <class T>
class Buffer {
 public:
  T* get(size_t count) {
    if (count > size_) {
      size_ = count;
      memory_.reset(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64)));
      if (!memory_) throw std::bad_alloc();
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
