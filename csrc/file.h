// The container of a model: a header with the table of all sections, and the sections (docs/reference/file-format.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "buffer.h"

namespace anydepth {

constexpr size_t PREAMBLE = 64;  // bytes that say how long the header is

enum class SectionKind : uint32_t {
  tokenizer = 1,
  embeddings = 2,
  output = 3,
  shortlist = 4,
  encoder_layer = 5,
  decoder_layer = 6,
  word_depths = 7,
};

struct SectionInfo {
  SectionKind kind;  // a reader leaves out those that it does not know
  uint32_t index;    // of a layer
  uint64_t offset, size;
  uint32_t checksum;
};

struct Header {
  uint64_t file_size = 0;
  std::vector<SectionInfo> sections;  // in the order of the file
  std::string json;
};

// The size of a header, from its first PREAMBLE bytes.
uint64_t header_size(const uint8_t* data, size_t size);
Header read_header(const uint8_t* data, size_t size);

uint32_t crc32(const uint8_t* data, size_t size);  // as zlib has it

// A file in memory, shared with other processes that map it, where the system can do that.
class MappedFile {
 public:
  explicit MappedFile(const char* path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  GrowingBytes copy_;  // where it cannot be mapped
};

// Reads the arrays of a section one after the other, each from a multiple of LINE on.
class SectionReader {
 public:
  SectionReader(const uint8_t* data, uint64_t size) : data_(data), size_(size) {}

  template <class T>
  const T* take(uint64_t a, uint64_t b = 1) {
    return reinterpret_cast<const T*>(bytes(checked_mul(checked_mul(a, b), sizeof(T))));
  }
  const float* floats(uint64_t count);  // all of them finite
  void end() const;                     // refuses what is left over

 private:
  const uint8_t* bytes(uint64_t count);
  const uint8_t* data_;
  uint64_t size_, at_ = 0;
};

}  // namespace anydepth
