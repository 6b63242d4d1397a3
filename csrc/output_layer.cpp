// What may be generated, and the best of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "search.h"

namespace anydepth {

Outputs::Outputs(const Model& model, const int32_t* sources, int count) : matrix_(nullptr), first_(0), count_(0) {
  const Shortlist& list = model.shortlist;
  std::vector<bool> there(model.vocabulary);
  there[EOS] = true;
  for (const int32_t token : list.always) there[token] = true;
  for (int i = 0; i < count; ++i) there[sources[i]] = true;  // names are copied
  for (int i = 0; i < count; ++i)
    for (int j = list.offsets[sources[i]]; j < list.offsets[sources[i] + 1]; ++j) there[list.outputs[j]] = true;
  for (int token = EOS; token < model.vocabulary; ++token)
    if (there[token]) tokens_.push_back(token);
  count_ = static_cast<int>(tokens_.size());

  // Their rows of the matrix, packed anew: four bytes at a time.
  const Matrix& whole = model.output;
  own_ = std::make_shared<Matrix>(whole);
  own_->outputs = count_, own_->blocks = padded(count_) / TILE;
  tiles_ = std::make_shared<Buffer<int8_t>>();
  int8_t* tiles = tiles_->get(own_->bytes());
  for (auto* each : {&scales_, &sums_, &bias_}) each->assign(own_->blocks * TILE, 0.0f);
  for (int o = 0; o < own_->blocks * TILE; ++o) {
    const int from = tokens_[std::min(o, count_ - 1)];
    const int8_t* row = whole.tiles + size_t(from / TILE) * whole.quads * TILE * QUAD + (from % TILE) * QUAD;
    int8_t* to = tiles + size_t(o / TILE) * whole.quads * TILE * QUAD + (o % TILE) * QUAD;
    for (int quad = 0; quad < whole.quads; ++quad)
      __builtin_memcpy(to + size_t(quad) * TILE * QUAD, row + size_t(quad) * TILE * QUAD, QUAD);
    scales_[o] = whole.scales[from], sums_[o] = whole.sums[from], bias_[o] = whole.bias[from];
  }
  own_->tiles = tiles, own_->scales = scales_.data(), own_->sums = sums_.data(), own_->bias = bias_.data();
  matrix_ = own_.get();
}

Best best_of(const Kernels& kernels, const Outputs& outputs, const float* logits, bool may_end, bool score, bool margin) {
  const int from = outputs.first() + (may_end || outputs.count() - outputs.first() < 2 ? 0 : 1);
  const int place = from + kernels.argmax(logits + from, outputs.count() - from);
  Best best{outputs.token(place), std::numeric_limits<float>::quiet_NaN(), 0.0f};
  if (score)
    best.log_probability = logits[place] - kernels.log_sum_exp(logits + outputs.first(), outputs.count() - outputs.first());
  if (margin) {
    float second = -std::numeric_limits<float>::infinity();
    for (int i = kernels.next_above(logits, from, outputs.count(), logits[place] - 8.0f); i < outputs.count();
         i = kernels.next_above(logits, i + 1, outputs.count(), std::max(second, logits[place] - 8.0f)))
      if (i != place) second = logits[i];
    best.margin = std::isinf(second) ? 8.0f : logits[place] - second;
  }
  return best;
}

float length_penalty(int length, float alpha) { return std::pow((5.0f + static_cast<float>(length)) / 6.0f, alpha); }

}  // namespace anydepth
