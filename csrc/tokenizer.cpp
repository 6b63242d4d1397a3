#include "tokenizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace anydepth {

namespace {

constexpr std::string_view SPACE = "\xE2\x96\x81", REPLACEMENT = "\xEF\xBF\xBD";
constexpr size_t LONGEST_PIECE = 7999, MOST_PIECES = size_t(1) << 24, MOST_PIECE_BYTES = size_t(1) << 26;
constexpr size_t LONGEST_TEXT = size_t(1) << 26;  // when normalised, in bytes
constexpr float UNKNOWN_PENALTY = 10.0f;
constexpr double USER_DEFINED_SCORE = 0.1;  // for each byte after the first

enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
enum class ModelType { unigram = 1, bpe };

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error("the tokenizer model " + message); }

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
  [[noreturn]] static void damaged() { fail("is damaged, or no SentencePiece model"); }
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

Piece read_piece(Message message) {
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

void read_trainer(Message message, ModelFile& file) {
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

void read_normaliser(Message message, Normalisation& spec) {
  while (message.next()) {
    if (message.field == 2) spec.map = message.bytes();
    if (message.field == 3) spec.add_dummy_prefix = message.flag();
    if (message.field == 4) spec.remove_extra_whitespaces = message.flag();
    if (message.field == 5) spec.escape_whitespaces = message.flag();
  }
}

ModelFile read_file(std::string_view data) {
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
  if (file.type == ModelType::unigram) {
    for (Piece& piece : file.pieces)
      if (piece.type == Type::user_defined)
        piece.score = static_cast<float>(static_cast<double>(piece.text.size() - 1) * USER_DEFINED_SCORE);
  }
  return file;
}

// Of the character that a byte begins, in bytes; 1 for a byte that begins none.
size_t character_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Length of the valid UTF-8 character at the start of a text that is not empty, or 0.
size_t valid_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = character_length(text[0]);
  if (length == 1 || length > text.size()) return 0;
  uint32_t code = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t LOWEST[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = first < 0xF8 && code >= LOWEST[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return valid ? length : 0;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Pieces by their bytes. The children of a node are neighbours; a node with many has a table of them. The root is 0,
// which as a child means none.
class Trie {
 public:
  struct Node {
    uint32_t children = 0;  // the first, or where the table begins
    int32_t id = -1;        // of the piece that ends here
    float score = 0.0f;
    uint16_t count = 0;
    Type type = Type::normal;
  };

  Trie() : nodes_(1), labels_(1) {}

  Trie(const std::vector<Piece>& pieces, std::vector<int32_t> ids) : Trie() {
    sort_by_text(pieces, ids);
    struct Range {
      size_t first, last;  // of ids, whose texts share the bytes that lead to the node
    };
    std::vector<Range> ranges = {{0, ids.size()}};  // by node
    size_t level_end = 1, depth = 0;
    for (size_t node = 0; node < ranges.size(); ++node) {
      if (node == level_end) level_end = ranges.size(), ++depth;
      Range range = ranges[node];
      if (range.first < range.last && pieces[ids[range.first]].text.size() == depth) {  // shorter texts sort first
        const int32_t id = ids[range.first++];
        nodes_[node].id = id;
        nodes_[node].score = pieces[id].score;
        nodes_[node].type = pieces[id].type;
        if (range.first < range.last && pieces[ids[range.first]].text.size() == depth)
          fail("has a piece twice: " + std::string(pieces[id].text));
      }
      const size_t children = ranges.size();
      while (range.first < range.last) {
        const auto label = static_cast<uint8_t>(pieces[ids[range.first]].text[depth]);
        size_t last = range.first + 1;
        while (last < range.last && static_cast<uint8_t>(pieces[ids[last]].text[depth]) == label) ++last;
        ranges.push_back({range.first, last});
        nodes_.emplace_back();
        labels_.push_back(label);
        range.first = last;
      }
      const size_t count = ranges.size() - children;
      nodes_[node].count = static_cast<uint16_t>(count);
      nodes_[node].children = static_cast<uint32_t>(count > FEW ? tables_.size() : children);
      if (count > FEW) {
        tables_.resize(tables_.size() + 256);
        uint32_t* table = tables_.data() + tables_.size() - 256;
        for (size_t child = children; child < ranges.size(); ++child)
          table[labels_[child]] = static_cast<uint32_t>(child);
      }
    }
  }

  uint32_t child(uint32_t parent, char byte) const {
    const Node& node = nodes_[parent];
    const auto label = static_cast<uint8_t>(byte);
    if (node.count > FEW) return tables_[node.children + label];
    for (uint32_t i = node.children; i < node.children + node.count; ++i)
      if (labels_[i] == label) return i;
    return 0;
  }

  // The node of a text below another node, or 0.
  uint32_t walk(uint32_t from, std::string_view text) const {
    for (const char byte : text)
      if ((from = child(from, byte)) == 0) break;
    return from;
  }

  // Length of the longest piece at the start of a text, or 0.
  size_t longest(std::string_view text) const {
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size() && (node = child(node, text[i])) != 0; ++i)
      if (nodes_[node].id >= 0) found = i + 1;
    return found;
  }

  const Node& operator[](uint32_t node) const { return nodes_[node]; }

 private:
  static constexpr size_t FEW = 8;

  static void sort_by_text(const std::vector<Piece>& pieces, std::vector<int32_t>& ids) {
    struct Key {
      uint64_t start;  // the first eight bytes, which mostly decide
      std::string_view text;
      int32_t id;
      bool operator<(const Key& other) const { return start != other.start ? start < other.start : text < other.text; }
    };
    std::vector<Key> keys;
    keys.reserve(ids.size());
    for (const int32_t id : ids) {
      const std::string_view text = pieces[id].text;
      uint64_t start = 0;
      for (size_t i = 0; i < 8; ++i) start = start << 8 | (i < text.size() ? static_cast<uint8_t>(text[i]) : 0);
      keys.push_back({start, text, id});
    }
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = keys[i].id;
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;
  std::vector<uint32_t> tables_;
};

class Normaliser {
 public:
  Normaliser(const Normalisation& spec, const Trie& protected_pieces)
      : add_dummy_prefix_(spec.add_dummy_prefix),
        remove_extra_(spec.remove_extra_whitespaces),
        as_suffix_(spec.whitespace_as_suffix),
        space_(spec.escape_whitespaces ? SPACE : " "),
        protected_(protected_pieces) {
    if (!spec.map.empty()) read_map(spec.map);
    find_plain_characters();
  }

  std::string operator()(std::string_view text) const {
    std::string out;
    if (remove_extra_) {
      while (!text.empty()) {
        const Replaced start = replace(text);
        if (start.by != " ") break;
        text.remove_prefix(start.length);
      }
    }
    if (text.empty()) return out;
    out.reserve(text.size() + text.size() / 2 + 16);
    if (add_dummy_prefix_ && !as_suffix_) out += space_;
    bool after_space = remove_extra_;
    for (size_t i = 0; i < text.size();) {
      const auto first = static_cast<uint8_t>(text[i]);
      if (plain_[first] && (i + 1 == text.size() || static_cast<uint8_t>(text[i + 1]) < 0x80)) {
        if (first != ' ') {
          out += text[i];
        } else if (!after_space) {
          out += space_;
        }
        after_space = remove_extra_ && first == ' ';
        ++i;
        continue;
      }
      Replaced next = replace(text.substr(i));
      i += next.length;
      while (after_space && !next.by.empty() && next.by[0] == ' ') next.by.remove_prefix(1);
      if (next.by.empty()) continue;
      for (const char byte : next.by) {
        if (byte == ' ') {
          out += space_;
        } else {
          out += byte;
        }
      }
      after_space = remove_extra_ && next.by.back() == ' ';
      if (out.size() > LONGEST_TEXT) throw std::runtime_error("the text is too long");
    }
    while (remove_extra_ && ends_with(out, space_)) out.resize(out.size() - space_.size());
    if (add_dummy_prefix_ && as_suffix_) out += space_;
    return out;
  }

 private:
  struct Replaced {
    std::string_view by;
    size_t length;  // of what it replaces
  };

  void read_map(std::string_view map) {
    size_t size = 0;
    if (map.size() > 4)
      for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(map[i]);
    if (map.size() <= 4 || size > map.size() - 4 || size % 4 != 0 || size == 0) fail("has a damaged normalisation map");
    map.remove_prefix(4);
    units_.resize(size / 4);
    for (size_t i = 0; i < size; ++i) units_[i / 4] |= uint32_t(static_cast<uint8_t>(map[i])) << (i % 4 * 8);
    replacements_ = map.substr(size);
  }

  // Where the children of a unit are, relative to it.
  static size_t offset(uint32_t unit) { return size_t(unit >> 10) << ((unit & 1u << 9) >> 6); }

  // Moves from the place of a unit's children to that of the children of the one of this label.
  bool step(size_t& at, char byte, bool& has_value) const {
    const auto label = static_cast<uint8_t>(byte);
    at ^= label;
    if (at >= units_.size()) return false;
    const uint32_t unit = units_[at];
    if ((unit & (1u << 31 | 0xFFu)) != label) return false;
    at ^= offset(unit);
    has_value = (unit >> 8 & 1) != 0;
    return true;
  }

  Replaced replace(std::string_view text) const {
    if (const size_t length = protected_.longest(text)) return {text.substr(0, length), length};
    if (!units_.empty()) {
      size_t at = offset(units_[0]), length = 0, value = 0;
      bool has_value = false;
      for (size_t i = 0; i < text.size() && step(at, text[i], has_value); ++i) {
        if (!has_value || at >= units_.size() || (units_[at] & 0x7FFFFFFFu) >= replacements_.size()) continue;
        length = i + 1;
        value = units_[at] & 0x7FFFFFFFu;
      }
      if (length) return {std::string_view(replacements_.c_str() + value), length};
    }
    if (const size_t length = valid_character(text)) return {text.substr(0, length), length};
    return {REPLACEMENT, 1};
  }

  // Those that stay as they are if another ASCII character or nothing follows.
  void find_plain_characters() {
    for (int first = 0; first < 0x80; ++first) {
      const char byte = static_cast<char>(first);
      plain_[first] = protected_.child(0, byte) == 0;
      size_t at = units_.empty() ? 0 : offset(units_[0]);
      bool has_value = false;
      if (units_.empty() || !step(at, byte, has_value)) continue;
      if (has_value) plain_[first] = false;
      for (int second = 0; second < 0x80; ++second) {
        size_t below = at;
        if (step(below, static_cast<char>(second), has_value)) plain_[first] = false;
      }
    }
  }

  bool add_dummy_prefix_, remove_extra_, as_suffix_;
  std::string_view space_;
  const Trie& protected_;
  std::vector<uint32_t> units_;
  std::string replacements_;
  bool plain_[256] = {};
};

// The byte of a piece such as <0x0A>, or -1.
int parse_byte(std::string_view text) {
  constexpr std::string_view DIGITS = "0123456789ABCDEF";
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const size_t high = DIGITS.find(text[3]), low = DIGITS.find(text[4]);
  return high == std::string_view::npos || low == std::string_view::npos ? -1 : static_cast<int>(high * 16 + low);
}

// Appends bytes as text, and empties them.
void flush(std::string& bytes, std::string& text) {
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = valid_character(std::string_view(bytes).substr(i));
    text += length ? std::string_view(bytes).substr(i, length) : REPLACEMENT;
    i += std::max<size_t>(length, 1);
  }
  bytes.clear();
}

std::vector<int32_t> select(const std::vector<Piece>& pieces, bool (*wanted)(Type)) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (wanted(pieces[i].type)) ids.push_back(static_cast<int32_t>(i));
  return ids;
}

bool is_text(Type type) { return type == Type::normal || type == Type::user_defined || type == Type::unused; }

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(const ModelFile& file)
      : type(file.type),
        byte_fallback(file.byte_fallback),
        trie(file.pieces, select(file.pieces, is_text)),
        reserved(file.pieces, select(file.pieces, [](Type type) { return !is_text(type); })),
        symbols(file.pieces, select(file.pieces, [](Type type) { return type == Type::user_defined; })),
        normaliser(file.normaliser, symbols),
        remove_leading_space(file.normaliser.add_dummy_prefix || file.normaliser.remove_extra_whitespaces),
        remove_extra_whitespaces(file.normaliser.remove_extra_whitespaces),
        denormaliser(file.denormaliser.map.empty() ? nullptr : std::make_unique<Normaliser>(file.denormaliser, none)) {
    std::fill(std::begin(byte_ids), std::end(byte_ids), -1);
    surfaces.reserve(file.pieces.size());
    for (const Piece& piece : file.pieces) add(piece, file.unknown_surface);
    if (unknown_id < 0) fail("has no unknown piece");
    if (byte_fallback && std::count(std::begin(byte_ids), std::end(byte_ids), -1)) fail("lacks pieces for some bytes");
  }

  void add(const Piece& piece, std::string_view unknown_surface) {
    const auto id = static_cast<int32_t>(surfaces.size());
    Surface surface{texts.size(), 0, piece.type, piece.text.substr(0, SPACE.size()) == SPACE};
    if (piece.type == Type::normal) lowest = std::min(lowest, piece.score);
    if (piece.type == Type::unknown) {
      if (unknown_id >= 0) fail("has two unknown pieces");
      unknown_id = id;
      texts += unknown_surface;
    } else if (piece.type == Type::byte) {
      const int byte = parse_byte(piece.text);
      if (!byte_fallback || byte < 0) fail("has a byte piece that has no place in it: " + std::string(piece.text));
      byte_ids[byte] = id;
      texts += static_cast<char>(byte);
    } else if (piece.type != Type::control) {
      for (size_t i = 0; i < piece.text.size();) {
        const bool space = piece.text.substr(i, SPACE.size()) == SPACE;
        texts += space ? ' ' : piece.text[i];
        i += space ? SPACE.size() : 1;
      }
    }
    surface.length = texts.size() - surface.begin;
    surfaces.push_back(surface);
  }

  // Ids of the pieces of a normalised text, last first.
  std::vector<int32_t> split_unigram(std::string_view text) const {
    struct Best {  // of all ways to split the text up to a position
      float score = 0.0f;
      int32_t begin = -1, id = 0;  // of the last piece
    };
    const size_t size = text.size();
    const float unknown_score = lowest - UNKNOWN_PENALTY;
    std::vector<Best> best(size + 1);
    for (size_t begin = 0; begin < size;) {
      const float before = best[begin].score;
      const size_t next = std::min(begin + character_length(text[begin]), size);
      bool known = false;
      uint32_t node = 0;
      for (size_t end = begin; end < size && (node = trie.child(node, text[end])) != 0;) {
        ++end;
        const Trie::Node& found = trie[node];
        if (found.id < 0 || found.type == Type::unused) continue;
        Best& target = best[end];
        const float score = found.score + before;
        if (target.begin < 0 || score > target.score) target = {score, static_cast<int32_t>(begin), found.id};
        known = known || end == next;
      }
      if (!known) {
        const float score = unknown_score + before;
        if (best[next].begin < 0 || score > best[next].score)
          best[next] = {score, static_cast<int32_t>(begin), unknown_id};
      }
      begin = next;
    }
    std::vector<int32_t> ids;
    for (size_t end = size; end > 0; end = static_cast<size_t>(best[end].begin))
      append(best[end].id, text.substr(best[end].begin, end - best[end].begin), ids);
    return ids;
  }

  std::vector<int32_t> split_bpe(std::string_view text) const {
    struct Symbol {
      int32_t previous, next;  // -1: none
      uint32_t begin, length;  // 0: merged into the one before
      uint32_t node;           // in the trie, or 0
      bool frozen;
    };
    struct Merge {
      float score;
      int32_t left, right;
      uint32_t length;
      bool operator<(const Merge& other) const {
        return score < other.score || (score == other.score && left > other.left);
      }
    };
    std::vector<Symbol> parts;
    for (size_t begin = 0; begin < text.size();) {
      const size_t symbol = symbols.longest(text.substr(begin));
      const size_t length = symbol ? symbol : std::min(character_length(text[begin]), text.size() - begin);
      const auto index = static_cast<int32_t>(parts.size());
      parts.push_back({index - 1, index + 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(length),
                       trie.walk(0, text.substr(begin, length)), symbol != 0});
      begin += length;
    }
    if (parts.empty()) return {};
    parts.back().next = -1;

    std::priority_queue<Merge> merges;
    std::unordered_map<int32_t, uint32_t> unused;  // how long the left part of a piece is that only leads to others
    const auto consider = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const Symbol &a = parts[left], &b = parts[right];
      if (a.frozen || b.frozen || a.node == 0) return;
      const uint32_t node = trie.walk(a.node, text.substr(b.begin, b.length));
      if (node == 0 || trie[node].id < 0) return;
      merges.push({trie[node].score, left, right, a.length + b.length});
      if (trie[node].type == Type::unused) unused[trie[node].id] = a.length;
    };
    for (size_t i = 1; i < parts.size(); ++i) consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!merges.empty()) {
      const Merge merge = merges.top();
      merges.pop();
      Symbol &left = parts[merge.left], &right = parts[merge.right];
      if (left.length == 0 || right.length == 0 || left.length + right.length != merge.length) continue;
      left.node = trie.walk(left.node, text.substr(right.begin, right.length));
      left.length += right.length;
      left.next = right.next;
      if (right.next >= 0) parts[right.next].previous = merge.left;
      right.length = 0;
      consider(left.previous, merge.left);
      consider(merge.left, left.next);
    }

    std::vector<int32_t> ids;
    std::vector<std::string_view> open;
    int32_t last = static_cast<int32_t>(parts.size()) - 1;
    while (parts[last].length == 0) --last;
    for (int32_t i = last; i >= 0; i = parts[i].previous) {
      open.push_back(text.substr(parts[i].begin, parts[i].length));
      while (!open.empty()) {
        const std::string_view part = open.back();
        open.pop_back();
        const Trie::Node& node = trie[trie.walk(0, part)];
        const int32_t special = reserved[reserved.walk(0, part)].id;
        const auto split = special < 0 && node.type == Type::unused ? unused.find(node.id) : unused.end();
        if (split == unused.end()) {
          append(special >= 0 ? special : node.id >= 0 ? node.id : unknown_id, part, ids);
        } else {
          open.push_back(part.substr(0, split->second));
          open.push_back(part.substr(split->second));
        }
      }
    }
    return ids;
  }

  // Appends a piece to those that come after it in the text.
  void append(int32_t id, std::string_view text, std::vector<int32_t>& ids) const {
    if (id != unknown_id) {
      ids.push_back(id);
    } else if (byte_fallback) {
      for (size_t i = text.size(); i-- > 0;) ids.push_back(byte_ids[static_cast<uint8_t>(text[i])]);
    } else if (ids.empty() || ids.back() != unknown_id) {
      ids.push_back(id);
    }
  }

  struct Surface {
    size_t begin, length;  // in texts
    Type type;
    bool starts_with_space;  // U+2581
  };

  ModelType type;
  bool byte_fallback;
  Trie trie;      // pieces that text is split into
  Trie reserved;  // other pieces
  Trie symbols;   // user-defined ones
  Trie none;
  Normaliser normaliser;
  bool remove_leading_space, remove_extra_whitespaces;
  std::unique_ptr<Normaliser> denormaliser;  // or null
  std::vector<Surface> surfaces;
  std::string texts;
  int32_t byte_ids[256];
  int32_t unknown_id = -1;
  float lowest = FLT_MAX;  // score
};

