// Runs a model through all of the C API and prints the outputs, to compare kernels and machines, and for sanitizers.
//   drive MODEL [KERNELS]
//
// The sources are random tokens. MODEL.sizes has three numbers: encoder layers, decoder layers, vocabulary.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "anydepth.h"

namespace {

std::vector<char> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Run {
  int encoder, decoder, beam, draft_layers, draft_length;
  bool shortlist;
  int exit_rule = ANYDEPTH_EXIT_NONE;
};

bool run(anydepth_model* model, const Run& asked, int vocabulary) {
  std::vector<int32_t> layers, tokens, starts = {0}, limits, depths;
  for (int i = 0; i < 64; ++i) layers.push_back(i);
  const int sentences = asked.draft_layers ? 1 : 5;
  uint32_t random = 12345;
  for (int s = 0; s < sentences; ++s) {
    const int length = 3 + 4 * s;
    for (int i = 0; i + 1 < length; ++i) {
      random = random * 1664525u + 1013904223u;
      tokens.push_back(4 + static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(vocabulary - 4)));
      depths.push_back(1 + i % asked.encoder);
    }
    tokens.push_back(3);
    depths.push_back(asked.encoder);
    starts.push_back(static_cast<int32_t>(tokens.size()));
    limits.push_back(6 + s);
  }
  const size_t rows = sentences * asked.beam, longest = limits.back();
  std::vector<int32_t> found(rows * longest), lengths(rows), ended(rows);
  std::vector<float> scores(rows), ran(rows);
  const std::vector<int32_t> exits(layers.begin() + 1, layers.end());
  const anydepth_subnetwork sub = {layers.data(), nullptr, asked.encoder, layers.data(), nullptr, asked.decoder};
  const anydepth_batch batch = {tokens.data(), starts.data(), asked.beam == 2 ? depths.data() : nullptr, limits.data(),
                                sentences};
  const anydepth_options options = {asked.beam,         asked.beam,         1,   1, asked.shortlist,
                                    asked.draft_layers, asked.draft_length, 0.6f, 0.0, nullptr,
                                    exits.data(),       asked.decoder,
                                    asked.exit_rule,    asked.exit_rule == ANYDEPTH_EXIT_PATIENCE ? 2.0f : 0.3f};
  anydepth_results results = {found.data(), lengths.data(), ended.data(), scores.data(), ran.data()};
  if (anydepth_search(model, &sub, &batch, &options, &results) != 0) {
    std::printf("refused: %s\n", anydepth_error());
    return false;
  }
  for (size_t row = 0; row < rows; ++row) {
    if (lengths[row] < 0) continue;
    std::printf("%d-%d beam %d draft %d%s, %zu:", asked.encoder, asked.decoder, asked.beam, asked.draft_layers,
                asked.shortlist ? " listed" : "", row);
    for (int i = 0; i < lengths[row]; ++i) std::printf(" %d", found[row * longest + i]);
    std::printf(" %s %.2f", ended[row] ? "ended" : "cut", scores[row]);
    if (asked.exit_rule) std::printf(" exit %d: %.2f layers", asked.exit_rule, ran[row]);
    std::printf("\n");
  }
  return true;
}

// Each text at full depth, with a depth for each token, with exits, and with the halting unit.
bool classify(anydepth_model* model, int layers, int vocabulary) {
  const int classes = anydepth_classes(model);
  std::vector<int32_t> chosen, tokens, starts = {0}, depths;
  for (int i = 0; i < layers; ++i) chosen.push_back(i);
  uint32_t random = 12345;
  for (int s = 0; s < 9; ++s) {
    for (int i = 0; i < 1 + 3 * s; ++i) {
      random = random * 1664525u + 1013904223u;
      tokens.push_back(3 + static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(vocabulary - 3)));
      depths.push_back(1 + static_cast<int32_t>((random >> 20) % static_cast<uint32_t>(layers)));
    }
    starts.push_back(static_cast<int32_t>(tokens.size()));
  }
  bool good = true;
  for (int way = 0; way < 5; ++way) {
    const anydepth_subnetwork sub = {chosen.data(), nullptr, layers, nullptr, nullptr, 0};
    const anydepth_batch batch = {tokens.data(), starts.data(), way == 1 ? depths.data() : nullptr, nullptr, 9};
    std::vector<int32_t> exits = {1, 2};
    exits.resize(way == 2 || way == 3 ? std::min(layers, 2) : 0);
    const anydepth_classify_options options = {exits.data(),          static_cast<int32_t>(exits.size()),
                                               way == 3 ? 2 : 0,      way == 2 ? 0.5f : 0.0f,
                                               way == 4 ? 1.0f : 0.0f, 0.0, nullptr};
    std::vector<float> found(9 * static_cast<size_t>(classes));
    std::vector<int32_t> ran(tokens.size());
    if (anydepth_classify(model, &sub, &batch, &options, found.data(), ran.data()) != 0) {
      std::printf("refused: %s\n", anydepth_error());
      good = false;
      continue;
    }
    for (size_t text = 0; text < 9; ++text) {
      std::printf("%d-0 way %d, %zu: %d layers", layers, way, text, ran[static_cast<size_t>(starts[text])]);
      for (int c = 0; c < classes; ++c) std::printf(" %.2f", found[text * static_cast<size_t>(classes) + c]);
      std::printf("\n");
    }
  }
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const std::string path = arguments[1];
  const std::vector<char> data = contents(path);
  int encoder = 0, decoder = 0, vocabulary = 0;
  std::ifstream(path + ".sizes") >> encoder >> decoder >> vocabulary;
  anydepth_model* model = anydepth_load(data.data(), data.size(), count > 2 ? arguments[2] : nullptr);
  if (model == nullptr) {
    std::printf("refused: %s\n", anydepth_error());
    return 1;
  }
  if (anydepth_classes(model) > 0) {
    bool all = true;
    for (int n = 1; n <= encoder; ++n) all = classify(model, n, vocabulary) && all;
    anydepth_free(model);
    return all ? 0 : 1;
  }
  std::vector<int32_t> offsets, outputs, always = {5, 6, 7};
  for (int i = 0; i <= vocabulary; ++i) offsets.push_back(2 * i);
  for (int i = 0; i < 2 * vocabulary; ++i) outputs.push_back((i * 7 + 4) % vocabulary);
  bool good = anydepth_set_shortlist(model, always.data(), always.size(), offsets.data(), outputs.data()) == 0;
  for (int n = 1; n <= encoder; ++n)
    for (int m = 1; m <= decoder; ++m)
      for (const bool listed : {false, true}) {
        for (const int beam : {1, 2, 4}) good = run(model, {n, m, beam, 0, 0, listed}, vocabulary) && good;
        if (m > 1) good = run(model, {n, m, 1, m - 1, 4, listed}, vocabulary) && good;
        for (int rule = ANYDEPTH_EXIT_MARGIN; m > 1 && rule <= ANYDEPTH_EXIT_PATIENCE; ++rule)
          for (const int beam : {1, 3}) good = run(model, {n, m, beam, 0, 0, listed, rule}, vocabulary) && good;
      }
  anydepth_free(model);
  return good ? 0 : 1;
}
