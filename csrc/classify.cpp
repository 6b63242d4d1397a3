#include "classify.h"

#include <algorithm>
#include <cmath>

namespace anydepth {

namespace {

class Classifying : public EncoderObserver {
 public:
  Classifying(const Model& model, const SubNetwork& sub, const SourceBatch& sources, const ClassifyOptions& options)
      : model_(model), options_(options), layers_(static_cast<int>(sub.encoder.size())), width_(padded(model.width)) {
    sources_ = sources;
    if (sources_.depths.empty()) sources_.depths.assign(sources_.tokens.size(), layers_);
    for (int32_t& depth : sources_.depths) depth = std::min(std::max(depth, 0), layers_);
    const size_t texts = sources_.sentences();
    found_.probabilities.resize(texts * model.classes);
    left_.resize(texts), classes_.assign(texts, -1), alike_.resize(texts);
    pooled_.resize(2 * size_t(model.width));
    logits_.resize(std::max<size_t>(model.classes, model.encoder.pattern.size()));
  }

  const SourceBatch& sources() const { return sources_; }
  Classified result() {
    found_.depths = std::move(sources_.depths);
    return std::move(found_);
  }

  void after_layer(int layers, const float* x, int from, int to) override {
    const int begin = sources_.starts[from];
    if (layers == 1 && options_.halting_scale > 0.0f)
      for (int i = begin; i < sources_.starts[to]; ++i) sources_.depths[i] = halts(x + (i - begin) * width_);
    const std::vector<int>& exits = options_.rule.exits;
    const bool last = layers == layers_;
    if (!last && std::find(exits.begin(), exits.end(), layers) == exits.end()) return;
    for (int text = from; text < to; ++text) {
      if (left_[text]) continue;
      const int start = sources_.starts[text], end = sources_.starts[text + 1];
      left_[text] = is_sure(text, probabilities(text, x + (start - begin) * width_, end - start)) || last;
      for (int i = start; left_[text] && i < end; ++i)
        sources_.depths[i] = std::min<int32_t>(sources_.depths[i], layers);
    }
  }

 private:
  // Of a text's states: the largest and the mean of each feature over its tokens, where they are positive, through the
  // output layer, which is in float.
  const float* probabilities(int text, const float* x, int tokens) {
    const Kernels& kernels = *model_.kernels;
    const int d = model_.width;
    const Norm& norm = model_.encoder.final_norm;
    float* row = row_.get(width_);
    float *largest = pooled_.data(), *mean = largest + d;
    std::fill(mean, mean + d, 0.0f);
    for (int t = 0; t < tokens; ++t) {
      const float* state = x + t * width_;
      if (norm.weight) {
        kernels.normalize(state, d, norm.weight, norm.bias, model_.epsilon, row);
        state = row;
      }
      if (t == 0) std::copy(state, state + d, largest);
      for (int i = 0; i < d; ++i) {
        largest[i] = std::max(largest[i], state[i]);
        mean[i] += state[i];
      }
    }
    for (int i = 0; i < d; ++i) {
      largest[i] = std::max(largest[i], 0.0f);
      mean[i] = std::max(mean[i] / static_cast<float>(tokens), 0.0f);
    }
    float* found = found_.probabilities.data() + size_t(text) * model_.classes;
    for (int c = 0; c < model_.classes; ++c)
      found[c] = kernels.dot(pooled_.data(), model_.class_weights + size_t(c) * 2 * d, 2 * d) + model_.class_bias[c];
    softmax(found, model_.classes);
    return found;
  }

  bool is_sure(int text, const float* probabilities) {
    const float* best = std::max_element(probabilities, probabilities + model_.classes);
    const int found = static_cast<int>(best - probabilities);
    alike_[text] = found == classes_[text] ? alike_[text] + 1 : 1;
    classes_[text] = found;
    const ExitRule& rule = options_.rule;
    return (rule.confidence > 0.0f && *best >= rule.confidence) || (rule.patience > 0 && alike_[text] >= rule.patience);
  }

  // As many layers as the halting unit is sure to suffice, given the output of the first.
  int halts(const float* x) {
    const int layers = static_cast<int>(model_.encoder.pattern.size());
    float* found = logits_.data();
    for (int i = 0; i < layers; ++i)
      found[i] = model_.kernels->dot(x, model_.halting_weights + size_t(i) * model_.width, model_.width) +
                 model_.halting_bias[i];
    int deep = static_cast<int>(std::max_element(found, found + layers) - found);
    if (model_.halting_confidence > 0.0f) {
      softmax(found, layers);
      float suffices = 0.0f;
      for (deep = 0; deep < layers - 1 && (suffices += found[deep]) < model_.halting_confidence;) ++deep;
    }
    const float wanted = std::ceil(static_cast<float>(deep + 1) * options_.halting_scale - 0.5f);
    return static_cast<int>(std::min(std::max(wanted, 1.0f), static_cast<float>(layers_)));
  }

  void softmax(float* x, int n) const {
    const float total = model_.kernels->log_sum_exp(x, n);
    for (int i = 0; i < n; ++i) x[i] = std::exp(x[i] - total);
  }

  const Model& model_;
  const ClassifyOptions& options_;
  const int layers_;
  const size_t width_;
  SourceBatch sources_;
  Classified found_;
  std::vector<bool> left_;
  std::vector<int> classes_, alike_;  // what each text was found to be, and at how many exits in a row
  std::vector<float> pooled_, logits_;
  Buffer<float> row_;
};

// A part of the texts for each thread.
Classified classify_in_parts(const Model& model, const SubNetwork& sub, const SourceBatch& sources,
                             const ClassifyOptions& options) {
  const int parts = options.team->size();
  ClassifyOptions alone = options;
  alone.team = nullptr;
  const std::vector<int> starts = sources.divide(parts);
  std::vector<Classified> found(parts);
  options.team->run_or_throw([&](int part) {
    if (starts[part] < starts[part + 1])
      found[part] = classify(model, sub, sources.between(starts[part], starts[part + 1]), alone);
  });
  Classified all;
  for (const Classified& part : found) {
    all.probabilities.insert(all.probabilities.end(), part.probabilities.begin(), part.probabilities.end());
    all.depths.insert(all.depths.end(), part.depths.begin(), part.depths.end());
  }
  return all;
}

}  // namespace

Classified classify(const Model& model, const SubNetwork& sub, const SourceBatch& sources,
                    const ClassifyOptions& options) {
  if (options.team != nullptr && sources.sentences() >= 2 * options.team->size())
    return classify_in_parts(model, sub, sources, options);
  Runner runner(model, sub, options.stop, options.team);
  Classifying classifying(model, sub, sources, options);
  runner.encode(classifying.sources(), &classifying);
  return classifying.result();
}

}  // namespace anydepth