Tokenizer::Tokenizer(const void* data, size_t size)
    : parts_(std::make_unique<const Parts>(read_file({static_cast<const char*>(data), size}))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view utf8) const {
  const std::string text = parts_->normaliser(utf8);
  if (text.size() > LONGEST_TEXT) throw std::runtime_error("the text is too long");
  std::vector<int32_t> ids = parts_->type == ModelType::bpe ? parts_->split_bpe(text) : parts_->split_unigram(text);
  std::reverse(ids.begin(), ids.end());
  return ids;
}

std::string Tokenizer::decode(const int32_t* ids, size_t count) const {
  const Parts& parts = *parts_;
  std::string text, bytes;
  bool at_start = true, dropped = false;
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= size()) continue;
    const Parts::Surface& surface = parts.surfaces[static_cast<size_t>(ids[i])];
    std::string_view own = std::string_view(parts.texts).substr(surface.begin, surface.length);
    if (surface.type == Type::byte) {
      bytes += own;
      continue;
    }
    flush(bytes, text);
    if (dropped || !text.empty()) at_start = false;
    dropped = false;
    if (at_start && parts.remove_leading_space && surface.starts_with_space && is_text(surface.type)) {
      own.remove_prefix(1);
      dropped = !parts.remove_extra_whitespaces;  // else those of the next piece go too
    }
    text += own;
  }
  flush(bytes, text);
  return parts.denormaliser ? (*parts.denormaliser)(text) : text;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(parts_->surfaces.size()); }

std::string join_lines(std::string_view utf8) {
  constexpr std::string_view BREAKS[] = {"\r\n", "\n",   "\r",       "\v",           "\f",
                                         "\x1C", "\x1D", "\x1E", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"};
  std::string out;
  for (size_t i = 0; i < utf8.size();) {
    size_t length = 0;
    for (const std::string_view line_break : BREAKS)
      if (length == 0 && utf8.substr(i, line_break.size()) == line_break) length = line_break.size();
    if (length == 0) {
      out += utf8[i++];
    } else {
      i += length;
      if (i < utf8.size()) out += ' ';
    }
  }
  return out;
}

}  // namespace anydepth
