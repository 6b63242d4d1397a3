// Aligned memory, and sizes that are computed in 64 bits and checked, whatever size_t is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mutex.h"

namespace anydepth {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The fault of a model file, not of a caller.
struct FileError : Error {
  using Error::Error;
};

// A text that the model or the tokenizer does not take.
struct TooLong : Error {
  using Error::Error;
};

constexpr size_t LINE = 64;  // a cache line: what arrays are aligned to, in memory and in files

inline uint64_t checked_mul(uint64_t a, uint64_t b) {
  if (a != 0 && b > std::numeric_limits<uint64_t>::max() / a) throw Error("a size is out of range");
  return a * b;
}

inline uint64_t checked_add(uint64_t a, uint64_t b) {
  if (b > std::numeric_limits<uint64_t>::max() - a) throw Error("a size is out of range");
  return a + b;
}

// As a size in memory; pointers to its ends must be comparable.
inline size_t checked_size(uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max()) - LINE) throw std::bad_alloc();
  return static_cast<size_t>(bytes);
}

inline uint64_t to_line(uint64_t n) { return checked_add(n, LINE - 1) / LINE * LINE; }

inline void* aligned_memory(uint64_t bytes) {
  return ::operator new(checked_size(bytes ? bytes : 1), std::align_val_t(LINE));
}
inline void free_aligned(void* memory) { ::operator delete(memory, std::align_val_t(LINE)); }

// Memory of buffers that are gone, for those that come: fresh memory costs a page fault for every 4 KB.
class SpareMemory {
 public:
  static SpareMemory& all() {  // never destroyed: threads may end after it
    static SpareMemory* const one = new SpareMemory;
    return *one;
  }

  // Of at least `bytes`, which become the size of it.
  void* take(uint64_t& bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    const Lock lock(mutex_);
    size_t best = spares_.size();
    for (size_t i = 0; i < spares_.size(); ++i)
      if (spares_[i].bytes >= bytes && spares_[i].bytes / 2 <= bytes &&
          (best == spares_.size() || spares_[i].bytes < spares_[best].bytes))
        best = i;
    if (best < spares_.size()) {
      const Spare found = spares_[best];
      spares_[best] = spares_.back();
      spares_.pop_back();
      kept_ -= found.bytes;
      bytes = found.bytes;
      return found.memory;
    }
#endif
    return aligned_memory(bytes);
  }

  void give(void* memory, uint64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    if (bytes >= LEAST) {
      const Lock lock(mutex_);
      if (kept_ + bytes <= MOST && spares_.size() < spares_.capacity()) {
        spares_.push_back({memory, bytes});
        kept_ += bytes;
        return;
      }
    }
#endif
    (void)bytes;
    free_aligned(memory);
  }

 private:
  static constexpr uint64_t LEAST = 32 << 10, MOST = 32 << 20;
  struct Spare {
    void* memory;
    uint64_t bytes;
  };
  SpareMemory() { spares_.reserve(64); }

  Mutex mutex_;
  std::vector<Spare> spares_;
  uint64_t kept_ = 0;
};

// A buffer that grows and is reused. What was in it is lost when it grows.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { release(); }

  // Room for a * b * c values.
  T* get(uint64_t a, uint64_t b = 1, uint64_t c = 1) {
    const uint64_t count = checked_mul(checked_mul(a, b), c);
    if (count > size_) {
      uint64_t bytes = checked_mul(count, sizeof(T));
      release();
      memory_ = static_cast<T*>(SpareMemory::all().take(bytes));
      size_ = static_cast<size_t>(bytes / sizeof(T));
    }
    return memory_;
  }
  T* data() { return memory_; }

 private:
  void swap(Buffer& other) {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
  }
  void release() {
    if (memory_ != nullptr) SpareMemory::all().give(memory_, uint64_t(size_) * sizeof(T));
    memory_ = nullptr;
    size_ = 0;
  }
  T* memory_ = nullptr;
  size_t size_ = 0;
};

// Bytes that arrive piece by piece. Memory is taken as they come, not as a header promises them.
class GrowingBytes {
 public:
  GrowingBytes() = default;
  GrowingBytes(GrowingBytes&& other) noexcept { swap(other); }
  GrowingBytes& operator=(GrowingBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GrowingBytes() { free_aligned(memory_); }

  void append(const uint8_t* data, size_t count, uint64_t expected) {
    const uint64_t needed = checked_add(size_, count);
    if (needed > capacity_) {
      uint64_t larger = needed > 2 * uint64_t(capacity_) ? needed : 2 * uint64_t(capacity_);
      if (larger > expected && needed <= expected) larger = expected;
      uint8_t* moved = static_cast<uint8_t*>(aligned_memory(larger));
      if (size_) std::memcpy(moved, memory_, size_);
      free_aligned(memory_);
      memory_ = moved;
      capacity_ = static_cast<size_t>(larger);
    }
    if (count) std::memcpy(memory_ + size_, data, count);
    size_ += count;
  }
  const uint8_t* data() const { return memory_; }
  size_t size() const { return size_; }

 private:
  void swap(GrowingBytes& other) {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  uint8_t* memory_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace anydepth
