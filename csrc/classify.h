// Texts to classes: the encoder, exits of whole texts, a depth for each token, and the pooling head.
#pragma once

#include <vector>

#include "run.h"

namespace anydepth {

// When a whole text leaves the encoder early: at the first of `exits` (numbers of layers) where the most probable class
// has the probability `confidence`, or once `patience` exits in a row have found the same class.
struct ExitRule {
  std::vector<int> exits;
  float confidence = 0.0f;  // 0: not by that
  int patience = 0;         // 0: not by that
};

struct ClassifyOptions {
  ExitRule rule;
  float halting_scale = 0.0f;  // of the depths that the halting unit says; 0: all tokens run all layers
  StopConditions stop;
  Team* team = nullptr;  // threads that share the work: texts, or if there are too few, layers
};

struct Classified {
  std::vector<float> probabilities;  // [texts, classes]
  std::vector<int32_t> depths;       // how many layers each token ran
};

// `sources.depths` may say how many layers each token runs.
Classified classify(const Model& model, const SubNetwork& sub, const SourceBatch& sources,
                    const ClassifyOptions& options);

}  // namespace anydepth
