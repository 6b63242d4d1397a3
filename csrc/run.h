// Forward passes: of source sentences, and of target positions with a KV cache.
#pragma once

#include <vector>

#include "buffer.h"
#include "model.h"
#include "output_layer.h"
#include "stop.h"

namespace anydepth {

// Which layers run, and the weight of the residual branches of each.
struct SubNetwork {
  std::vector<int> encoder, decoder;
  std::vector<float> encoder_weights, decoder_weights;
};

// Sentences one after the other: sentence i has the rows starts[i] to starts[i + 1].
struct SourceBatch {
  std::vector<int32_t> tokens, starts;
  std::vector<int32_t> depths;  // how many layers each token runs, or empty: all of them

  int sentences() const { return static_cast<int>(starts.size()) - 1; }
};

// One target position. `slots` says where in the KV cache each position up to its own is, so that hypotheses share
// the entries of their common prefix.
struct Row {
  int token, sentence;
  const std::vector<int32_t>* slots;

  int position() const { return static_cast<int>(slots->size()) - 1; }
};

// Keys and values of target positions for each layer that runs.
class KVCache {
 public:
  KVCache(int applications, int width) : applications_(applications), row_(2 * size_t(width)) {}
  void make_room(int position, int slots);
  float* at(int application, int position, int slot) {
    return blocks_[position].data() + (size_t(application) * slots_[position] + slot) * row_;
  }

 private:
  int applications_;
  size_t row_;
  std::vector<Buffer<float>> blocks_;
  std::vector<int> slots_;
};

// Runs one model, one call at a time.
class Runner {
 public:
  Runner(const Model& model, const SubNetwork& sub, const StopConditions& stop);

  // Encoder outputs, and from them the keys and values for cross-attention.
  void encode(const SourceBatch& sources);

  // Runs the decoder layers `first` to before `last` of the sub-network on the rows of `states()` from `at` on. Layer 0
  // begins with the embeddings. Each position must have room in the cache.
  void decode(const std::vector<Row>& rows, KVCache& cache, int first, int last, int at = 0);

  // Of `count` rows of `states()`: [count, outputs.stride()]. The best few of each row are computed again in float, as
  // the choice is between those; drafts, which are verified, do without.
  const float* logits(const OutputLayer& outputs, int count, int at = 0, bool rescored = true);
  // The same where each row has its own of the columns of `all`: rows of different lengths, one after the other.
  const std::vector<const float*>& logits(const OutputLayer& all, const std::vector<const OutputLayer*>& of_rows);

  float* states(int rows) { return states_.get(rows, width_); }
  int decoder_layers() const { return static_cast<int>(sub_.decoder.size()); }

 private:
  struct Rows {  // the rows that a layer changes
    float* x;
    int count;
  };
  const Layer& layer(const Stack& stack, int index) const { return stack.own[stack.pattern[index]]; }
  float weight(const Stack& stack, int index, float own) const {
    return stack.scales == nullptr ? own : own * stack.scales[index];
  }
  AttentionShape attention_shape(int positions) const { return {positions, model_.heads, model_.width / model_.heads}; }
  void embed(const EmbeddingTable& table, int token, int position, float* x) const;
  void project(const PackedMatrix& w, const float* x, size_t stride, int rows, const GemmOutput& target);
  const float* layer_norm(const Norm& norm, const float* x, int rows);
  void add_projection(const PackedMatrix& w, const float* branch, size_t stride, Rows x, float weight,
                      const Norm& after);
  void feed_forward(const Layer& l, Rows x, float weight);
  void encode_chunk(const SourceBatch& sources, int from, int to, float* memory);
  void encoder_layer(const Layer& l, float weight, const SourceBatch& sources, int from, int to, float* x, int step);
  void dense(const Stack& stack, const std::vector<int>& ran, int k, float* x, int rows, int at,
             std::vector<Buffer<float>>& past);
  void rescore(const OutputLayer& outputs, const float* features, float* row);
  const Norm& pre_norm(const Norm& norm) const { return model_.norm == NormPosition::pre ? norm : no_norm_; }
  const Norm& post_norm(const Norm& norm) const { return model_.norm == NormPosition::post ? norm : no_norm_; }

  const Model& model_;
  const Kernels& kernels_;
  const SubNetwork& sub_;
  const StopConditions& stop_;
  const Norm no_norm_;
  const size_t width_;  // padded, as of all rows
  std::vector<int> starts_;
  std::vector<size_t> key_starts_;               // of each sentence, in `memory_keys_`
  std::vector<Buffer<float>> memory_key_value_;  // of each set of decoder weights
  std::vector<Buffer<float>> memory_keys_;       // the keys of it, transposed
  std::vector<Buffer<float>> encoder_past_, decoder_past_;
  Buffer<float> states_, memory_, normed_, qkv_, mixed_, hidden_, scores_, logits_, own_logits_, scales_, active_, output_row_, keys_;
  Buffer<int8_t> quantized_;
  Buffer<int32_t> sums_;
  std::vector<const float*> key_value_, rows_;
  std::vector<int> active_rows_, close_;
};

}  // namespace anydepth
