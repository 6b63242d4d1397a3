// Shortlists packed for a sentence, and the best token of a row of logits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "search.h"

namespace anydepth {

std::vector<int32_t> shortlist_tokens(const Model& model, const int32_t* sources, int count) {
  const Shortlist& list = model.shortlist;
  std::vector<bool> there(model.vocabulary);
  there[EOS] = true;
  for (size_t i = 0; i < list.always_count; ++i) there[list.always[i]] = true;
  for (int i = 0; i < count; ++i) there[sources[i]] = true;  // names are often copied
  for (int i = 0; i < count; ++i)
    for (int j = list.offsets[sources[i]]; j < list.offsets[sources[i] + 1]; ++j) there[list.outputs[j]] = true;
  std::vector<int32_t> found;
  for (int token = EOS; token < model.vocabulary; ++token)
    if (there[token]) found.push_back(token);
  return found;
}

OutputLayer::OutputLayer(const OutputLayer& all, std::vector<int32_t> tokens)
    : matrix_(all.matrix_), first_(0), count_(static_cast<int>(tokens.size())), tokens_(std::move(tokens)) {
  int column = 0;
  for (const int32_t token : tokens_) {
    while (all.token(column) != token) ++column;
    columns_.push_back(column);
  }
}

OutputLayer::OutputLayer(const Model& model, std::vector<int32_t> tokens)
    : matrix_(nullptr), first_(0), count_(static_cast<int>(tokens.size())), tokens_(std::move(tokens)) {
  // Repack their rows of the matrix, four bytes at a time.
  const PackedMatrix& full = model.output;
  own_ = std::make_shared<PackedMatrix>(full);
  own_->outputs = count_, own_->blocks = padded(count_) / TILE;
  tiles_ = std::make_shared<Buffer<int8_t>>();
  int8_t* tiles = tiles_->get(own_->blocks, own_->quads, TILE * QUAD);
  for (auto* each : {&scales_, &sums_, &bias_}) each->assign(own_->blocks * TILE, 0.0f);
  for (int o = 0; o < own_->blocks * TILE; ++o) {
    const int from = tokens_[std::min(o, count_ - 1)];
    const int8_t* row = full.tiles + size_t(from / TILE) * full.quads * TILE * QUAD + (from % TILE) * QUAD;
    int8_t* to = tiles + size_t(o / TILE) * full.quads * TILE * QUAD + (o % TILE) * QUAD;
    for (int quad = 0; quad < full.quads; ++quad)
      std::memcpy(to + size_t(quad) * TILE * QUAD, row + size_t(quad) * TILE * QUAD, QUAD);
    scales_[o] = full.scales[from], sums_[o] = full.sums[from], bias_[o] = full.bias[from];
  }
  own_->tiles = tiles, own_->scales = scales_.data(), own_->sums = sums_.data(), own_->bias = bias_.data();
  matrix_ = own_.get();
}

TopToken find_top(const Kernels& kernels, const OutputLayer& outputs, const float* logits, bool may_end, bool score,
                  bool margin) {
  const int from = outputs.first() + (may_end || outputs.count() - outputs.first() < 2 ? 0 : 1);
  const int column = from + kernels.argmax(logits + from, outputs.count() - from);
  TopToken best{outputs.token(column), std::numeric_limits<float>::quiet_NaN(), 0.0f};
  if (score)
    best.log_probability =
        logits[column] - kernels.log_sum_exp(logits + outputs.first(), outputs.count() - outputs.first());
  if (margin) {
    float second = -std::numeric_limits<float>::infinity();
    for (int i = kernels.next_above(logits, from, outputs.count(), logits[column] - 8.0f); i < outputs.count();
         i = kernels.next_above(logits, i + 1, outputs.count(), std::max(second, logits[column] - 8.0f)))
      if (i != column) second = logits[i];
    best.margin = std::isinf(second) ? 8.0f : logits[column] - second;
  }
  return best;
}

bool has_margin(const Kernels& kernels, const OutputLayer& outputs, const float* logits, bool may_end, float margin) {
  const int from = outputs.first() + (may_end || outputs.count() - outputs.first() < 2 ? 0 : 1);
  const int best = from + kernels.argmax(logits + from, outputs.count() - from);
  int close = kernels.next_above(logits, from, outputs.count(), logits[best] - margin);
  if (close == best) close = kernels.next_above(logits, close + 1, outputs.count(), logits[best] - margin);
  return close >= outputs.count();
}

float length_penalty(int length, float alpha) { return std::pow((5.0f + static_cast<float>(length)) / 6.0f, alpha); }

}  // namespace anydepth
