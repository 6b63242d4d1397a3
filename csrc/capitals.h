// Text in capitals, which is read in lowercase: few subwords of a vocabulary are in capitals. As data/capitals.py does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anydepth {

struct CapitalRange {
  char32_t first, last, step;
  int offset;  // to the lowercase letters
};

constexpr CapitalRange CAPITALS[] = {
    {0x41, 0x5A, 1, 32},     {0xC0, 0xD6, 1, 32},      {0xD8, 0xDE, 1, 32},     {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1},    {0x139, 0x147, 2, 1},     {0x14A, 0x176, 2, 1},    {0x178, 0x178, 1, -121},
    {0x179, 0x17D, 2, 1},    {0x1E00, 0x1E94, 2, 1},   {0x1EA0, 0x1EFE, 2, 1},  // Latin
    {0x386, 0x386, 1, 38},   {0x388, 0x38A, 1, 37},    {0x38C, 0x38C, 1, 64},   {0x38E, 0x38F, 1, 63},
    {0x391, 0x3A1, 1, 32},   {0x3A3, 0x3AB, 1, 32},    // Greek
    {0x400, 0x40F, 1, 80},   {0x410, 0x42F, 1, 32},    {0x460, 0x480, 2, 1},    {0x48A, 0x4BE, 2, 1},
    {0x4C0, 0x4C0, 1, 15},   {0x4C1, 0x4CD, 2, 1},     {0x4D0, 0x52E, 2, 1},    // Cyrillic
};
constexpr int LEAST_CAPITALS = 5;  // fewer may be an abbreviation

inline char32_t to_lower(char32_t letter) {
  for (const CapitalRange& one : CAPITALS)
    if (letter >= one.first && letter <= one.last && (letter - one.first) % one.step == 0)
      return static_cast<char32_t>(static_cast<int>(letter) + one.offset);
  return letter;
}

inline char32_t to_upper(char32_t letter) {
  for (const CapitalRange& one : CAPITALS) {
    const int64_t capital = int64_t(letter) - one.offset;
    if (capital >= one.first && capital <= one.last && (capital - one.first) % one.step == 0)
      return static_cast<char32_t>(capital);
  }
  return letter;
}

// Valid UTF-8 with each character changed. What is not of two or three bytes has no other case here, or is ASCII.
template <typename Change>
std::string change_characters(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  const auto rest = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i]) & 0x3F); };
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size == 4 || i + size > text.size()) {
      change(U'\0');
      out.append(text.substr(i, size));
      i += size;
      continue;
    }
    char32_t letter = lead;
    if (size == 2) letter = (letter & 0x1F) << 6 | rest(i + 1);
    if (size == 3) letter = (letter & 0x0F) << 12 | rest(i + 1) << 6 | rest(i + 2);
    letter = change(letter);
    if (letter < 0x80) {
      out += static_cast<char>(letter);
    } else if (letter < 0x800) {
      out += static_cast<char>(0xC0 | letter >> 6);
      out += static_cast<char>(0x80 | (letter & 0x3F));
    } else {
      out += static_cast<char>(0xE0 | letter >> 12);
      out += static_cast<char>(0x80 | (letter >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (letter & 0x3F));
    }
    i += size;
  }
  return out;
}

// Whether it has several capitals and no lowercase letter.
inline bool is_in_capitals(std::string_view text) {
  int capitals = 0;
  bool lowercase = false;
  for (size_t i = 0; i < text.size() && !lowercase; ++i) lowercase = text[i] >= 'a' && text[i] <= 'z';
  if (lowercase) return false;  // most texts, at once
  change_characters(text, [&](char32_t letter) {
    capitals += to_lower(letter) != letter;
    lowercase = lowercase || to_upper(letter) != letter;
    return letter;
  });
  return !lowercase && capitals >= LEAST_CAPITALS;
}

// In lowercase, but for the first letter of a sentence and after a full stop, as in U.S.A.
inline std::string to_sentence_case(std::string_view text) {
  bool is_first = true;
  return change_characters(text, [&](char32_t letter) {
    const char32_t lower = to_lower(letter), found = is_first ? letter : lower;
    if (letter == '.' || letter == '!' || letter == '?')
      is_first = true;
    else if (lower != letter || (letter >= '0' && letter <= '9'))
      is_first = false;
    return found;
  });
}

inline std::string to_capitals(std::string_view text) { return change_characters(text, to_upper); }

}  // namespace anydepth
