// For libFuzzer: whatever the bytes, loading refuses them or gives a model that runs. The checksum is corrected, so that
// the rest of the reader is reached.
#include <cstring>
#include <vector>

#include "anydepth.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 16 || size > 1 << 20) return 0;
  std::vector<uint8_t> bytes(data, data + size);
  std::memcpy(bytes.data(), "ANYDEPTH", 8);
  uint32_t c = 0xFFFFFFFFu;
  for (size_t i = 0; i + 4 < size; ++i) {
    c ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
  }
  c ^= 0xFFFFFFFFu;
  std::memcpy(bytes.data() + size - 4, &c, 4);
  for (const char* kernels : {"plain", static_cast<const char*>(nullptr)}) {
    anydepth_model* model = anydepth_load(bytes.data(), bytes.size(), kernels);
    if (model == nullptr) return 0;
    const int32_t layers[] = {0, 1}, tokens[] = {4, 3, 2, 4, 3}, starts[] = {0, 2, 5}, limits[] = {3, 2};
    int32_t found[2 * 2 * 3], lengths[4], ended[4];
    float scores[4];
    for (int32_t deep = 1; deep <= 2; ++deep)
      for (int32_t beam = 1; beam <= 2; ++beam) {
        const anydepth_subnetwork sub = {layers, nullptr, deep, layers, nullptr, deep};
        const anydepth_batch batch = {tokens, starts, nullptr, limits, 2};
        const anydepth_options options = {beam, beam, 1, 1, 0, 0, 0, 0.6f};
        anydepth_results results = {found, lengths, ended, scores};
        anydepth_search(model, &sub, &batch, &options, &results);
      }
    anydepth_free(model);
  }
  return 0;
}
