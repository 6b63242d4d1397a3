// Search: from sources to the best outputs. As the search of infer/ does it, with the same limits, penalties and ties.
#pragma once

#include <atomic>
#include <vector>

#include "run.h"

namespace anydepth {

constexpr int LONGEST_DRAFT = 8;  // tokens in a pass

struct Options {
  int beam = 1, nbest = 1;
  float length_penalty = 0.6f;
  int min_length = 1;
  bool scores = true;
  bool shortlist = false;  // search among the outputs that the sources suggest
  int draft_layers = 0;    // of the decoder, which draft for all of it; 0: no speculation
  int draft_length = 0;    // always so many tokens in a pass; 0: as many as pay
};

struct Candidate {
  std::vector<int32_t> tokens;  // without BOS and EOS
  float score;                  // not a number if it was not asked for
  bool ended;
};

// How drafting goes, over all sentences of a model: of each depth how often a token of a pass is followed by another.
struct Acceptance {
  Acceptance() {
    for (auto& one : rates) one = 0.8f;
  }
  std::atomic<float>& rate(int layers, int draft_layers) { return rates[(layers * 31 + draft_layers) % 256]; }

  std::atomic<float> rates[256];
  std::atomic<int64_t> drafted{0}, accepted{0}, passes{0}, tokens{0};
};

using Found = std::vector<std::vector<Candidate>>;  // the best of each sentence

Found search(const Model& model, const SubNetwork& sub, const Sources& sources, const std::vector<int32_t>& limits,
             const Options& options, Acceptance& acceptance);

// The best output at a position. Its log-probability is over everything that may be generated.
struct Best {
  int token;
  float log_probability;
  float margin;  // to the second best, if it was asked for
};
Best best_of(const Kernels& kernels, const Outputs& outputs, const float* logits, bool may_end, bool score, bool margin = false);

float length_penalty(int length, float alpha);

std::vector<Candidate> speculate(const Model& model, const SubNetwork& sub, Runner& runner, const Outputs& outputs,
                                 const Outputs& draft_outputs, int limit, const Options& options, Acceptance& acceptance);

}  // namespace anydepth
