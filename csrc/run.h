// Forward passes: of source sentences, and of target positions with a KV cache.
#pragma once

#include <utility>
#include <vector>

#include "buffer.h"
#include "model.h"
#include "output_layer.h"
#include "stop.h"
#include "threads.h"

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
  SourceBatch between(int from, int to) const;  // some of the sentences
  std::vector<int> divide(int parts) const;     // where each part begins, of about as many tokens; and the end
};

// One target position. `slots` says where in the KV cache each position up to its own is, so that hypotheses share
// the entries of their common prefix.
struct Row {
  int token, sentence;
  const std::vector<int32_t>* slots;

  int position() const { return static_cast<int>(slots->size()) - 1; }
};

// Keys and values of target positions for each layer that runs, in blocks of positions: a slot of a block has the keys
// [heads, BLOCK, e], then the values, in half precision. Positions of a hypothesis that have the same slot are side by side.
//
// With `exits`, tokens may leave the decoder early. The state of such a token takes the place of its states after deeper
// layers; their keys and values are computed of it once a later token runs those layers.
class KVCache {
 public:
  static constexpr int BLOCK = TILE;

  KVCache(int applications, int heads, int e, bool exits = false)
      : applications_(applications), heads_(heads), e_(e), exits_(exits), slot_(2 * size_t(heads) * BLOCK * e) {}
  // The first position of a block decides how many slots it has.
  void make_room(int position, int slots);
  int slots(int position) const { return slots_[position / BLOCK]; }
  void store(const Kernels& kernels, int application, int position, int slot, const float* key_value);
  // The key of the first head.
  Half* at(int application, int position, int slot) {
    const size_t block = position / BLOCK;
    return blocks_[block].data() + (size_t(application) * slots_[block] + slot) * slot_ + position % BLOCK * e_;
  }

  bool exits() const { return exits_; }
  // How many layers have keys and values of it, with `exits`.
  int& filled(int position, int slot) { return filled_[position / BLOCK][slot * BLOCK + position % BLOCK]; }
  // The state of a token that has left early, padded.
  float* state(int position, int slot) {
    return states_[position / BLOCK].data() + (slot * BLOCK + position % BLOCK) * width();
  }

 private:
  size_t width() const { return padded(heads_ * e_); }

  int applications_, heads_, e_;
  bool exits_;
  size_t slot_;
  std::vector<Buffer<Half>> blocks_;
  std::vector<int> slots_;
  std::vector<Buffer<float>> states_;
  std::vector<std::vector<int>> filled_;
};

// Sees the states of some sentences after each encoder layer, and may then change how deep their tokens go.
class EncoderObserver {
 public:
  virtual ~EncoderObserver() = default;
  // After so many layers; `x` has the rows of the sentences `from` to before `to`.
  virtual void after_layer(int layers, const float* x, int from, int to) = 0;
};

// Runs one model, one call at a time.
class Runner {
 public:
  // Threads of a team share the work; the outputs are the same to the bit.
  Runner(const Model& model, const SubNetwork& sub, const StopConditions& stop, Team* team = nullptr);

  // Encoder outputs, and from them the keys and values for cross-attention.
  void encode(const SourceBatch& sources, EncoderObserver* observer = nullptr);

  // Runs the decoder layers `first` to before `last` of the sub-network on the rows of `states()` from `at` on. Layer 0
  // begins with the embeddings. Each position must have room in the cache.
  void decode(const std::vector<Row>& rows, KVCache& cache, int first, int last, int at = 0);

  // Of `count` rows of `states()`: [count, outputs.stride()]. The best few of each row are computed again in float, as
  // the choice is between those; drafts, which are verified, do without.
  const float* logits(const OutputLayer& outputs, int count, int at = 0, bool rescored = true);
  // The same where each row has its own of the columns of `all`: rows of different lengths, one after the other.
  const std::vector<const float*>& logits(const OutputLayer& all, const std::vector<const OutputLayer*>& of_rows);

  float* states(int rows) { return states_.get(rows, width_); }
  // After so many layers, goes on with some of the rows of `states()`, which ascend. The others leave their states in the
  // cache, which has `exits`.
  void keep_rows(const std::vector<Row>& rows, const std::vector<int>& kept, KVCache& cache, int layers);
  int decoder_layers() const { return static_cast<int>(sub_.decoder.size()); }

 private:
  static constexpr uint64_t WORTH_SHARING = 1 << 15;  // multiplications of each thread; about a microsecond
  struct Rows {  // the rows that a layer changes
    float* x;
    int count;
  };
  const Layer& layer(const Stack& stack, int index) const { return stack.own[stack.pattern[index]]; }
  float weight(const Stack& stack, int index, float own) const {
    return stack.scales == nullptr ? own : own * stack.scales[index];
  }
  AttentionShape attention_shape(int positions) const { return {positions, model_.heads, model_.width / model_.heads}; }
  // body(part, from, to) on ranges of `count` things: one for each thread if it is worth it, or one of all.
  template <class Body>
  void share(int count, uint64_t work, const Body& body);
  int threads(uint64_t work) const { return team_ != nullptr && work >= WORTH_SHARING * team_->size() ? team_->size() : 1; }
  void normalize_rows(const Norm& norm, const float* x, int rows, float* out);
  void embed(const EmbeddingTable& table, int token, int position, float* x) const;
  void project(const PackedMatrix& w, const float* x, size_t stride, int rows, const GemmOutput& target);
  float* gather(const float* x, const std::vector<int>& rows, Buffer<float>& into, size_t stride = 0);
  const float* add_left_behind(const std::vector<Row>& rows, KVCache& cache, int step, const float* x);
  const float* layer_norm(const Norm& norm, const float* x, int rows);
  void add_projection(const PackedMatrix& w, const float* branch, size_t stride, Rows x, float weight,
                      const Norm& after);
  void feed_forward(const Layer& l, Rows x, float weight);
  void prepare_memory(const PackedMatrix& cross_key_value, int from, int to, Half* keys, Half* values);
  void encode_chunk(const SourceBatch& sources, int from, int to, float* memory, EncoderObserver* observer);
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
  Team* const team_;
  const Norm no_norm_;
  const size_t width_;  // padded, as of all rows
  std::vector<int> starts_;
  std::vector<size_t> key_starts_;            // of each sentence, in `memory_keys_`
  std::vector<Buffer<Half>> memory_keys_;     // of each set of decoder weights, transposed
  std::vector<Buffer<Half>> memory_values_;  // [heads, positions, e] of each sentence
  std::vector<Buffer<float>> encoder_past_, decoder_past_;
  Buffer<float> states_, memory_, normed_, qkv_, mixed_, hidden_, scores_, logits_, own_logits_, scales_, active_;
  Buffer<float> output_row_, keys_, kept_, queries_;
  Buffer<int8_t> quantized_, tiles_;
  Buffer<int32_t> sums_;
  std::vector<const Half*> key_value_;
  std::vector<std::pair<int, int>> left_behind_;  // positions and slots whose keys and values are to be computed
  std::vector<const float*> rows_;
  std::vector<int> active_rows_, kept_rows_, own_rows_, close_;
};

}  // namespace anydepth
