// Normalises text as a SentencePiece model asks, and finds its pieces in text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "stop.h"
#include "tokenizer_file.h"

namespace anydepth::spm {

constexpr std::string_view SPACE = "\xE2\x96\x81", REPLACEMENT = "\xEF\xBF\xBD";
constexpr size_t LONGEST_TEXT = size_t(1) << 26;  // when normalised, in bytes
constexpr const char* TOO_LONG = "the text is longer than 64 MiB when normalised: split it into sentences";

// Of the character that a byte begins, in bytes; 1 for a byte that begins none.
inline size_t character_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Length of the valid UTF-8 character at the start of a text that is not empty, or 0.
inline size_t valid_character(std::string_view text) {
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

inline bool ends_with(std::string_view text, std::string_view end) {
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

  std::string operator()(std::string_view text, const StopConditions& stop = {}) const {
    std::string out;
    StopChecker checker(stop);
    if (remove_extra_) {
      while (!text.empty()) {
        checker.step();
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
      checker.step();
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
      if (out.size() > LONGEST_TEXT) throw TooLong(TOO_LONG);
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

}  // namespace anydepth::spm
