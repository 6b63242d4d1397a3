#include "run.h"

#include <algorithm>
#include <cstring>

namespace anydepth {

namespace {

constexpr int CHUNK_ROWS = 384;  // of source sentences: few enough to stay in the processor's caches
constexpr float CLOSE = 0.02f;   // to the best logit, of the range of all: a few times the error of int8; these are
                                 // computed again in float
constexpr size_t MOST_RESCORED = 32;
constexpr float DENSE_EPSILON = 1e-5f;  // of the norms of dense connections
constexpr size_t MOST_PAST = 4096;      // rows that dense connections reserve at first

}  // namespace

void KVCache::make_room(int position, int slots) {
  while (static_cast<int>(blocks_.size()) <= position) {
    blocks_.emplace_back();
    slots_.push_back(0);
  }
  slots_[position] = slots;
  blocks_[position].get(applications_, slots, row_);
}

Runner::Runner(const Model& model, const SubNetwork& sub, const StopConditions& stop)
    : model_(model),
      kernels_(*model.kernels),
      sub_(sub),
      stop_(stop),
      width_(padded(model.width)),
      memory_key_value_(model.decoder.own.size()),
      memory_keys_(model.decoder.own.size()) {}

void Runner::embed(const EmbeddingTable& table, int token, int position, float* x) const {
  model_.embedding(table, token, x);
  const float* position_embedding = model_.position_embeddings + size_t(position) * width_;
  for (int i = 0; i < model_.width; ++i) x[i] = x[i] * model_.embedding_scale + position_embedding[i];
  std::fill(x + model_.width, x + width_, 0.0f);
  const Norm& norm = model_.embedding_norm;
  if (norm.weight) kernels_.normalize(x, model_.width, norm.weight, norm.bias, model_.epsilon, x);
}

void Runner::project(const PackedMatrix& w, const float* x, size_t stride, int rows, const GemmOutput& target) {
  const int n = w.inputs, wide = padded(w.inputs, 64);
  int8_t* q = quantized_.get(2, rows, wide);
  float* scales = scales_.get(2, rows);
  float* zero_points = scales + rows;
  int32_t* sums = sums_.get(rows);
  for (int r = 0; r < rows; ++r)
    kernels_.quantize(x + r * stride, n, q + size_t(r) * wide, scales + r, zero_points + r, sums + r);
  kernels_.gemm(w, {q, wide, scales, zero_points, sums, q + size_t(rows) * wide}, rows, target);
}

const float* Runner::layer_norm(const Norm& norm, const float* x, int rows) {
  if (!norm.weight) return x;
  float* out = normed_.get(rows, width_);
  for (int r = 0; r < rows; ++r)
    kernels_.normalize(x + r * width_, model_.width, norm.weight, norm.bias, model_.epsilon, out + r * width_);
  return out;
}

void Runner::add_projection(const PackedMatrix& w, const float* branch, size_t stride, Rows x, float weight,
                            const Norm& after) {
  project(w, branch, stride, x.count, {x.x, width_, Epilogue::add, weight});
  if (after.weight)
    for (int r = 0; r < x.count; ++r) {
      float* row = x.x + r * width_;
      kernels_.normalize(row, model_.width, after.weight, after.bias, model_.epsilon, row);
    }
}

void Runner::feed_forward(const Layer& l, Rows x, float weight) {
  const size_t wide = padded(model_.ffn);
  float* hidden = hidden_.get(x.count, wide);
  const bool relu = model_.activation == Activation::relu;
  project(l.up, layer_norm(pre_norm(l.ffn_norm), x.x, x.count), width_, x.count,
          {hidden, wide, relu ? Epilogue::relu : Epilogue::store});
  if (!relu)
    for (int r = 0; r < x.count; ++r)
      kernels_.gelu(hidden + r * wide, static_cast<int>(wide), model_.activation == Activation::gelu_tanh);
  add_projection(l.down, hidden, wide, x, weight, post_norm(l.ffn_norm));
}

// Dense connections (DLCL) after layer k - 1, or of the embeddings at k = 0: a weighted sum of all normalized outputs
// so far.
void Runner::dense(const Stack& stack, const std::vector<int>& ran, int k, float* x, int rows, int at,
                   std::vector<Buffer<float>>& past) {
  if (!stack.dense) return;
  if (past.size() != stack.dense->rows.size()) past = std::vector<Buffer<float>>(stack.dense->rows.size());
  const size_t room = std::max<size_t>(at + rows, past[k].data() ? 0 : MOST_PAST);
  const Norm& norm = stack.dense->norms[k];
  float* own = past[k].get(room, width_) + at * width_;
  for (int r = 0; r < rows; ++r)
    kernels_.normalize(x + r * width_, model_.width, norm.weight, norm.bias, DENSE_EPSILON, own + r * width_);
  const auto add = [&](int j, bool first) {
    const float share = stack.dense->rows[k][j];
    const float* y = past[j].data() + at * width_;
    for (size_t i = 0; i < rows * width_; ++i) x[i] = first ? share * y[i] : x[i] + share * y[i];
  };
  add(0, true);
  for (const int index : ran)
    if (index < k) add(index + 1, false);
}

void Runner::encode(const SourceBatch& sources) {
  starts_.assign(sources.starts.begin(), sources.starts.end());
  key_starts_.assign(1, 0);
  for (int sentence = 0; sentence < sources.sentences(); ++sentence)
    key_starts_.push_back(key_starts_.back() + padded(starts_[sentence + 1] - starts_[sentence]));
  const int all = starts_.back();
  float* memory = memory_.get(all, width_);
  for (int from = 0; from < sources.sentences();) {
    int to = from + 1;
    while (to < sources.sentences() && starts_[to + 1] - starts_[from] <= CHUNK_ROWS) ++to;
    encode_chunk(sources, from, to, memory + starts_[from] * width_);
    from = to;
  }
  const size_t wide = padded(2 * model_.width);
  std::vector<bool> ready(model_.decoder.own.size());
  for (const int index : sub_.decoder) {
    const int own = model_.decoder.pattern[index];
    if (ready[own]) continue;
    ready[own] = true;
    float* key_value = memory_key_value_[own].get(all, wide);
    for (int row = 0; row < all; row += CHUNK_ROWS) {
      const int count = std::min(CHUNK_ROWS, all - row);
      project(model_.decoder.own[own].cross_key_value, memory + row * width_, width_, count,
              {key_value + row * wide, wide});
    }
    float* keys = memory_keys_[own].get(key_starts_.back(), model_.width);
    for (int sentence = 0; sentence < sources.sentences(); ++sentence) {
      const int length = starts_[sentence + 1] - starts_[sentence];
      const AttentionShape shape = attention_shape(length);
      kernels_.transpose_keys(key_value + starts_[sentence] * wide, wide, length, shape.heads, shape.e,
                              keys + key_starts_[sentence] * model_.width);
    }
  }
}

void Runner::encode_chunk(const SourceBatch& sources, int from, int to, float* memory) {
  const Stack& stack = model_.encoder;
  const int begin = starts_[from], rows = starts_[to] - begin;
  float* x = states_.get(rows, width_);
  for (int sentence = from; sentence < to; ++sentence)
    for (int i = starts_[sentence]; i < starts_[sentence + 1]; ++i)
      embed(model_.source, sources.tokens[i], i - starts_[sentence], x + (i - begin) * width_);
  dense(stack, sub_.encoder, 0, x, rows, 0, encoder_past_);
  for (size_t step = 0; step < sub_.encoder.size(); ++step) {
    stop_.check();
    const int index = sub_.encoder[step];
    const float own = weight(stack, index, sub_.encoder_weights[step]);
    encoder_layer(layer(stack, index), own, sources, from, to, x, static_cast<int>(step));
    dense(stack, sub_.encoder, index + 1, x, rows, 0, encoder_past_);
  }
  std::memcpy(memory, layer_norm(stack.final_norm, x, rows), rows * width_ * sizeof(float));
}

// A token that has reached its depth keeps its state; others still attend to it.
void Runner::encoder_layer(const Layer& l, float weight, const SourceBatch& sources, int from, int to, float* x,
                           int step) {
  const int d = model_.width, begin = starts_[from], rows = starts_[to] - begin;
  const size_t wide = padded(3 * d);
  active_rows_.clear();
  for (int r = 0; r < rows; ++r)
    if (sources.depths.empty() || sources.depths[begin + r] > step) active_rows_.push_back(r);
  const int count = static_cast<int>(active_rows_.size());
  if (count == 0) return;
  const bool all = count == rows;
  float* qkv = qkv_.get(rows, wide);
  project(l.qkv, layer_norm(pre_norm(l.attention_norm), x, rows), width_, rows, {qkv, wide});
  float* context = mixed_.get(count, width_);
  std::memset(context, 0, count * width_ * sizeof(float));
  int done = 0;
  for (int sentence = from; sentence < to; ++sentence) {
    const int first = starts_[sentence] - begin, length = starts_[sentence + 1] - starts_[sentence];
    const AttentionShape shape = attention_shape(length);
    const float* key = qkv + first * wide + d;
    float* keys = keys_.get(d, padded(length));
    kernels_.transpose_keys(key, wide, length, shape.heads, shape.e, keys);
    float* scores = scores_.get(shape.scores());
    const auto attend_rows = [&](int row, int queries) {
      kernels_.attend(qkv + row * wide, wide, queries, keys, key + d, wide, shape, scores, context + done * width_,
                      width_);
      done += queries;
    };
    if (all)
      attend_rows(first, length);
    else
      while (done < count && active_rows_[done] < first + length) attend_rows(active_rows_[done], 1);
  }
  float* own = x;
  if (!all) {
    own = active_.get(count, width_);
    for (int r = 0; r < count; ++r) std::memcpy(own + r * width_, x + active_rows_[r] * width_, width_ * sizeof(float));
  }
  add_projection(l.attention_out, context, width_, {own, count}, weight, post_norm(l.attention_norm));
  feed_forward(l, {own, count}, weight);
  if (!all)
    for (int r = 0; r < count; ++r) std::memcpy(x + active_rows_[r] * width_, own + r * width_, width_ * sizeof(float));
}

void Runner::decode(const std::vector<Row>& rows, KVCache& cache, int first, int last, int at) {
  const Stack& stack = model_.decoder;
  const int d = model_.width, count = static_cast<int>(rows.size());
  const size_t wide = padded(3 * d), memory_wide = padded(2 * d);
  float* x = states_.data() + at * width_;
  if (first == 0) {
    for (int r = 0; r < count; ++r) embed(model_.target, rows[r].token, rows[r].position(), x + r * width_);
    dense(stack, sub_.decoder, 0, x, count, at, decoder_past_);
  }
  for (int step = first; step < last; ++step) {
    stop_.check();
    const int index = sub_.decoder[step];
    const Layer& l = layer(stack, index);
    const float own = weight(stack, index, sub_.decoder_weights[step]);

    float* qkv = qkv_.get(count, wide);
    project(l.qkv, layer_norm(pre_norm(l.attention_norm), x, count), width_, count, {qkv, wide});
    float* context = mixed_.get(count, width_);
    std::memset(context, 0, count * width_ * sizeof(float));
    for (int r = 0; r < count; ++r)
      std::memcpy(cache.at(step, rows[r].position(), rows[r].slots->back()), qkv + r * wide + d, 2 * d * sizeof(float));
    for (int r = 0; r < count; ++r) {
      const int positions = rows[r].position() + 1;
      key_value_.clear();
      for (int p = 0; p < positions; ++p) key_value_.push_back(cache.at(step, p, (*rows[r].slots)[p]));
      const AttentionShape shape = attention_shape(positions);
      kernels_.attend_cached(qkv + r * wide, key_value_.data(), shape, scores_.get(shape.scores()),
                             context + r * width_);
    }
    add_projection(l.attention_out, context, width_, {x, count}, own, post_norm(l.attention_norm));

    float* query = qkv;
    project(l.cross_query, layer_norm(pre_norm(l.cross_norm), x, count), width_, count, {query, width_});
    for (int r = 0; r < count;) {
      const int sentence = rows[r].sentence, length = starts_[sentence + 1] - starts_[sentence];
      int together = 1;
      while (r + together < count && rows[r + together].sentence == sentence) ++together;
      const int set = stack.pattern[index];
      const float* values = memory_key_value_[set].data() + starts_[sentence] * memory_wide + d;
      const float* keys = memory_keys_[set].data() + key_starts_[sentence] * d;
      const AttentionShape shape = attention_shape(length);
      kernels_.attend(query + r * width_, width_, together, keys, values, memory_wide, shape,
                      scores_.get(shape.scores()), context + r * width_, width_);
      r += together;
    }
    add_projection(l.cross_out, context, width_, {x, count}, own, post_norm(l.cross_norm));

    feed_forward(l, {x, count}, own);
    dense(stack, sub_.decoder, index + 1, x, count, at, decoder_past_);
  }
}

const float* Runner::logits(const OutputLayer& outputs, int count, int at, bool rescored) {
  float* out = logits_.get(count, outputs.stride());
  const float* features = layer_norm(model_.decoder.final_norm, states_.data() + at * width_, count);
  project(outputs.matrix(), features, width_, count, {out, outputs.stride()});
  for (int r = 0; r < count && rescored; ++r) rescore(outputs, features + r * width_, out + r * outputs.stride());
  return out;
}

const std::vector<const float*>& Runner::logits(const OutputLayer& all,
                                                const std::vector<const OutputLayer*>& of_rows) {
  const int count = static_cast<int>(of_rows.size());
  float* out = logits_.get(count, all.stride());
  const float* features = layer_norm(model_.decoder.final_norm, states_.data(), count);
  project(all.matrix(), features, width_, count, {out, all.stride()});
  size_t total = 0;
  for (const OutputLayer* own : of_rows) total += own->stride();
  float* row = own_logits_.get(1, total);
  rows_.clear();
  for (int r = 0; r < count; ++r) {
    const OutputLayer& own = *of_rows[r];
    const float* from = out + r * all.stride();
    for (int i = 0; i < own.count(); ++i) row[i] = from[own.columns()[i]];
    rescore(own, features + r * width_, row);
    rows_.push_back(row);
    row += own.stride();
  }
  return rows_;
}

void Runner::rescore(const OutputLayer& outputs, const float* features, float* row) {
  const int from = outputs.first(), n = outputs.count();
  const float most = row[from + kernels_.argmax(row + from, n - from)];
  const float threshold = most - CLOSE * (most - kernels_.minimum(row + from, n - from));
  close_.clear();
  for (int i = kernels_.next_above(row, from, n, threshold); i < n; i = kernels_.next_above(row, i + 1, n, threshold))
    close_.push_back(i);
  if (close_.size() > MOST_RESCORED) {
    const auto better = [row](int a, int b) { return row[a] > row[b]; };
    std::nth_element(close_.begin(), close_.begin() + MOST_RESCORED, close_.end(), better);
    close_.resize(MOST_RESCORED);
  }
  float* weights = output_row_.get(width_);
  for (const int i : close_) {
    const int token = outputs.token(i);
    model_.output_row(token, weights);
    row[i] = kernels_.dot(features, weights, model_.width) + model_.output.bias[token];
  }
}

}  // namespace anydepth
