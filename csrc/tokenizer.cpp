#include "tokenizer.h"

#include <algorithm>
#include <cfloat>
#include <iterator>
#include <queue>
#include <stdexcept>
#include <unordered_map>

#include "tokenizer_file.h"
#include "tokenizer_normaliser.h"

namespace anydepth {

using namespace spm;

namespace {

constexpr float UNKNOWN_PENALTY = 10.0f;

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
        reserved(file.pieces, select(file.pieces, [](Type kind) { return !is_text(kind); })),
        symbols(file.pieces, select(file.pieces, [](Type kind) { return kind == Type::user_defined; })),
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
    surfaces.push_back({static_cast<uint32_t>(texts.size()), piece.type, piece.text.substr(0, SPACE.size()) == SPACE});
  }

  // Ids of the pieces of a normalised text, last first.
  std::vector<int32_t> split_unigram(std::string_view text, const StopConditions& stop) const {
    struct Best {  // of all ways to split the text up to a position
      float score = 0.0f;
      int32_t begin = -1, id = 0;  // of the last piece
    };
    const size_t size = text.size();
    const float unknown_score = lowest - UNKNOWN_PENALTY;
    std::vector<Best> best(size + 1);
    StopChecker checker(stop);
    for (size_t begin = 0; begin < size;) {
      checker.step();
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
    for (size_t end = size; end > 0; end = static_cast<size_t>(best[end].begin)) {
      checker.step();
      append(best[end].id, text.substr(best[end].begin, end - best[end].begin), ids);
    }
    return ids;
  }

  std::vector<int32_t> split_bpe(std::string_view text, const StopConditions& stop) const {
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
    StopChecker checker(stop);
    for (size_t begin = 0; begin < text.size();) {
      checker.step();
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
    for (size_t i = 1; i < parts.size(); ++i) {
      checker.step();
      consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    }
    while (!merges.empty()) {
      checker.step();
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
      checker.step();
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
    uint32_t end;  // in texts; it begins where the one before it ends
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

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, const StopConditions& stop) const {
  const std::string text = parts_->normaliser(utf8, stop);
  if (text.size() > LONGEST_TEXT) throw TooLong(TOO_LONG);
  const bool is_bpe = parts_->type == ModelType::bpe;
  std::vector<int32_t> ids = is_bpe ? parts_->split_bpe(text, stop) : parts_->split_unigram(text, stop);
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
    const uint32_t begin = ids[i] > 0 ? parts.surfaces[static_cast<size_t>(ids[i]) - 1].end : 0;
    std::string_view own = std::string_view(parts.texts).substr(begin, surface.end - begin);
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
