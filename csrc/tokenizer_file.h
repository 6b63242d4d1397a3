// Reads a SentencePiece model file, a protobuf message, from an untrusted buffer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace anydepth::spm {

constexpr size_t LONGEST_PIECE = 7999, MOST_PIECES = size_t(1) << 24, MOST_PIECE_BYTES = size_t(1) << 26;
constexpr double USER_DEFINED_SCORE = 0.1;  // for each byte after the first

enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
enum class ModelType { unigram = 1, bpe };

[[noreturn]] inline void fail(const std::string& message) {
  throw std::runtime_error("the tokenizer model " + message);
}

// A protobuf message, read field by field.
class Message {
 public:
  explicit Message(std::string_view data) : data_(data) {}

  bool next() {
    if (at_ == data_.size()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    wire_ = static_cast<int>(key & 7);
    if (field == 0) damaged();
    if (wire_ == 0) {
      integer_ = varint();
    } else if (wire_ == 1) {
      take(8);
    } else if (wire_ == 2) {
      const uint64_t length = varint();
      if (length > data_.size() - at_) damaged();
      bytes_ = take(static_cast<size_t>(length));
    } else if (wire_ == 5) {
      bytes_ = take(4);
    } else {
      damaged();
    }
    return true;
  }

  uint64_t integer() const { return expect(0), integer_; }
  bool flag() const { return integer() != 0; }
  std::string_view bytes() const { return expect(2), bytes_; }
  float number() const {
    expect(5);
    uint32_t bits = 0;
    for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<uint8_t>(bytes_[i]);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  uint64_t field = 0;

 private:
  [[noreturn]] static void damaged() { fail("is damaged, or is not a SentencePiece model"); }
  void expect(int wire) const {
    if (wire_ != wire) damaged();
  }
  std::string_view take(size_t count) {
    if (count > data_.size() - at_) damaged();
    at_ += count;
    return data_.substr(at_ - count, count);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
    damaged();
  }

  std::string_view data_, bytes_;
  size_t at_ = 0;
  uint64_t integer_ = 0;
  int wire_ = 0;
};

struct Piece {
  std::string_view text;
  float score = 0.0f;
  Type type = Type::normal;
};

struct Normalisation {
  std::string_view map;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool whitespace_as_suffix = false;
};

struct ModelFile {
  std::vector<Piece> pieces;
  ModelType type = ModelType::unigram;
  bool byte_fallback = false;
  std::string_view unknown_surface = " \xE2\x81\x87 ";
  Normalisation normaliser, denormaliser;
};

inline Piece read_piece(Message message) {
  Piece piece;
  while (message.next()) {
    if (message.field == 1) piece.text = message.bytes();
    if (message.field == 2) piece.score = message.number();
    if (message.field == 3) {
      if (message.integer() < 1 || message.integer() > 6) fail("has a piece of an unknown type");
      piece.type = static_cast<Type>(message.integer());
    }
  }
  if (piece.text.empty()) fail("has an empty piece");
  if (piece.text.find('\0') != std::string_view::npos) fail("has a piece with a zero byte");
  if (piece.text.size() > LONGEST_PIECE) fail("has a piece that is too long");
  if (std::isnan(piece.score)) fail("has a score that is not a number");
  return piece;
}

inline void read_trainer(Message message, ModelFile& file) {
  while (message.next()) {
    if (message.field == 3) {
      if (message.integer() < 1 || message.integer() > 2) fail("is neither unigram nor BPE");
      file.type = static_cast<ModelType>(message.integer());
    }
    if (message.field == 24) file.normaliser.whitespace_as_suffix = message.flag();
    if (message.field == 35) file.byte_fallback = message.flag();
    if (message.field == 44) file.unknown_surface = message.bytes().substr(0, message.bytes().find('\0'));
  }
}

inline void read_normaliser(Message message, Normalisation& spec) {
  while (message.next()) {
    if (message.field == 2) spec.map = message.bytes();
    if (message.field == 3) spec.add_dummy_prefix = message.flag();
    if (message.field == 4) spec.remove_extra_whitespaces = message.flag();
    if (message.field == 5) spec.escape_whitespaces = message.flag();
  }
}

inline ModelFile read_file(std::string_view data) {
  ModelFile file;
  Message message(data);
  size_t bytes = 0;
  while (message.next()) {
    if (message.field == 1) {
      file.pieces.push_back(read_piece(Message(message.bytes())));
      bytes += file.pieces.back().text.size();
      if (file.pieces.size() > MOST_PIECES || bytes > MOST_PIECE_BYTES) fail("has too many pieces");
    }
    if (message.field == 2) read_trainer(Message(message.bytes()), file);
    if (message.field == 3) read_normaliser(Message(message.bytes()), file.normaliser);
    if (message.field == 5) read_normaliser(Message(message.bytes()), file.denormaliser);
  }
  if (file.pieces.empty()) fail("has no pieces");
  if (file.unknown_surface.size() > LONGEST_PIECE) fail("has a text for what is unknown that is too long");
  if (file.type == ModelType::unigram) {
    for (Piece& piece : file.pieces)
      if (piece.type == Type::user_defined)
        piece.score = static_cast<float>(static_cast<double>(piece.text.size() - 1) * USER_DEFINED_SCORE);
  }
  return file;
}

}  // namespace anydepth::spm
