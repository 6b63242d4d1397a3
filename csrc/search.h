// Greedy and beam search, with the limits, penalties and tie-breaking of the search in infer/.
#pragma once

#include <atomic>
#include <vector>

#include "run.h"

namespace anydepth {

constexpr int LONGEST_DRAFT = 8;  // tokens verified in a pass

// When a token leaves the decoder early, after as many layers as one of `exits`, which ascend: where the best logit is so
// far above the second (`margin`), the best token so probable (`confidence`), or the same at so many exits in a row
// (`patience`).
enum class ExitKind { none, margin, confidence, patience };
struct TokenExits {
  ExitKind kind = ExitKind::none;
  float value = 0.0f;
  std::vector<int> exits;
};

struct Options {
  int beam = 1, nbest = 1;
  float length_penalty = 0.6f;
  int min_length = 1;
  bool scores = true;
  bool shortlist = false;  // use the lexical shortlist
  int draft_layers = 0;    // decoder layers that draft; 0: no speculation
  int draft_length = 0;    // tokens per draft; 0: chosen by the acceptance rate
  TokenExits exits;        // not together with drafts
  StopConditions stop;
  Team* team = nullptr;  // threads that share the work: sentences, or if there are too few, layers
};

struct Candidate {
  std::vector<int32_t> tokens;  // without BOS and EOS
  float score;                  // NaN if scores were not asked for
  bool ended;
  float layers;  // of the decoder, the mean of its tokens, with EOS
};

// Of speculation, over all sentences of a model: for each depth the rate at which drafted tokens are accepted.
struct SpeculationStats {
  SpeculationStats() {
    for (auto& one : rates) one = 0.8f;
  }
  std::atomic<float>& rate(int layers, int draft_layers) { return rates[(layers * 31 + draft_layers) % 256]; }

  std::atomic<float> rates[256];
  std::atomic<int64_t> drafted{0}, accepted{0}, passes{0}, tokens{0};
};

using NBest = std::vector<std::vector<Candidate>>;  // of each sentence, best first

NBest search(const Model& model, const SubNetwork& sub, const SourceBatch& sources, const std::vector<int32_t>& limits,
             const Options& options, SpeculationStats& stats);

// The best token at a position. Its log-probability is over all tokens that may be generated.
struct TopToken {
  int token;
  float log_probability;
  float margin;  // over the second best, if asked for
};
TopToken find_top(const Kernels& kernels, const OutputLayer& outputs, const float* logits, bool may_end, bool score,
                  bool margin = false);

// Whether the best logit is at least so far above the second.
bool has_margin(const Kernels& kernels, const OutputLayer& outputs, const float* logits, bool may_end, float margin);

float length_penalty(int length, float alpha);

std::vector<Candidate> speculate(const Model& model, const SubNetwork& sub, Runner& runner, const OutputLayer& outputs,
                                 const OutputLayer& draft_outputs, int limit, const Options& options,
                                 SpeculationStats& stats);

}  // namespace anydepth
