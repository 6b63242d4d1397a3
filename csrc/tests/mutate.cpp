// Whatever the bytes of a file, opening refuses them or gives a model that runs: mutated and truncated files, opened by
// path (memory-mapped), from memory, and arriving piece by piece. Checksums are corrected, so that what is behind them
// is reached.
//   mutate FILE ROUNDS [SEED]      prints how many ran and how many were refused, and the longest time of one
// With -DANYDEPTH_LIBFUZZER it is a target of libFuzzer instead (fuzz.sh).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
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

// The same of a model that classifies.
bool classify(anydepth_model* model, int32_t classes) {
  const int32_t layers[] = {0, 1}, tokens[] = {4, 3, 2, 4, 3}, starts[] = {0, 2, 5}, depths[] = {1, 2, 0, 2, 1}, exits[] = {1, 2};
  std::vector<float> found(2 * static_cast<size_t>(classes));
  int32_t ran[5];
  bool any = false;
  for (int32_t deep = 1; deep <= 2; ++deep)
    for (int way = 0; way < 5; ++way) {
      const anydepth_subnetwork sub = {layers, nullptr, deep, nullptr, nullptr, 0};
      const anydepth_batch batch = {tokens, starts, way == 1 ? depths : nullptr, nullptr, 2};
      const anydepth_classify_options options = {exits, way == 2 || way == 3 ? deep : 0, way == 3 ? 2 : 0,
                                                 way == 2 ? 0.5f : 0.0f, way == 4 ? 1.5f : 0.0f, 20.0, nullptr};
      any = anydepth_classify(model, &sub, &batch, &options, found.data(), ran) == ANYDEPTH_OK || any;
    }
  return any;
}

// True if it could do anything.
bool run(anydepth_model* model) {
  const int32_t classes = anydepth_classes(model);
  if (classes > 0) return classify(model, classes);
  const int32_t layers[] = {0, 1}, tokens[] = {4, 3, 2, 4, 3}, starts[] = {0, 2, 5}, limits[] = {3, 2};
  int32_t found[2 * 2 * 3], lengths[4], ended[4];
  float scores[4];
  bool ran = false;
  for (int32_t deep = 1; deep <= 2; ++deep)
    for (int32_t beam = 1; beam <= 2; ++beam) {
      const anydepth_subnetwork sub = {layers, nullptr, deep, layers, nullptr, deep};
      const anydepth_batch batch = {tokens, starts, nullptr, limits, 2};
      const int32_t exits[] = {1};
      const anydepth_options options = {beam, beam, 1, 1, anydepth_has_shortlist(model) && beam == 1, 0, 0, 0.6f, 20.0, nullptr,
                                        exits, 1, beam == 1 ? ANYDEPTH_EXIT_NONE : ANYDEPTH_EXIT_CONFIDENCE, 0.5f};
      anydepth_results results = {found, lengths, ended, scores, nullptr};
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

// A file that is there as long as the program runs.
class TemporaryFile {
 public:
  TemporaryFile()
      : path_(std::filesystem::temp_directory_path() / ("anydepth-" + std::to_string(std::random_device()()))) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string write(const Bytes& bytes) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) std::abort();
    return path_.string();
  }

 private:
  std::filesystem::path path_;
};

enum class Opening { by_path, from_memory, in_pieces };
constexpr Opening OPENINGS[] = {Opening::by_path, Opening::from_memory, Opening::in_pieces};

anydepth_model* open(const Bytes& bytes, Opening how, uint32_t piece, const char* kernels) {
  static const TemporaryFile file;
  if (how == Opening::by_path) return anydepth_open(file.write(bytes).c_str(), kernels);
  if (how == Opening::from_memory) return anydepth_load(bytes.data(), bytes.size(), kernels);
  anydepth_model* model = anydepth_begin(kernels);
  for (size_t at = 0; model != nullptr && at < bytes.size(); at += piece) {
    const size_t count = std::min<size_t>(piece, bytes.size() - at);
    const Bytes part(bytes.begin() + at, bytes.begin() + at + count);  // so that reading past its end is found
    if (anydepth_append(model, part.data(), part.size()) != ANYDEPTH_OK) break;
  }
  return model;
}

bool open_and_run(const Bytes& bytes, Opening how, uint32_t piece) {
  for (const char* kernels : {"plain", static_cast<const char*>(nullptr)}) {
    anydepth_model* model = open(bytes, how, piece, kernels);
    if (model == nullptr) return false;
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
  open_and_run(bytes, OPENINGS[data[0] % 3], 1u + (data[0] / 3) * 37u);
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
  const uint32_t sections = read32(whole, 32);
  const uint32_t largest_piece = static_cast<uint32_t>(std::max<size_t>(3000, whole.size() / 16));
  for (const Opening how : OPENINGS)
    if (!open_and_run(whole, how, largest_piece)) {
      std::printf("the file does not run: %s\n", anydepth_error());
      return 1;
    }
  // Every section as often, however small it is; and in each its start, where the sizes are, as often as the rest.
  const auto in_a_section = [&] {
    const size_t entry = 64 + 32 * below(sections);
    const size_t offset = static_cast<size_t>(read64(whole, entry + 8)), size = static_cast<size_t>(read64(whole, entry + 16));
    return offset + (size == 0 ? 0 : below(below(2) ? std::min<size_t>(size, 256) : size));
  };
  long ran = 0, refused = 0;
  double slowest = 0;
  const auto attempt = [&](const Bytes& bytes, Opening how, uint32_t piece) {
    const auto began = std::chrono::steady_clock::now();
    ++(open_and_run(bytes, how, piece) ? ran : refused);
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  };
  for (long round = 0; round < rounds; ++round) {
    Bytes bytes = whole;
    const uint8_t usual[] = {0, 1, 0x7F, 0x80, 0xFF, '9', '-', '[', '"', 'e'};
    for (size_t changes = 1 + below(round % 4 ? 2 : 8); changes > 0; --changes) {
      const size_t chosen = below(4) ? below(2) ? 12 + below(header - 12) : in_a_section() : below(bytes.size());
      const size_t where = std::min(chosen, bytes.size() - 1);
      const uint8_t value = below(2) ? usual[below(sizeof usual)] : static_cast<uint8_t>(random());
      bytes[where] = value;
      if (below(8) == 0)  // a whole number of the table or the preamble
        for (size_t i = 1; i < 8 && where + i < bytes.size(); ++i) bytes[where + i] = below(2) ? 0xFF : 0;
    }
    if (below(4) == 0) bytes.resize(1 + below(bytes.size()));
    if (below(8)) correct_checksums(bytes);
    attempt(bytes, OPENINGS[round % 3], static_cast<uint32_t>(1 + below(largest_piece)));
  }
  // Every prefix that ends near the end of a section.
  for (uint32_t i = 0; i < sections; ++i)
    for (int off = -1; off <= 1; ++off) {
      const size_t end = static_cast<size_t>(read64(whole, 64 + 32 * i + 8) + read64(whole, 64 + 32 * i + 16)) + off;
      const Bytes prefix(whole.begin(), whole.begin() + std::min(end, whole.size()));
      for (const Opening how : OPENINGS) attempt(prefix, how, largest_piece / 4);
    }
  std::printf("%ld ran, %ld were refused, the slowest took %.3f s\n", ran, refused, slowest);
  return 0;
}

#endif
