// Text to token ids and back, from a SentencePiece model file.
//
// The file is a protobuf message, ModelProto: `pieces` (1: text, score, type), `trainer_spec` (2: model type, byte
// fallback, how an unknown piece is written), `normalizer_spec` (3) and perhaps `denormalizer_spec` (5). A piece's place
// is its id. Encoding and decoding give what sentencepiece's Python package gives, to the id and to the byte:
//
// 1. Normalise. At each position the longest of these applies: a user-defined symbol is kept as it is; else a rule of the
//    normalisation map replaces its longest match; else one character is kept, and a byte that is not UTF-8 becomes
//    U+FFFD. The map (`precompiled_charsmap`) has the size in bytes of a double-array trie (uint32, little-endian), the
//    trie (uint32 units: bits 0-7 label, bit 8 has a value, bit 9 offset is shifted by 8, bits 10-30 offset; a value has
//    bit 31 set), and the replacements, each ended by a zero byte; values of the trie are offsets into these.
//    Then, as the model asks, spaces at the ends and repeated ones are dropped, one is added in front (or at the end, with
//    `treat_whitespace_as_suffix`), and each becomes U+2581.
// 2. Split. Unigram: the pieces with the highest sum of scores, by Viterbi over bytes from left to right, in single
//    precision; of equal sums the first found stays, that is the one whose last piece is longest. A character without a
//    piece of its own scores the lowest score less 10; a user-defined symbol of n bytes scores (n - 1) / 10. BPE: starting from characters and user-defined symbols, the neighbours that together make the
//    piece with the highest score are merged, the leftmost first; user-defined symbols are never merged.
// 3. Unknown characters become the pieces of their UTF-8 bytes, or without byte fallback, one unknown id for each run.
//
// Decoding joins the pieces with U+2581 as a space and drops the one at the start. Control pieces are empty, an unknown
// one is `unk_surface`; runs of byte pieces are read as UTF-8, with U+FFFD for each byte that does not belong to a
// character.
//
// Time is linear in the text (BPE: n log n) times the longest piece. A file is refused unless every length fits in what
// is left of it; a rule that points outside of the map is as if it were not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace anydepth {

class Tokenizer {
 public:
  // Copies what it needs of a model file, unigram or BPE; throws std::runtime_error with a message, or std::bad_alloc.
  Tokenizer(const void* data, size_t size);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Ids without bos and eos, of any bytes; throws std::runtime_error if they are more than 64 MiB when normalised.
  std::vector<int32_t> encode(std::string_view utf8) const;
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
