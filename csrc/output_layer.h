// What may be generated.
#pragma once

#include <memory>
#include <vector>

#include "buffer.h"
#include "model.h"

namespace anydepth {

constexpr int BOS = 2, EOS = 3;  // as text/tokenizer.py has them; what comes before EOS is never generated

// What a row of logits stands for: the whole vocabulary, or a list of its sub-words, EOS first.
class Outputs {
 public:
  explicit Outputs(const Model& model) : matrix_(&model.output), first_(EOS), count_(model.vocabulary) {}
  Outputs(const Model& model, const int32_t* sources, int count);  // by the shortlist

  const Matrix& matrix() const { return *matrix_; }
  size_t stride() const { return size_t(matrix_->blocks) * TILE; }  // of a row of logits
  int first() const { return first_; }  // where EOS is; what is before it is never generated
  int count() const { return count_; }
  int token(int place) const { return tokens_.empty() ? place : tokens_[place]; }

 private:
  const Matrix* matrix_;
  int first_, count_;
  std::vector<int32_t> tokens_;
  std::shared_ptr<Matrix> own_;
  std::shared_ptr<Buffer<int8_t>> tiles_;
  std::vector<float> scales_, sums_, bias_;
};

}  // namespace anydepth
