#include "json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "buffer.h"

namespace anydepth {

namespace {

constexpr int DEEPEST = 64;

}  // namespace

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Json parse() {
    Json found = value(0);
    skip_space();
    if (at_ != text_.size()) fail();
    return found;
  }

 private:
  [[noreturn]] static void fail() { throw Error("the header of the file is not valid JSON"); }

  Json value(int depth) {
    if (depth > DEEPEST) fail();
    skip_space();
    Json made;
    const char first = peek();
    if (first == '{') {
      made.type_ = Json::Type::object;
      each('{', '}', [&] {
        skip_space();
        std::string key = string();
        skip_space();
        expect(':');
        made.members_.emplace_back(std::move(key), value(depth + 1));
      });
    } else if (first == '[') {
      made.type_ = Json::Type::array;
      each('[', ']', [&] { made.items_.push_back(value(depth + 1)); });
    } else if (first == '"') {
      made.type_ = Json::Type::string;
      made.text_ = string();
    } else if (first == 't' || first == 'f') {
      made.type_ = Json::Type::boolean;
      made.number_ = first == 't';
      word(first == 't' ? "true" : "false");
    } else if (first == 'n') {
      word("null");
    } else {
      made.type_ = Json::Type::number;
      made.number_ = number();
    }
    return made;
  }

  template <class Read>
  void each(char open, char close, Read read) {
    expect(open);
    skip_space();
    if (peek() == close) {
      ++at_;
      return;
    }
    for (;;) {
      read();
      skip_space();
      if (peek() == close) break;
      expect(',');
    }
    ++at_;
  }

  std::string string() {
    expect('"');
    std::string found;
    for (;;) {
      const char c = peek();
      ++at_;
      if (c == '"') return found;
      if (static_cast<unsigned char>(c) < 0x20) fail();
      if (c != '\\') {
        found += c;
        continue;
      }
      const char escaped = peek();
      ++at_;
      switch (escaped) {
        case '"': case '\\': case '/': found += escaped; break;
        case 'b': found += '\b'; break;
        case 'f': found += '\f'; break;
        case 'n': found += '\n'; break;
        case 'r': found += '\r'; break;
        case 't': found += '\t'; break;
        case 'u': append_utf8(found, escape()); break;
        default: fail();
      }
    }
  }

  uint32_t escape() {
    uint32_t first = four_digits();
    if (first >= 0xDC00 && first < 0xE000) return 0xFFFD;
    if (first < 0xD800 || first >= 0xDC00) return first;
    if (text_.substr(at_, 2) != "\\u") return 0xFFFD;
    at_ += 2;
    const uint32_t second = four_digits();
    return second >= 0xDC00 && second < 0xE000 ? 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00) : 0xFFFD;
  }

  uint32_t four_digits() {
    uint32_t found = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) fail();
      found = found * 16 + static_cast<uint32_t>(digit);
    }
    return found;
  }

  static void append_utf8(std::string& to, uint32_t c) {
    const auto add = [&to](uint32_t byte) { to += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (c < 0x80) {
      add(c);
    } else if (c < 0x800) {
      add(0xC0 | c >> 6), add(0x80 | (c & 63));
    } else if (c < 0x10000) {
      add(0xE0 | c >> 12), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
    } else {
      add(0xF0 | c >> 18), add(0x80 | (c >> 12 & 63)), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
    }
  }

  // Exact for up to 15 digits and small exponents, else right to a few units in the last place: strtod would depend on
  // the program's locale.
  double number() {
    const bool negative = peek() == '-';
    if (negative) ++at_;
    uint64_t digits = 0;
    int exponent = 0, count = 0;
    const size_t from = at_;
    const auto read_digits = [&](bool fraction) {
      const size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (count < 19) {
          digits = digits * 10 + static_cast<uint64_t>(text_[at_] - '0');
          count += digits > 0;
          exponent -= fraction;
        } else {
          exponent += !fraction;
        }
        if (exponent > 100000 || exponent < -100000) fail();
      }
      if (at_ == start) fail();
    };
    read_digits(false);
    if (text_[from] == '0' && at_ - from > 1) fail();
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      read_digits(true);
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      const bool down = at_ < text_.size() && text_[at_] == '-';
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
      int given = 0;
      const size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        if (given < 10000) given = given * 10 + (text_[at_] - '0');
      if (at_ == start) fail();
      exponent += down ? -given : given;
    }
    double value = static_cast<double>(digits);
    const int steps = std::abs(exponent);
    const double factor = steps <= 22 ? power_of_ten(steps) : std::pow(10.0, std::min(steps, 400));
    value = digits == 0 ? 0.0 : exponent < 0 ? value / factor : value * factor;
    if (!std::isfinite(value)) fail();
    return negative ? -value : value;
  }

  static double power_of_ten(int n) {
    double found = 1.0;
    for (int i = 0; i < n; ++i) found *= 10.0;  // exact up to 22
    return found;
  }

  void word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) fail();
    at_ += expected.size();
  }
  void expect(char c) {
    if (peek() != c) fail();
    ++at_;
  }
  char peek() const {
    if (at_ >= text_.size()) fail();
    return text_[at_];
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) -> uint32_t {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const uint32_t first = byte(i);
    const int more = first < 0x80 ? 0 : first >= 0xC2 && first < 0xE0 ? 1 : first >= 0xE0 && first < 0xF0 ? 2
                     : first >= 0xF0 && first < 0xF5                  ? 3
                                                                      : -1;
    if (more < 0) return false;
    uint32_t c = more == 0 ? first : first & (0x3Fu >> more);
    for (int k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
      c = c << 6 | (byte(i + k) & 0x3F);
    }
    if ((more == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) || (more == 3 && (c < 0x10000 || c > 0x10FFFF)))
      return false;
    i += 1 + static_cast<size_t>(more);
  }
  return true;
}

Json Json::parse(std::string_view text) {
  if (!is_utf8(text)) throw Error("the header of the file is not valid UTF-8");
  return JsonParser(text).parse();
}

void Json::require(Type type) const {
  if (type_ != type) throw Error("a value in the header of the file has the wrong type");
}

bool Json::boolean() const {
  require(Type::boolean);
  return number_ != 0;
}

double Json::number() const {
  require(Type::number);
  return number_;
}

int64_t Json::integer(int64_t least, int64_t most) const {
  require(Type::number);
  if (!(number_ >= static_cast<double>(least) && number_ <= static_cast<double>(most)) ||
      number_ != std::floor(number_))
    throw Error("a number in the file is out of range");
  return static_cast<int64_t>(number_);
}

const std::string& Json::text() const {
  require(Type::string);
  return text_;
}

const std::vector<Json>& Json::items() const {
  require(Type::array);
  return items_;
}

const std::vector<std::pair<std::string, Json>>& Json::members() const {
  require(Type::object);
  return members_;
}

const Json* Json::find(std::string_view key) const {
  require(Type::object);
  for (const auto& [name, value] : members_)
    if (name == key) return value.is_null() ? nullptr : &value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw Error("the header of the file has no value for " + std::string(key));
  return *found;
}

}  // namespace anydepth
