// A Transformer with packed int8 weights, read in place from a model file or from a prefix of one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "file.h"
#include "json.h"
#include "kernels.h"

namespace anydepth {

enum class NormPosition : int32_t { pre, post, none };
enum class Activation : int32_t { relu, gelu, gelu_tanh, swish };

struct Norm {
  const float* weight = nullptr;  // null: no norm
  const float* bias = nullptr;
};

struct Layer {
  Norm attention_norm, cross_norm, ffn_norm;
  PackedMatrix qkv, attention_out, cross_query, cross_key_value, cross_out, up, down;
  std::atomic<bool> ready{false};  // its section has arrived
};

// Dense connections (DLCL): row k has a weight for each of the k + 1 outputs before it, and each of those a norm.
struct Dense {
  std::vector<const float*> rows;
  std::vector<Norm> norms;
};

struct Stack {
  std::vector<Layer> own;         // distinct sets of weights
  std::vector<int> pattern;       // which of them each layer uses
  const float* scales = nullptr;  // of ReZero, or null
  std::unique_ptr<Dense> dense;   // or null
  Norm final_norm;                // none if post-norm
};

// A row per subword, in half precision. Null: the rows of the output matrix.
struct EmbeddingTable {
  const uint16_t* rows = nullptr;
};

// Position embeddings that a file need not store: sine in the even features, cosine in the odd ones. Most sentences are
// short: a block of positions is computed when the first of them is asked for. Threads may ask at once.
class Sinusoids {
 public:
  Sinusoids(int positions, int width);
  const float* row(int position) const;

 private:
  static constexpr int BLOCK = 16;
  struct Block {
    ~Block() { delete[] rows.load(std::memory_order_relaxed); }
    std::atomic<const float*> rows{nullptr};  // [BLOCK, padded(width)]
  };
  const float* compute(int block) const;

  int width_;
  std::vector<float> rates_;  // of each pair of features
  mutable std::vector<Block> blocks_;
};

// Something of a file that has not arrived.
struct NotYet : Error {
  using Error::Error;
};

// A lexical shortlist: tokens that are always candidates, and those of each source token.
struct Shortlist {
  const int32_t* always = nullptr;
  size_t always_count = 0;
  const int32_t* offsets = nullptr;  // [vocabulary + 1]
  const int32_t* outputs = nullptr;
};

struct Model {
  int width = 0, heads = 0, ffn = 0, vocabulary = 0;
  NormPosition norm = NormPosition::pre;
  Activation activation = Activation::relu;
  float epsilon = 1e-5f, embedding_scale = 1.0f;
  EmbeddingTable source, target;
  int positions = 0;  // at most, of a sentence
  Norm embedding_norm;
  Stack encoder, decoder;
  PackedMatrix output;
  const int8_t* output_remainders = nullptr;  // [vocabulary, width]: what int8 leaves of each weight, in 1/254 of its step
  Shortlist shortlist;  // once it is there, see has_shortlist
  // Of a model that classifies: instead of the output matrix a layer over pooled states, in float, and perhaps a halting
  // unit, which says after the first layer how deep each token goes.
  int classes = 0;                       // 0: it translates
  const float* class_weights = nullptr;  // [classes, 2 * width]: of the largest and of the mean of each feature
  const float* class_bias = nullptr;
  const float* halting_weights = nullptr;  // [encoder layers, width], or null
  const float* halting_bias = nullptr;
  float halting_confidence = 0.0f;  // 0: the most probable depth
  const Kernels* kernels = nullptr;

  // A whole file, mapped: processes that open the same file share its memory. `kernels` must be able to run here.
  static std::unique_ptr<Model> open(const char* path, const Kernels* kernels);
  // A whole file in memory, which is copied.
  static std::unique_ptr<Model> copy(const uint8_t* data, size_t size, const Kernels* kernels);
  // A file that arrives piece by piece. What has arrived runs while more comes.
  static std::unique_ptr<Model> growing(const Kernels* kernels);
  void append(const uint8_t* data, size_t size);

  bool complete() const { return complete_.load(std::memory_order_acquire); }
  bool has_header() const { return has_header_.load(std::memory_order_acquire); }
  bool has_base() const { return has_base_.load(std::memory_order_acquire); }  // tokenizer, embeddings, output
  // Throws NotYet if it is still to come, and an Error if there is none.
  void check_shortlist() const;
  bool has_shortlist() const { return has_shortlist_.load(std::memory_order_acquire); }
  bool has_layers(const std::vector<int>& encoder_layers, const std::vector<int>& decoder_layers) const;
  uint64_t memory() const { return memory_.load(std::memory_order_relaxed); }  // bytes of all sections

  void embedding(const EmbeddingTable& table, int token, float* row) const;
  const float* position_embedding(int position) const {
    return sinusoids_ ? sinusoids_->row(position) : position_embeddings_ + size_t(position) * padded(width);
  }
  void output_row(int token, float* row) const;  // in 16 bits, not only the 8 that products are computed with

  const Json& about() const { return about_; }  // the header
  const std::string& header() const { return header_.json; }
  const uint8_t* tokenizer() const { return tokenizer_; }
  size_t tokenizer_size() const { return tokenizer_size_; }

  void set_shortlist(const int32_t* always, size_t always_count, const int32_t* offsets, const int32_t* outputs);

 private:
  void configure(Header header);
  void attach(const SectionInfo& section, const uint8_t* data);
  void attach_embeddings(SectionReader& from);
  void attach_output(SectionReader& from);
  void attach_classes(SectionReader& from);
  void attach_shortlist(SectionReader& from);
  void attach_layer(Stack& stack, const SectionInfo& section, SectionReader& from, bool decoder);
  void finish();
  void configure_classes(const Json& core);
  void read_pattern(Stack& stack, const Json& pattern);
  void attach_stack(Stack& stack, SectionReader& from);
  Norm read_norm(SectionReader& from) const;
  EmbeddingTable read_table(SectionReader& from) const;
  void check(const Shortlist& list) const;

  Header header_;
  Json about_;
  bool shared_target_ = true, tied_output_ = true, halting_ = false, int4_ = false, norms_embeddings_ = false;
  const float* position_embeddings_ = nullptr;  // [positions, padded(width)], unless they are computed
  std::unique_ptr<const Sinusoids> sinusoids_;
  enum class Residual { plain, rezero, dense } residual_ = Residual::plain;
  const uint8_t* tokenizer_ = nullptr;
  size_t tokenizer_size_ = 0;
  bool has_embeddings_ = false, has_output_ = false, lists_ = false;  // lists_: the file has a shortlist
  std::atomic<bool> has_header_{false}, has_base_{false}, has_shortlist_{false}, complete_{false};
  std::atomic<uint64_t> memory_{0};

  std::unique_ptr<MappedFile> mapped_;
  std::vector<GrowingBytes> owned_;  // sections that were copied, or arrived
  GrowingBytes coming_;
  uint64_t arrived_ = 0;
  size_t next_ = 0;                     // the section that is coming
  bool failed_ = false;                 // a file that was wrong once stays wrong
  std::vector<int32_t> own_shortlist_;  // one that was set
};

// The fastest kernels that run here, or those of this name; null if there are none.
const Kernels* kernels_named(const char* name);

}  // namespace anydepth
