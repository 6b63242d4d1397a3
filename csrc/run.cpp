#include "run.h"

#include <algorithm>
#include <cstring>

namespace anydepth {

namespace {

constexpr int CHUNK_ROWS = 384;  // of source sentences: few enough to stay in the processor's caches
constexpr int HIDDEN_ROWS = 96;  // of the feed-forward layer at once: their hidden states stay in the second cache
constexpr int ROWS_OF_THREAD = 8;  // from so many on, threads share rows of a product; below, its outputs
constexpr float CLOSE = 0.02f;   // to the best logit, of the range of all: a few times the error of int8; these are
                                 // computed again in float
constexpr size_t MOST_RESCORED = 32;
constexpr float DENSE_EPSILON = 1e-5f;  // of the norms of dense connections
constexpr size_t MOST_PAST = 4096;      // rows that dense connections reserve at first

}  // namespace

SourceBatch SourceBatch::between(int from, int to) const {
  const int first = starts[from], last = starts[to];
  SourceBatch own;
  own.tokens.assign(tokens.begin() + first, tokens.begin() + last);
  for (int i = from; i <= to; ++i) own.starts.push_back(starts[i] - first);
  if (!depths.empty()) own.depths.assign(depths.begin() + first, depths.begin() + last);
  return own;
}

std::vector<int> SourceBatch::divide(int parts) const {
  std::vector<int> found(1, 0);
  for (int part = 1; part <= parts; ++part) {
    int to = found.back();
    while (to < sentences() && int64_t(starts[to]) * parts < int64_t(starts.back()) * part) ++to;
    found.push_back(part == parts ? sentences() : to);
  }
  return found;
}

void KVCache::make_room(int position, int slots) {
  while (static_cast<int>(blocks_.size()) <= position / BLOCK) {
    blocks_.emplace_back();
    slots_.push_back(slots);
    blocks_.back().get(applications_, slots, slot_);
    if (!exits_) continue;
    states_.emplace_back();
    states_.back().get(slots, BLOCK, width());
    filled_.emplace_back(size_t(slots) * BLOCK, 0);
  }
}

void KVCache::store(const Kernels& kernels, int application, int position, int slot, const float* key_value) {
  Half* to = at(application, position, slot);
  for (int part = 0; part < 2 * heads_; ++part)
    kernels.halve(key_value + size_t(part) * e_, e_, to + size_t(part) * BLOCK * e_);
}

Runner::Runner(const Model& model, const SubNetwork& sub, const StopConditions& stop, Team* team)
    : model_(model),
      kernels_(*model.kernels),
      sub_(sub),
      stop_(stop),
      team_(team),
      width_(padded(model.width)),
      memory_keys_(model.decoder.own.size()),
      memory_values_(model.decoder.own.size()) {}

void Runner::embed(const EmbeddingTable& table, int token, int position, float* x) const {
  model_.embedding(table, token, x);
  const float* position_embedding = model_.position_embedding(position);
  for (int i = 0; i < model_.width; ++i) x[i] = x[i] * model_.embedding_scale + position_embedding[i];
  std::fill(x + model_.width, x + width_, 0.0f);
  const Norm& norm = model_.embedding_norm;
  if (norm.weight) kernels_.normalize(x, model_.width, norm.weight, norm.bias, model_.epsilon, x);
}

void Runner::project(const PackedMatrix& w, const float* x, size_t stride, int rows, const GemmOutput& target) {
  const int n = w.inputs, wide = padded(w.inputs, 64);
  const uint64_t work = w.weights() * rows;
  const int parts = threads(work);
  int8_t* q = quantized_.get(1 + 2 * parts, rows, wide);
  int8_t* scratch = q + size_t(rows) * wide;
  float* scales = scales_.get(2, rows);
  float* zero_points = scales + rows;
  int32_t* sums = sums_.get(rows);
  const size_t unpacked = w.nibbles == nullptr ? 0 : size_t(UNPACKED_BLOCKS) * w.quads * TILE * QUAD;
  int8_t* tiles = unpacked == 0 ? nullptr : tiles_.get(parts, unpacked);
  const auto quantize = [&](int from, int to) {
    for (int r = from; r < to; ++r) {
      int8_t* own = q + size_t(r) * wide;
      kernels_.quantize(x + r * stride, n, own, scales + r, zero_points + r, sums + r);
      std::fill(own + std::min(padded(n), wide), own + wide, 0);  // up to the end of a group
    }
  };
  if (rows >= ROWS_OF_THREAD * parts) {
    share(rows, work, [&](int part, int from, int to) {
      quantize(from, to);
      GemmOutput own = target;
      own.out += from * target.stride;
      kernels_.gemm(w, {q + size_t(from) * wide, wide, scales + from, zero_points + from, sums + from,
                        scratch + 2 * size_t(from) * wide, tiles + part * unpacked}, to - from, own);
    });
    return;
  }
  quantize(0, rows);
  share(w.blocks, work, [&](int part, int from, int to) {
    GemmOutput own = target;
    own.out += from * TILE;
    int8_t* interleaved = scratch + 2 * size_t(part) * rows * wide;
    kernels_.gemm(some_blocks(w, from, to), {q, wide, scales, zero_points, sums, interleaved, tiles + part * unpacked},
                  rows, own);
  });
}

template <class Body>
void Runner::share(int count, uint64_t work, const Body& body) {
  const int parts = threads(work);
  if (parts == 1 || count < parts) {
    body(0, 0, count);
    return;
  }
  const auto start = [&](int part) { return static_cast<int>(int64_t(count) * part / parts); };
  team_->run([&](int part) { body(part, start(part), start(part + 1)); });
}

void Runner::normalize_rows(const Norm& norm, const float* x, int rows, float* out) {
  share(rows, rows * width_ * 4, [&](int, int from, int to) {  // a row costs more than its multiplications
    for (int r = from; r < to; ++r)
      kernels_.normalize(x + r * width_, model_.width, norm.weight, norm.bias, model_.epsilon, out + r * width_);
  });
}

// These rows one after the other.
float* Runner::gather(const float* x, const std::vector<int>& rows, Buffer<float>& into, size_t stride) {
  if (stride == 0) stride = width_;
  float* out = into.get(rows.size(), stride);
  for (size_t r = 0; r < rows.size(); ++r) std::memcpy(out + r * stride, x + rows[r] * stride, stride * sizeof(float));
  return out;
}

const float* Runner::layer_norm(const Norm& norm, const float* x, int rows) {
  if (!norm.weight) return x;
  float* out = normed_.get(rows, width_);
  normalize_rows(norm, x, rows, out);
  return out;
}

void Runner::add_projection(const PackedMatrix& w, const float* branch, size_t stride, Rows x, float weight,
                            const Norm& after) {
  project(w, branch, stride, x.count, {x.x, width_, Epilogue::add, weight});
  if (after.weight) normalize_rows(after, x.x, x.count, x.x);
}

void Runner::feed_forward(const Layer& l, Rows x, float weight) {
  const size_t wide = padded(model_.ffn);
  const int most = HIDDEN_ROWS * (team_ == nullptr ? 1 : team_->size());
  float* hidden = hidden_.get(std::min(x.count, most), wide);
  const bool relu = model_.activation == Activation::relu;
  const Curve curve = model_.activation == Activation::gelu    ? Curve::gelu
                      : model_.activation == Activation::swish ? Curve::swish
                                                               : Curve::gelu_tanh;
  for (int from = 0; from < x.count; from += most) {
    const Rows some{x.x + from * width_, std::min(most, x.count - from)};
    project(l.up, layer_norm(pre_norm(l.ffn_norm), some.x, some.count), width_, some.count,
            {hidden, wide, relu ? Epilogue::relu : Epilogue::store});
    if (!relu)
      share(some.count, some.count * wide * 8, [&](int, int row, int last) {
        for (; row < last; ++row)
          kernels_.gelu(hidden + row * wide, static_cast<int>(wide), curve);
      });
    add_projection(l.down, hidden, wide, some, weight, post_norm(l.ffn_norm));
  }
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

void Runner::encode(const SourceBatch& sources, EncoderObserver* observer) {
  starts_.assign(sources.starts.begin(), sources.starts.end());
  key_starts_.assign(1, 0);
  for (int sentence = 0; sentence < sources.sentences(); ++sentence)
    key_starts_.push_back(key_starts_.back() + padded(starts_[sentence + 1] - starts_[sentence]));
  const int all = starts_.back();
  float* memory = memory_.get(all, width_);
  const auto chunks = [&](auto&& run) {  // of whole sentences
    for (int from = 0; from < sources.sentences();) {
      int to = from + 1;
      while (to < sources.sentences() && starts_[to + 1] - starts_[from] <= CHUNK_ROWS) ++to;
      run(from, to);
      from = to;
    }
  };
  chunks([&](int from, int to) { encode_chunk(sources, from, to, memory + starts_[from] * width_, observer); });
  std::vector<bool> ready(model_.decoder.own.size());
  for (const int index : sub_.decoder) {
    const int own = model_.decoder.pattern[index];
    if (ready[own]) continue;
    ready[own] = true;
    Half* keys = memory_keys_[own].get(key_starts_.back(), model_.width);
    Half* values = memory_values_[own].get(all, model_.width);
    chunks([&](int from, int to) { prepare_memory(model_.decoder.own[own].cross_key_value, from, to, keys, values); });
  }
}

// Keys and values of the encoder's output, for the cross-attention of a layer.
void Runner::prepare_memory(const PackedMatrix& cross_key_value, int from, int to, Half* keys, Half* values) {
  const int d = model_.width, begin = starts_[from], rows = starts_[to] - begin;
  const size_t wide = padded(2 * d);
  float* key_value = qkv_.get(rows, wide);
  project(cross_key_value, memory_.data() + begin * width_, width_, rows, {key_value, wide});
  for (int sentence = from; sentence < to; ++sentence) {
    const int length = starts_[sentence + 1] - starts_[sentence];
    const AttentionShape shape = attention_shape(length);
    const float* own = key_value + (starts_[sentence] - begin) * wide;
    float* transposed = keys_.get(d, padded(length));
    Half* own_keys = keys + key_starts_[sentence] * d;
    Half* own_values = values + size_t(starts_[sentence]) * d;
    share(shape.heads, uint64_t(length) * d * 4, [&](int, int head, int last) {
      const size_t start = head * shape.e;
      const size_t at = start * padded(length), count = size_t(last - head) * shape.e * padded(length);
      kernels_.transpose_keys(own + start, wide, length, last - head, shape.e, transposed + at);
      kernels_.halve(transposed + at, static_cast<int>(count), own_keys + at);
      Half* out = own_values + start * length;
      for (; head < last; ++head)
        for (int p = 0; p < length; ++p, out += shape.e)
          kernels_.halve(own + p * wide + d + head * shape.e, shape.e, out);
    });
  }
}

void Runner::encode_chunk(const SourceBatch& sources, int from, int to, float* memory, EncoderObserver* observer) {
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
    if (observer != nullptr) observer->after_layer(static_cast<int>(step) + 1, x, from, to);
  }
  std::memcpy(memory, layer_norm(stack.final_norm, x, rows), rows * width_ * sizeof(float));
}

// A token that has reached its depth keeps its state; others of its sentence still attend to it. Queries are projected of
// active tokens only, keys and values of the sentences that have some.
void Runner::encoder_layer(const Layer& l, float weight, const SourceBatch& sources, int from, int to, float* x,
                           int step) {
  const int d = model_.width, begin = starts_[from], rows = starts_[to] - begin;
  const size_t wide = padded(3 * d);
  active_rows_.clear(), kept_rows_.clear();
  for (int sentence = from; sentence < to; ++sentence) {
    const size_t before = active_rows_.size();
    for (int r = starts_[sentence] - begin; r < starts_[sentence + 1] - begin; ++r)
      if (sources.depths.empty() || sources.depths[begin + r] > step) active_rows_.push_back(r);
    if (active_rows_.size() > before)
      for (int r = starts_[sentence] - begin; r < starts_[sentence + 1] - begin; ++r) kept_rows_.push_back(r);
  }
  const int count = static_cast<int>(active_rows_.size()), kept = static_cast<int>(kept_rows_.size());
  if (count == 0) return;
  const bool all = count == rows;
  const float* input = layer_norm(pre_norm(l.attention_norm), kept == rows ? x : gather(x, kept_rows_, kept_), kept);
  float* qkv = qkv_.get(kept, wide);
  const float* query = qkv;
  size_t query_stride = wide;
  if (all) {
    project(l.qkv, input, width_, rows, {qkv, wide});
  } else {
    own_rows_.clear();  // the active ones among those that were kept
    for (int r = 0, next = 0; r < kept; ++r)
      if (next < count && kept_rows_[r] == active_rows_[next]) own_rows_.push_back(r), ++next;
    const bool apart = d % TILE == 0;  // else a tile has outputs of both
    project(apart ? some_blocks(l.qkv, d / TILE, 3 * d / TILE) : l.qkv, input, width_, kept, {qkv + (apart ? d : 0), wide});
    query_stride = width_;
    if (apart) {
      float* found = queries_.get(count, width_);
      project(some_blocks(l.qkv, 0, d / TILE), gather(input, own_rows_, active_), width_, count, {found, width_});
      query = found;
    } else {
      query = gather(qkv, own_rows_, queries_, wide);
      query_stride = wide;
    }
  }
  float* context = mixed_.get(count, width_);
  std::memset(context, 0, count * width_ * sizeof(float));
  int done = 0, first = 0;  // rows of queries, and of keys
  for (int sentence = from; sentence < to; ++sentence) {
    const int length = starts_[sentence + 1] - starts_[sentence], end = starts_[sentence + 1] - begin;
    int own = 0;  // rows of it that attend
    while (done + own < count && active_rows_[done + own] < end) ++own;
    if (own == 0) continue;
    const AttentionShape shape = attention_shape(length);
    float* keys = keys_.get(d, padded(length));
    const uint64_t work = 2 * uint64_t(own) * length * d;
    float* scores = scores_.get(threads(work), shape.scores());
    share(shape.heads, work, [&](int part, int head, int last) {
      const int start = head * shape.e;
      const AttentionShape some{length, last - head, shape.e};
      const float* key = qkv + first * wide + d + start;
      float* own_keys = keys + size_t(start) * padded(length);
      kernels_.transpose_keys(key, wide, length, some.heads, shape.e, own_keys);
      const Values<float> values{key + d, wide, size_t(shape.e)};
      kernels_.attend(query + done * query_stride + start, query_stride, own, own_keys, values, some,
                      scores + part * shape.scores(), context + done * width_ + start, width_);
    });
    done += own, first += length;
  }
  float* own = x;
  if (!all) {
    own = gather(x, active_rows_, active_);
  }
  add_projection(l.attention_out, context, width_, {own, count}, weight, post_norm(l.attention_norm));
  feed_forward(l, {own, count}, weight);
  if (!all)
    for (int r = 0; r < count; ++r) std::memcpy(x + active_rows_[r] * width_, own + r * width_, width_ * sizeof(float));
}

void Runner::keep_rows(const std::vector<Row>& rows, const std::vector<int>& kept, KVCache& cache, int layers) {
  float* x = states_.data();
  size_t next = 0;
  for (int r = 0; r < static_cast<int>(rows.size()); ++r) {
    const bool stays = next < kept.size() && kept[next] == r;
    if (!stays) {
      std::memcpy(cache.state(rows[r].position(), rows[r].slots->back()), x + r * width_, width_ * sizeof(float));
      continue;
    }
    if (next != size_t(r)) {
      std::memcpy(x + next * width_, x + r * width_, width_ * sizeof(float));
      for (int ran = 0; model_.decoder.dense && ran <= layers; ++ran) {
        float* past = decoder_past_[ran == 0 ? 0 : sub_.decoder[ran - 1] + 1].data();
        std::memcpy(past + next * width_, past + r * width_, width_ * sizeof(float));
      }
    }
    ++next;
  }
}

// The rows of a layer, and after them the states of earlier positions that left before it: one product of a few rows
// takes hardly longer than of one.
const float* Runner::add_left_behind(const std::vector<Row>& rows, KVCache& cache, int step, const float* x) {
  left_behind_.clear();
  for (const Row& row : rows) {
    const std::vector<int>& slots = *row.slots;
    for (int p = 0; step > 0 && p < row.position(); ++p) {  // all have run the first layer
      int& filled = cache.filled(p, slots[p]);
      if (filled > step) continue;
      filled = step + 1;
      left_behind_.emplace_back(p, slots[p]);
    }
    cache.filled(row.position(), slots.back()) = step + 1;
  }
  if (left_behind_.empty()) return x;
  float* both = kept_.get(rows.size() + left_behind_.size(), width_);
  std::memcpy(both, x, rows.size() * width_ * sizeof(float));
  float* to = both + rows.size() * width_;
  for (const auto& [position, slot] : left_behind_) {
    std::memcpy(to, cache.state(position, slot), width_ * sizeof(float));
    to += width_;
  }
  return both;
}

void Runner::decode(const std::vector<Row>& rows, KVCache& cache, int first, int last, int at) {
  const Stack& stack = model_.decoder;
  const int d = model_.width, count = static_cast<int>(rows.size());
  const size_t wide = padded(3 * d);
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

    const float* given = cache.exits() ? add_left_behind(rows, cache, step, x) : x;
    const int all = count + static_cast<int>(left_behind_.size());
    float* qkv = qkv_.get(all, wide);
    project(l.qkv, layer_norm(pre_norm(l.attention_norm), given, all), width_, all, {qkv, wide});
    float* context = mixed_.get(count, width_);
    std::memset(context, 0, count * width_ * sizeof(float));
    for (int r = 0; r < count; ++r)
      cache.store(kernels_, step, rows[r].position(), rows[r].slots->back(), qkv + r * wide + d);
    for (int r = count; r < all; ++r)
      cache.store(kernels_, step, left_behind_[r - count].first, left_behind_[r - count].second, qkv + r * wide + d);
    for (int r = 0; r < count; ++r) {
      const int positions = rows[r].position() + 1;
      key_value_.clear();
      for (int p = 0; p < positions; ++p) key_value_.push_back(cache.at(step, p, (*rows[r].slots)[p]));
      const AttentionShape shape = attention_shape(positions);
      const uint64_t work = 2 * uint64_t(positions) * d;
      float* scores = scores_.get(threads(work), shape.scores());
      share(shape.heads, work, [&](int part, int head, int last) {
        kernels_.attend_cached(qkv + r * wide, key_value_.data(), shape, head, last, scores + part * shape.scores(),
                               context + r * width_);
      });
    }
    add_projection(l.attention_out, context, width_, {x, count}, own, post_norm(l.attention_norm));

    float* query = qkv;
    project(l.cross_query, layer_norm(pre_norm(l.cross_norm), x, count), width_, count, {query, width_});
    for (int r = 0; r < count;) {
      const int sentence = rows[r].sentence, length = starts_[sentence + 1] - starts_[sentence];
      int together = 1;
      while (r + together < count && rows[r + together].sentence == sentence) ++together;
      const int set = stack.pattern[index];
      const Half* keys = memory_keys_[set].data() + key_starts_[sentence] * d;
      const AttentionShape shape = attention_shape(length);
      const Half* values = memory_values_[set].data() + size_t(starts_[sentence]) * d;
      const uint64_t work = 2 * uint64_t(together) * length * d;
      float* scores = scores_.get(threads(work), shape.scores());
      share(shape.heads, work, [&](int part, int head, int last) {
        const size_t start = head * shape.e, from = r * width_ + start;
        const AttentionShape some{length, last - head, shape.e};
        kernels_.attend_memory(query + from, width_, together, keys + start * padded(length),
                        {values + start * length, size_t(shape.e), size_t(length) * shape.e}, some,
                        scores + part * shape.scores(), context + from, width_);
      });
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
