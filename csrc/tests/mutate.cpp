// Whatever the bytes of a file, opening refuses them or gives a model that runs: mutated and truncated files, mapped, in
// memory and arriving piece by piece. Checksums are corrected, so that what is behind them is reached.
//   mutate FILE ROUNDS [SEED]      prints how many ran and how many were refused
// With -DANYDEPTH_LIBFUZZER it is a target of libFuzzer instead (fuzz.sh).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "anydepth.h"
#include "file.h"

namespace {

using Bytes = std::vector<uint8_t>;

uint32_t read32(const Bytes& bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

uint64_t read64(const Bytes& bytes, size_t at) {
  uint64_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void correct_checksums(Bytes& bytes) {
  if (bytes.size() < anydepth::PREAMBLE) return;
  const uint64_t count = read32(bytes, 32), length = read64(bytes, 16);
  for (uint64_t i = 0; i < count && 64 + 32 * (i + 1) <= bytes.size(); ++i) {
    const size_t entry = static_cast<size_t>(64 + 32 * i);
    const uint64_t offset = read64(bytes, entry + 8), size = read64(bytes, entry + 16);
    if (offset > bytes.size() || size > bytes.size() - offset) continue;
    const uint32_t sum = anydepth::crc32(bytes.data() + offset, static_cast<size_t>(size));
    std::memcpy(bytes.data() + entry + 24, &sum, sizeof sum);
  }
  if (length < 16 || length > bytes.size()) return;
  const uint32_t sum = anydepth::crc32(bytes.data() + 16, static_cast<size_t>(length) - 16);
  std::memcpy(bytes.data() + 12, &sum, sizeof sum);
}

// True if it could do anything.
bool run(anydepth_model* model) {
  const int32_t layers[] = {0, 1}, tokens[] = {4, 3, 2, 4, 3}, starts[] = {0, 2, 5}, limits[] = {3, 2};
  int32_t found[2 * 2 * 3], lengths[4], ended[4];
  float scores[4];
  bool ran = false;
  for (int32_t deep = 1; deep <= 2; ++deep)
    for (int32_t beam = 1; beam <= 2; ++beam) {
      const anydepth_subnetwork sub = {layers, nullptr, deep, layers, nullptr, deep};
      const anydepth_batch batch = {tokens, starts, nullptr, limits, 2};
      const anydepth_options options = {beam, beam, 1, 1, anydepth_has_shortlist(model) && beam == 1, 0, 0, 0.6f, 20.0, nullptr};
      anydepth_results results = {found, lengths, ended, scores};
      ran = anydepth_search(model, &sub, &batch, &options, &results) == ANYDEPTH_OK || ran;
    }
  const char* texts[] = {"a b c", ""};
  anydepth_request request;
  anydepth_defaults(&request);
  request.max_length = 4;
  request.timeout = 20.0;
  anydepth_translations* made = anydepth_translate(model, texts, nullptr, 2, &request);
  anydepth_translations_free(made);
  const int32_t depths = anydepth_depths(model);
  for (int32_t i = 0; i < depths && i < 8; ++i) {
    anydepth_depth depth;
    anydepth_depth_at(model, i, &depth);
  }
  return ran || made != nullptr;
}

bool open_and_run(const Bytes& bytes, bool in_pieces, uint32_t piece) {
  for (const char* kernels : {"plain", static_cast<const char*>(nullptr)}) {
    anydepth_model* model = in_pieces ? anydepth_begin(kernels) : anydepth_load(bytes.data(), bytes.size(), kernels);
    if (model == nullptr) return false;
    bool refused = false;
    if (in_pieces)
      for (size_t at = 0; at < bytes.size() && !refused; at += piece) {
        const size_t count = std::min<size_t>(piece, bytes.size() - at);
        const Bytes part(bytes.begin() + at, bytes.begin() + at + count);  // so that reading past its end is found
        refused = anydepth_append(model, part.data(), part.size()) != ANYDEPTH_OK;
      }
    const bool ran = run(model);
    anydepth_free(model);
    if (!ran) return false;
  }
  return true;
}

}  // namespace

#if defined(ANYDEPTH_LIBFUZZER)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 80 || size > 1 << 20) return 0;
  Bytes bytes(data + 1, data + size);
  std::memcpy(bytes.data(), "ANYDEPTH\3\0\0\0", 12);
  correct_checksums(bytes);
  open_and_run(bytes, data[0] & 1, 1u + (data[0] >> 1) * 37u);
  return 0;
}

#else

int main(int count, char** arguments) {
  if (count < 3) return 2;
  std::ifstream file(arguments[1], std::ios::binary);
  const Bytes whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (whole.size() < 128) return 2;
  const long rounds = std::atol(arguments[2]);
  std::mt19937 random(count > 3 ? static_cast<uint32_t>(std::atol(arguments[3])) : 1u);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % static_cast<uint32_t>(n)); };
  const size_t header = static_cast<size_t>(read64(whole, 16));
  if (!open_and_run(whole, false, 0) || !open_and_run(whole, true, 1000)) {
    std::printf("the file does not run: %s\n", anydepth_error());
    return 1;
  }
  long ran = 0, refused = 0;
  for (long round = 0; round < rounds; ++round) {
    Bytes bytes = whole;
    const uint8_t usual[] = {0, 1, 0x7F, 0x80, 0xFF, '9', '-', '[', '"', 'e'};
    for (size_t changes = 1 + below(round % 4 ? 2 : 8); changes > 0; --changes) {
      const size_t where = below(3) ? 12 + below(header - 12) : below(bytes.size());
      const uint8_t value = below(2) ? usual[below(sizeof usual)] : static_cast<uint8_t>(random());
      bytes[where] = value;
      if (below(8) == 0)  // a whole number of the table or the preamble
        for (size_t i = 1; i < 8 && where + i < bytes.size(); ++i) bytes[where + i] = below(2) ? 0xFF : 0;
    }
    if (below(4) == 0) bytes.resize(1 + below(bytes.size()));
    if (below(8)) correct_checksums(bytes);
    const bool good = open_and_run(bytes, below(2) == 0, static_cast<uint32_t>(1 + below(3000)));
    ++(good ? ran : refused);
  }
  // Every prefix that ends near the end of a section.
  const uint32_t sections = read32(whole, 32);
  for (uint32_t i = 0; i < sections; ++i)
    for (int off = -1; off <= 1; ++off) {
      const size_t end = static_cast<size_t>(read64(whole, 64 + 32 * i + 8) + read64(whole, 64 + 32 * i + 16)) + off;
      const Bytes prefix(whole.begin(), whole.begin() + std::min(end, whole.size()));
      ++(open_and_run(prefix, true, 777) ? ran : refused);
    }
  std::printf("%ld ran, %ld were refused\n", ran, refused);
  return 0;
}

#endif
