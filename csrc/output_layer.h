// The output layer: which tokens may be generated, and the weights that give their logits.
#pragma once

#include <memory>
#include <vector>

#include "buffer.h"
#include "model.h"

namespace anydepth {

constexpr int BOS = 2, EOS = 3;  // as data/tokenizer.py has them; ids below EOS are never generated

// The lexical shortlist of a source: tokens in ascending order, EOS first.
std::vector<int32_t> shortlist_tokens(const Model& model, const int32_t* sources, int count);

// The columns of a row of logits: the whole vocabulary, or some tokens of it, EOS first.
class OutputLayer {
 public:
  explicit OutputLayer(const Model& model) : matrix_(&model.output), first_(EOS), count_(model.vocabulary) {}
  OutputLayer(const Model& model, std::vector<int32_t> tokens);  // with the weights of these tokens
  // Some of the tokens of `all`, whose product is computed with that of other sentences.
  OutputLayer(const OutputLayer& all, std::vector<int32_t> tokens);

  const PackedMatrix& matrix() const { return *matrix_; }
  const std::vector<int32_t>& columns() const { return columns_; }  // of its tokens among `all`; empty: its own matrix
  size_t stride() const { return padded(count_); }  // of a row of logits
  int first() const { return first_; }  // the column of EOS; those before it are never generated
  int count() const { return count_; }
  int token(int column) const { return tokens_.empty() ? column : tokens_[column]; }

 private:
  const PackedMatrix* matrix_;
  int first_, count_;
  std::vector<int32_t> tokens_, columns_;
  std::shared_ptr<PackedMatrix> own_;
  std::shared_ptr<Buffer<int8_t>> tiles_;
  std::vector<float> scales_, sums_, bias_;
};

}  // namespace anydepth
