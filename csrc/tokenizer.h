// Text to token ids and back, from a SentencePiece model file.
//
// The file is a protobuf message, ModelProto: `pieces` (field 1: text, score, type), `trainer_spec` (2: model type,
// byte fallback, the text of an unknown piece), `normalizer_spec` (3) and perhaps `denormalizer_spec` (5). The id of a
// piece is its position. Ids and texts are those of sentencepiece 0.2.2, to the byte.
//
// Encoding:
//
// 1. Normalise. At each position a user-defined symbol (the longest that matches) is kept as it is; else the longest
//    matching rule of the normalisation map is applied; else one character is kept. A byte that is not UTF-8 becomes
//    U+FFFD. As the model asks, spaces at the ends and repeated ones are removed, one is added at the start (or at the
//    end, with `treat_whitespace_as_suffix`), and spaces are written as U+2581.
// 2. Split. Unigram: the pieces with the highest sum of scores, by Viterbi over bytes from left to right, in single
//    precision; of equal sums the first found stays, whose last piece is the longest. A character without a piece of
//    its own scores 10 less than the lowest score; a user-defined symbol of n bytes scores (n - 1) / 10.
//    BPE: starting from characters and user-defined symbols, merge the two neighbours whose piece has the highest
//    score, the leftmost first, until none is left. User-defined symbols are not merged.
// 3. An unknown character becomes the pieces of its UTF-8 bytes, or without byte fallback, each run of them one unknown
//    id. Control pieces do not come out of text, unless one is a single character and the model is BPE.
//
// The normalisation map (`precompiled_charsmap`) is the size in bytes of a double-array trie (uint32, little-endian),
// the trie, and the replacements, each ended by a zero byte. The trie is an array of uint32 units: bits 0-7 label,
// bit 8 set if a key ends here, bits 10-30 offset (shifted left by 8 if bit 9 is set). The child of a unit for a byte
// is at position XOR offset XOR byte; the child for byte 0 holds the value, with bit 31 set: where the
// replacement starts.
//
// Decoding joins the pieces, with U+2581 as a space, and removes the space at the start. A control piece is empty, an
// unknown one is `unk_surface`. A run of byte pieces is read as UTF-8, with U+FFFD for each byte that is not part of a
// character.
//
// Time is linear in the text (n log n for BPE) times the longest piece. A file is refused if a length in it exceeds
// what is left; a rule that points outside of the map is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stop.h"

namespace anydepth {

class Tokenizer {
 public:
  // Copies what it needs of a model file, unigram or BPE; throws std::runtime_error with a message, or std::bad_alloc.
  Tokenizer(const void* data, size_t size);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Ids without bos and eos, of any bytes; throws TooLong if they are more than 64 MiB when normalised, and Stopped.
  std::vector<int32_t> encode(std::string_view utf8, const StopConditions& stop = {}) const;
  // Ids outside of the vocabulary are left out.
  std::string decode(const int32_t* ids, size_t count) const;
  int32_t size() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

// Text with a space for each line break, none for the last, as Python's " ".join(text.splitlines()).
std::string join_lines(std::string_view utf8);

}  // namespace anydepth
