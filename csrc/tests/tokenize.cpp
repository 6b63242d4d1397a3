// Runs the tokenizer over standard input, to compare it with sentencepiece, and damaged model files, for sanitizers.
//   tokenize MODEL encode              texts to lines of ids
//   tokenize MODEL decode              lines of ids to texts
//   tokenize MODEL join                texts to texts on one line
//   tokenize MODEL capitals            texts to themselves, or if they are in capitals to sentence case and back
//   tokenize MODEL time REPEATS        CPU seconds to encode the texts and to decode their ids, and the texts' bytes
//   tokenize MODEL damage COUNT SEED   damaged copies of the model are refused, or encode the texts and decode
//
// Texts are of any bytes: before each is a line with its length in bytes, after it a line break.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "capitals.h"
#include "tokenizer.h"

namespace {

using anydepth::Tokenizer;

std::vector<std::string> read_texts() {
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) {
    std::string text(std::stoul(line), '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    std::cin.ignore();
    texts.push_back(std::move(text));
  }
  return texts;
}

void encode(const Tokenizer& tokenizer) {
  std::string out;
  for (const std::string& text : read_texts()) {
    for (const int32_t id : tokenizer.encode(text)) out += std::to_string(id) + ' ';
    out += '\n';
  }
  std::cout << out;
}

void write_text(const std::string& text) { std::cout << text.size() << '\n' << text << '\n'; }

void decode(const Tokenizer& tokenizer) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream numbers(line);
    const std::vector<int32_t> ids{std::istream_iterator<int32_t>(numbers), {}};
    write_text(tokenizer.decode(ids.data(), ids.size()));
  }
}

void change_case() {
  for (const std::string& text : read_texts()) {
    const bool found = anydepth::is_in_capitals(text);
    const std::string lower = found ? anydepth::to_sentence_case(text) : text;
    write_text(lower);
    write_text(anydepth::to_capitals(lower));
  }
}

void measure(const Tokenizer& tokenizer, int repeats) {
  const std::vector<std::string> texts = read_texts();
  std::vector<std::vector<int32_t>> ids(texts.size());
  size_t bytes = 0;
  const std::clock_t start = std::clock();
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer.encode(texts[i]);
  const std::clock_t middle = std::clock();
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (const std::vector<int32_t>& one : ids) bytes += tokenizer.decode(one.data(), one.size()).size();
  const std::clock_t end = std::clock();
  std::printf("%.4f %.4f %zu\n", double(middle - start) / CLOCKS_PER_SEC, double(end - middle) / CLOCKS_PER_SEC, bytes);
}

std::string damage(std::string data, std::mt19937& random) {
  const auto below = [&](size_t bound) { return bound ? random() % bound : 0; };
  // Most of a file is its normalisation map: half of the damage is to the ends, where everything else is.
  const auto place = [&] {
    const size_t near = std::min<size_t>(data.size(), 6000);
    return below(2) ? below(data.size()) : below(2) ? below(near) : data.size() - near + below(near);
  };
  for (size_t changes = 1 + below(3); changes-- > 0 && !data.empty();) {
    const size_t at = place();
    switch (below(12)) {
      case 0: data.erase(at, 1 + below(16)); break;
      case 1: data.insert(at, 1 + below(16), static_cast<char>(below(256))); break;
      case 2: data.insert(at, data.substr(place(), below(200))); break;
      case 3: data.resize(at); break;
      case 4: data[at] = '\xFF'; break;
      case 5: case 6: case 7: data[at] = static_cast<char>(below(256)); break;
      default: data[at] = static_cast<char>(data[at] ^ 1 << below(8));
    }
  }
  return data;
}

void run_damaged(const std::string& model, int count, unsigned seed) {
  const std::vector<std::string> texts = read_texts();
  std::mt19937 random(seed);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string data = damage(model, random);
    const std::unique_ptr<char[]> exact(new char[data.size()]);  // so that a read past its end is found
    data.copy(exact.get(), data.size());
    try {
      const Tokenizer tokenizer(exact.get(), data.size());
      for (const std::string& text : texts) {
        const std::vector<int32_t> ids = tokenizer.encode(text);
        tokenizer.decode(ids.data(), ids.size());
      }
      std::vector<int32_t> ids(64);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(tokenizer.size() + 9)) - 4;
      tokenizer.decode(ids.data(), ids.size());
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  std::printf("%d refused, %d ran\n", refused, count - refused);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() < 2) return 2;
  std::ios::sync_with_stdio(false);
  std::ifstream file(given[0], std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(file), {}};
  try {
    if (given[1] == "damage" && given.size() > 3) {
      run_damaged(model, std::stoi(given[2]), static_cast<unsigned>(std::stoul(given[3])));
      return 0;
    }
    const Tokenizer tokenizer(model.data(), model.size());
    if (given[1] == "encode") encode(tokenizer);
    if (given[1] == "decode") decode(tokenizer);
    if (given[1] == "join")
      for (const std::string& text : read_texts()) write_text(anydepth::join_lines(text));
    if (given[1] == "capitals") change_case();
    if (given[1] == "time" && given.size() > 2) measure(tokenizer, std::stoi(given[2]));
  } catch (const std::exception& error) {
    std::printf("refused: %s\n", error.what());
    return 1;
  }
}
