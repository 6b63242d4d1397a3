// A Transformer with packed int8 weights, read from an untrusted buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"

namespace anydepth {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class NormPosition : int32_t { pre, post, none };
enum class Activation : int32_t { relu, gelu, gelu_tanh };

struct Norm {
  const float* weight = nullptr;  // null: no norm
  const float* bias = nullptr;
};

struct Layer {
  Norm attention_norm, cross_norm, ffn_norm;
  PackedMatrix qkv, attention_out, cross_query, cross_key_value, cross_out, up, down;
};

// Dense connections (DLCL): row k has a weight for each of the k + 1 outputs before it, and each of those a norm.
struct Dense {
  std::vector<const float*> rows;
  std::vector<Norm> norms;
};

struct Stack {
  std::vector<Layer> own;        // distinct sets of weights
  std::vector<int> pattern;      // which of them each layer uses
  std::vector<float> scales;     // of ReZero, or empty
  std::unique_ptr<Dense> dense;  // or null
  Norm final_norm;               // none if post-norm
};

// A row per subword, in half precision.
struct EmbeddingTable {
  const uint16_t* rows = nullptr;
  int count = 0;
};

// A lexical shortlist: tokens that are always candidates, and those of each source token.
struct Shortlist {
  std::vector<int32_t> always, offsets, outputs;
};

struct Model {
  int width = 0, heads = 0, ffn = 0, vocabulary = 0;
  NormPosition norm = NormPosition::pre;
  Activation activation = Activation::relu;
  float epsilon = 1e-5f, embedding_scale = 1.0f;
  EmbeddingTable source, target;
  const float* position_embeddings = nullptr;  // [positions, padded(width)]
  int positions = 0;                           // at most, of a sentence
  Norm embedding_norm;
  Stack encoder, decoder;
  PackedMatrix output;
  EmbeddingTable output_rows;  // its weights in half precision
  Shortlist shortlist;
  const Kernels* kernels = nullptr;

  size_t memory() const { return arena_size; }  // bytes of all weights

  // Copies the weights, so that the buffer may be freed. `kernels` must be able to run here.
  static std::unique_ptr<Model> read(const uint8_t* data, size_t size, const Kernels* kernels);
  void set_shortlist(const int32_t* always, size_t always_count, const int32_t* offsets, const int32_t* outputs);

  ~Model();
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

 private:
  friend class Reader;
  uint8_t* arena = nullptr;
  size_t arena_size = 0;
};

// The fastest kernels that run here, or those of this name; null if there are none.
const Kernels* kernels_named(const char* name);

}  // namespace anydepth
