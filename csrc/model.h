// A Transformer with int8 matrices, read from a buffer of which nothing is believed.
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

enum class NormPlace : int32_t { before, after, none };
enum class Activation : int32_t { relu, gelu, gelu_tanh };

struct Norm {
  const float* weight = nullptr;  // null: there is none
  const float* bias = nullptr;
};

struct Layer {
  Norm attention_norm, cross_norm, ffn_norm;
  Matrix qkv, attention_out, cross_query, cross_key_value, cross_out, up, down;
};

// Dense connections: row k has a weight for each of the k + 1 outputs before it, and each of those a norm.
struct Dense {
  std::vector<const float*> rows;
  std::vector<Norm> norms;
};

struct Stack {
  std::vector<Layer> own;            // layers with weights of their own
  std::vector<int> pattern;          // whose weights each layer has
  std::vector<float> scales;         // ReZero's, or empty
  std::unique_ptr<Dense> dense;      // or null
  Norm final_norm;                   // without weights where layers end in a norm
};

// A row for each sub-word, or place, in half precision.
struct Table {
  const uint16_t* rows = nullptr;
  int count = 0;
};

// Which outputs may follow from a source: those that are always there, and those of each of its sub-words.
struct Shortlist {
  std::vector<int32_t> always, offsets, outputs;
};

struct Model {
  int width = 0, heads = 0, ffn = 0, vocabulary = 0;
  NormPlace norm = NormPlace::before;
  Activation activation = Activation::relu;
  float epsilon = 1e-5f, embedding_scale = 1.0f;
  Table source, target;
  const float* positions = nullptr;  // [places, padded(width)]
  int places = 0;
  Norm embedding_norm;
  Stack encoder, decoder;
  Matrix output;
  Table output_rows;  // the same in half precision
  Shortlist shortlist;
  const Kernels* kernels = nullptr;

  size_t memory() const { return arena_size; }  // of all weights

  // Takes what it needs out of the buffer, which may then go. `kernels` is one of those that run here.
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

// The best kernels that run here, or the ones of this name; null if there are none.
const Kernels* kernels_named(const char* name);

}  // namespace anydepth
