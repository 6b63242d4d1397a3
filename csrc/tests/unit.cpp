// Unit tests of the core's parts: sizes, JSON, UTF-8, the C API with wrong arguments.   unit [MODEL [OTHER...]]
// With a model file of `anydepth export --to runtime`, also: a file that arrives piece by piece, deadlines, aborting;
// with others, for their tokenizers, the latter two in a long text; with one that classifies, what that has.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "anydepth.h"
#include "json.h"
#include "translate.h"

using namespace anydepth;

namespace {

int failures = 0, checks = 0;

#define EXPECT(condition)                                                      \
  do {                                                                         \
    ++checks;                                                                  \
    if (!(condition)) {                                                        \
      ++failures;                                                              \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
    }                                                                          \
  } while (false)

template <class Body>
bool throws(Body body) {
  try {
    body();
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

void test_sizes() {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT(checked_mul(3, 4) == 12);
  EXPECT(checked_mul(0, most) == 0);
  EXPECT(checked_mul(most, 1) == most);
  EXPECT(throws([&] { checked_mul(most, 2); }));
  EXPECT(throws([&] { checked_mul(1ull << 33, 1ull << 31); }));
  EXPECT(throws([&] { checked_add(most, 1); }));
  EXPECT(throws([&] { checked_size(most); }));
  EXPECT(to_line(0) == 0 && to_line(1) == 64 && to_line(64) == 64);
  EXPECT(throws([&] { to_line(most); }));
  Buffer<float> buffer;
  EXPECT(throws([&] { buffer.get(1ull << 32, 1ull << 32); }));
  EXPECT(buffer.get(4, 4) != nullptr);
  EXPECT(reinterpret_cast<uintptr_t>(buffer.data()) % LINE == 0);
  // 65536 x 65536 is 0 where sizes have 32 bits: the reader must see that the section is too small for it.
  const uint8_t bytes[64] = {};
  SectionReader section(bytes, sizeof bytes);
  EXPECT(throws([&] { section.take<uint8_t>(65536, 65536); }));
  EXPECT(throws([&] { section.take<float>(1ull << 62, 8); }));
  EXPECT(section.take<uint8_t>(64) == bytes);
  EXPECT(throws([&] { section.take<uint8_t>(1); }));
}

void test_json() {
  const Json found = Json::parse(" {\"a\": [1, -2.5e1, 0.001], \"b\": {\"c\": \"x\\u00e9\\ud83d\\ude00\\n\"}, \"d\": null, \"e\": true}");
  EXPECT(found.at("a").items().size() == 3);
  EXPECT(found.at("a").items()[0].integer(0, 5) == 1);
  EXPECT(found.at("a").items()[1].number() == -25.0);
  EXPECT(found.at("a").items()[2].number() == 0.001);
  EXPECT(found.at("b").at("c").text() == "x\xC3\xA9\xF0\x9F\x98\x80\n");
  EXPECT(found.find("d") == nullptr && found.find("x") == nullptr);
  EXPECT(found.at("e").boolean());
  EXPECT(throws([&] { found.at("a").text(); }));
  EXPECT(throws([&] { found.at("a").items()[1].integer(0, 5); }));
  for (const double value : {1e-5, 0.6, 47.19401497237838, 1e-12, 123456789.0, 1e300, 2.5e-300}) {
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", value);
    EXPECT(std::fabs(Json::parse(text).number() - value) <= 1e-15 * value);
    EXPECT(static_cast<float>(Json::parse(text).number()) == static_cast<float>(value));
  }
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "01", "1.", "1e", "nan", "\"\\x\"", "\"\\ud83", "tru", "1 2", "-", "1e999",
                          "[1}", "{\"a\":1,}"})
    EXPECT(throws([&] { Json::parse(bad); }));
  EXPECT(throws([&] { Json::parse(std::string(100000, '[')); }));
  EXPECT(throws([&] { Json::parse("\"" + std::string(1, '\x01') + "\""); }));
}

void test_utf8() {
  for (const char* good : {"", "abc", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) EXPECT(is_utf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xFF", "a\xE2\x82"})
    EXPECT(!is_utf8(bad));
}

void test_wrong_arguments() {
  EXPECT(anydepth_open(nullptr, nullptr) == nullptr && anydepth_error_code() == ANYDEPTH_INVALID);
  EXPECT(anydepth_open("/nowhere/at/all", nullptr) == nullptr && anydepth_error_code() == ANYDEPTH_FILE);
  EXPECT(std::strstr(anydepth_error(), "/nowhere/at/all") != nullptr);
  EXPECT(anydepth_load(nullptr, 10, nullptr) == nullptr && anydepth_error_code() == ANYDEPTH_INVALID);
  EXPECT(anydepth_load("short", 5, nullptr) == nullptr && anydepth_error_code() == ANYDEPTH_FILE);
  EXPECT(anydepth_begin("abacus") == nullptr && anydepth_error_code() == ANYDEPTH_INVALID);
  EXPECT(anydepth_kernels("plain") != nullptr && anydepth_kernels("abacus") == nullptr);
  EXPECT(anydepth_append(nullptr, "x", 1) == ANYDEPTH_INVALID);
  EXPECT(anydepth_set_threads(nullptr, 1) == ANYDEPTH_INVALID);
  EXPECT(anydepth_memory(nullptr) == 0 && !anydepth_complete(nullptr) && !anydepth_has_shortlist(nullptr));
  EXPECT(anydepth_header(nullptr) == nullptr);
  EXPECT(anydepth_depths(nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_fits(nullptr, "a", 1, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_depth_at(nullptr, 0, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_search(nullptr, nullptr, nullptr, nullptr, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_logits(nullptr, nullptr, nullptr, nullptr, 0, 0, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_classes(nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_classify(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_translate(nullptr, nullptr, nullptr, 0, nullptr) == nullptr);
  EXPECT(anydepth_outputs(nullptr, 0) == ANYDEPTH_INVALID);
  EXPECT(anydepth_output_at(nullptr, 0, 0, nullptr) == ANYDEPTH_INVALID);
  anydepth_speculation(nullptr, nullptr);
  anydepth_translations_free(nullptr);
  anydepth_free(nullptr);
  anydepth_defaults(nullptr);
  anydepth_model* empty = anydepth_begin(nullptr);
  EXPECT(empty != nullptr);
  EXPECT(anydepth_append(empty, nullptr, 1) == ANYDEPTH_INVALID);
  EXPECT(anydepth_append(empty, nullptr, 0) == ANYDEPTH_OK);
  EXPECT(anydepth_depths(empty) == ANYDEPTH_NOT_YET);
  EXPECT(anydepth_search(empty, nullptr, nullptr, nullptr, nullptr) == ANYDEPTH_NOT_YET);
  EXPECT(anydepth_classify(empty, nullptr, nullptr, nullptr, nullptr, nullptr) == ANYDEPTH_NOT_YET);
  EXPECT(anydepth_classes(empty) == ANYDEPTH_NOT_YET);
  const std::string wrong(64, 'x');
  EXPECT(anydepth_append(empty, wrong.data(), wrong.size()) == ANYDEPTH_FILE);
  EXPECT(anydepth_append(empty, wrong.data(), wrong.size()) == ANYDEPTH_FILE);
  anydepth_free(empty);
}

constexpr const char* FAST_KERNELS[] = {"avx512-vnni", "avx-vnni", "avx2", "neon-i8mm", "neon-dot", "neon", "wasm"};

// The product of these rows alone or among others is the same to the bit, and with integers only that of plain C++.
void test_products(const Kernels& fast) {
  std::mt19937 random(7);
  const auto byte = [&](bool extreme) {
    return static_cast<int8_t>(extreme ? (random() % 2 ? 127 : -127) : static_cast<int>(random() % 255) - 127);
  };
  constexpr int MOST = 200;
  for (const auto& [outputs, inputs] : {std::pair{16, 4}, {48, 36}, {80, 64}, {16, 516}, {32, 2048}})
    for (const bool extreme : {false, true}) {
      const int stride = padded(inputs, 64);
      PackedMatrix w;
      w.outputs = outputs, w.inputs = inputs, w.blocks = outputs / TILE, w.quads = inputs / QUAD;
      std::vector<int8_t> tiles(w.bytes());
      for (int8_t& one : tiles) one = byte(extreme);
      std::vector<float> ones(outputs, 1.0f), zeros(outputs, 0.0f), factors(outputs), offsets(outputs), biases(outputs);
      for (auto* all : {&factors, &offsets, &biases})
        for (float& one : *all) one = static_cast<float>(random() % 1000) / 777.0f - 0.5f;
      Buffer<int8_t> memory;
      int8_t* values = memory.get(3, MOST, stride);
      std::vector<float> scales(MOST, 1.0f), zero_points(MOST);
      std::vector<int32_t> sums(MOST);
      for (int r = 0; r < MOST; ++r) {
        zero_points[r] = static_cast<float>(random() % 100) / 33.0f;
        for (int i = 0; i < inputs; ++i) sums[r] += values[r * stride + i] = byte(extreme);
      }
      w.tiles = tiles.data();
      const auto product = [&](const Kernels& kernels, int first, int rows, Epilogue epilogue) {
        const bool integers = epilogue == Epilogue::store;
        w.scales = integers ? ones.data() : factors.data();
        w.sums = integers ? zeros.data() : offsets.data();
        w.bias = integers ? zeros.data() : biases.data();
        std::vector<float> out(size_t(rows) * outputs, 0.25f);
        kernels.gemm(w, {values + first * stride, stride, &scales[first], &zero_points[first], &sums[first],
                         values + size_t(MOST) * stride}, rows, {out.data(), size_t(outputs), epilogue, 0.5f});
        return out;
      };
      for (const Epilogue epilogue : {Epilogue::store, Epilogue::relu, Epilogue::add}) {
        const std::vector<float> expected = product(*plain_kernels(), 0, MOST, epilogue);
        const std::vector<float> all = product(fast, 0, MOST, epilogue);
        bool close = true;
        for (size_t i = 0; i < all.size(); ++i)
          close = close && std::fabs(all[i] - expected[i]) <= (epilogue == Epilogue::store ? 0.0f : 1.0f + 1e-5f * std::fabs(expected[i]));
        EXPECT(close);
        for (const int rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 97}) {
          const int first = static_cast<int>(random() % (MOST - rows + 1));
          const std::vector<float> some = product(fast, first, rows, epilogue);
          EXPECT(std::equal(some.begin(), some.end(), all.begin() + size_t(first) * outputs));
        }
      }
    }
}

// A product with int4 weights is to the bit that with the int8 weights that they stand for.
void test_int4_products(const Kernels& kernels) {
  std::mt19937 random(5);
  constexpr int MOST = 40;
  for (const auto& [outputs, inputs] : {std::pair{16, 4}, {48, 36}, {80, 64}, {16, 516}, {48, 2048}})
    for (const bool extreme : {false, true}) {
      const int stride = padded(inputs, 64);
      PackedMatrix small;
      small.outputs = outputs, small.inputs = inputs, small.blocks = outputs / TILE;
      small.quads = padded(inputs, GROUP) / QUAD;
      std::vector<uint8_t> nibbles(small.weights() / 2);
      std::vector<int8_t> factors(small.weights() / GROUP), tiles(small.weights());
      for (uint8_t& one : nibbles) one = static_cast<uint8_t>(extreme ? (random() % 2) * 0xFF : random());
      for (int8_t& one : factors) one = static_cast<int8_t>(extreme ? (random() % 2 ? 15 : -15) : int(random() % 31) - 15);
      for (size_t i = 0; i < tiles.size(); ++i) {
        const size_t place = i % (TILE * QUAD), quad = i / (TILE * QUAD), byte = quad / 2 * TILE * QUAD + place;
        const int four = quad % 2 ? nibbles[byte] >> 4 : nibbles[byte] & 15;
        tiles[i] = static_cast<int8_t>((four - 8) * factors[quad / GROUP_QUADS * TILE + place / QUAD]);
      }
      std::vector<float> scales(outputs), sums(outputs), bias(outputs);
      for (auto* all : {&scales, &sums, &bias})
        for (float& one : *all) one = static_cast<float>(random() % 1000) / 777.0f - 0.5f;
      small.scales = scales.data(), small.sums = sums.data(), small.bias = bias.data();
      PackedMatrix large = small;
      large.tiles = tiles.data(), small.nibbles = nibbles.data(), small.factors = factors.data();
      Buffer<int8_t> memory, room;
      int8_t* values = memory.get(3, MOST, stride);
      int8_t* unpacked = room.get(UNPACKED_BLOCKS, small.quads, TILE * QUAD);
      std::fill(values, values + MOST * stride, int8_t(0));
      std::vector<float> row_scales(MOST, 0.5f), zero_points(MOST, 0.25f);
      std::vector<int32_t> row_sums(MOST);
      for (int r = 0; r < MOST; ++r)
        for (int i = 0; i < inputs; ++i)
          row_sums[r] += values[r * stride + i] =
              static_cast<int8_t>(extreme ? (random() % 2 ? 127 : -127) : int(random() % 255) - 127);
      for (const int rows : {1, 2, 3, 4, 5, 7, 13, MOST})
        for (const Epilogue epilogue : {Epilogue::store, Epilogue::relu, Epilogue::add}) {
          const auto product = [&](const PackedMatrix& w) {
            std::vector<float> out(size_t(rows) * outputs, 0.25f);
            kernels.gemm(w, {values, stride, row_scales.data(), zero_points.data(), row_sums.data(),
                             values + size_t(MOST) * stride, unpacked}, rows, {out.data(), size_t(outputs), epilogue, 0.5f});
            return out;
          };
          EXPECT(product(small) == product(large));
        }
      PackedMatrix last = some_blocks(small, small.blocks - 1, small.blocks);
      std::vector<float> some(TILE), all(outputs);
      const QuantizedRows one = {values, stride, row_scales.data(), zero_points.data(), row_sums.data(),
                                 values + size_t(MOST) * stride, unpacked};
      kernels.gemm(last, one, 1, {some.data(), TILE});
      kernels.gemm(small, one, 1, {all.data(), size_t(outputs)});
      EXPECT(std::equal(some.begin(), some.end(), all.end() - TILE));
    }
}

// Half precision is rounded to the nearest, in all kernels alike, and what it holds comes back.
void test_halves(const Kernels& kernels) {
  std::mt19937 random(9);
  std::vector<float> given = {0.0f, -0.0f, 1e-8f, 2.98e-8f, 2.99e-8f, 6.1e-5f, 65503.0f, 65520.0f, 1e9f, -1e30f,
                              std::numeric_limits<float>::infinity(), 2049.0f, 2051.0f, -0.33333334f};
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) given.push_back(as_float(Half{static_cast<uint16_t>(bits)}));
  for (int i = 0; i < 20000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    float one;
    std::memcpy(&one, &bits, sizeof one);
    if (std::isfinite(one)) given.push_back(one);
  }
  std::vector<Half> found(given.size());
  kernels.halve(given.data(), static_cast<int>(given.size()), found.data());
  bool nearest = true;
  for (size_t i = 0; i < given.size(); ++i) {
    const float x = std::min(LARGEST_HALF, std::max(-LARGEST_HALF, given[i])), off = std::fabs(as_float(found[i]) - x);
    nearest = nearest && found[i].bits == to_half(x).bits && std::signbit(as_float(found[i])) == std::signbit(x);
    for (const int step : {-1, 1}) {
      const Half other{static_cast<uint16_t>(found[i].bits + step)};
      if ((other.bits & 0x7C00) != 0x7C00 && (other.bits & 0x8000) == (found[i].bits & 0x8000))
        nearest = nearest && std::fabs(as_float(other) - x) >= off;
    }
  }
  EXPECT(nearest);
}

// Attention over keys and values in each layout is that of plain C++, and a query's does not depend on others.
void test_attention(const Kernels& fast) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const auto& [heads, e] : {std::pair{1, 64}, {3, 32}, {2, 16}, {4, 6}, {1, 20}})
    for (const int positions : {1, 7, 16, 33, 64, 150}) {
      const AttentionShape shape{positions, heads, e};
      const int d = heads * e, queries = 13;
      std::vector<float> query(size_t(queries) * d), rows(size_t(positions) * 2 * d);
      for (auto* all : {&query, &rows})
        for (float& one : *all) one = normal(random);
      const int blocks = padded(positions) / TILE;
      for (float& one : rows) one = as_float(to_half(one));
      std::vector<Half> cache(size_t(blocks) * TILE * 2 * d);
      std::vector<const Half*> pointers;
      for (int p = 0; p < positions; ++p) {
        Half* to = &cache[size_t(p / TILE) * TILE * 2 * d + size_t(p % TILE) * e];
        pointers.push_back(to);
        for (int part = 0; part < 2 * heads; ++part)
          plain_kernels()->halve(&rows[size_t(p) * 2 * d + part * e], e, to + size_t(part) * TILE * e);
      }
      const auto attend = [&](const Kernels& kernels, int first, int count, bool of_memory = false) {
        std::vector<float> keys(size_t(padded(positions)) * d), out(size_t(count) * d);
        Buffer<float> memory;
        float* scores = memory.get(shape.scores());
        const float* own = &query[size_t(first) * d];
        kernels.transpose_keys(rows.data(), 2 * d, positions, heads, e, keys.data());
        if (of_memory) {
          std::vector<Half> half_keys(keys.size()), half_rows(rows.size());
          kernels.halve(keys.data(), static_cast<int>(keys.size()), half_keys.data());
          kernels.halve(rows.data(), static_cast<int>(rows.size()), half_rows.data());
          kernels.attend_memory(own, d, count, half_keys.data(), {&half_rows[d], size_t(2 * d), size_t(e)}, shape, scores,
                                out.data(), d);
        } else {
          kernels.attend(own, d, count, keys.data(), {&rows[d], size_t(2 * d), size_t(e)}, shape, scores, out.data(), d);
        }
        return out;
      };
      const auto attend_cached = [&](const Kernels& kernels, int row) {
        std::vector<float> out(d);
        Buffer<float> scores;
        kernels.attend_cached(&query[size_t(row) * d], pointers.data(), shape, 0, heads, scores.get(shape.scores()),
                              out.data());
        return out;
      };
      const std::vector<float> expected = attend(*plain_kernels(), 0, queries), all = attend(fast, 0, queries);
      const std::vector<float> of_memory = attend(fast, 0, queries, true);
      const auto close = [&](const std::vector<float>& found, int row) {
        for (size_t i = 0; i < found.size(); ++i)
          if (!(std::fabs(found[i] - expected[size_t(row) * d + i]) < 1e-4f)) return false;
        return true;
      };
      EXPECT(close(all, 0));
      EXPECT(close(of_memory, 0));
      for (const int row : {0, 5, 12}) {
        const std::vector<float> alone = attend(fast, row, 1);
        EXPECT(std::equal(alone.begin(), alone.end(), all.begin() + size_t(row) * d));
        const std::vector<float> memory_alone = attend(fast, row, 1, true);
        EXPECT(std::equal(memory_alone.begin(), memory_alone.end(), of_memory.begin() + size_t(row) * d));
        EXPECT(close(attend_cached(fast, row), row));
        EXPECT(close(attend_cached(*plain_kernels(), row), row));
      }
    }
}

// Rows of several blocks, whoever asks first; what is beyond the width is zero.
void test_sinusoids() {
  constexpr int POSITIONS = 100, WIDTH = 40;
  const Sinusoids sinusoids(POSITIONS, WIDTH);
  Team team(5);
  std::vector<const float*> first(5);
  team.run([&](int part) { first[part] = sinusoids.row(POSITIONS - 1); });
  EXPECT(std::all_of(first.begin(), first.end(), [&](const float* one) { return one == first[0]; }));
  for (int p = 0; p < POSITIONS; ++p) {
    const float* row = sinusoids.row(p);
    EXPECT(row[0] == static_cast<float>(std::sin(double(p))) && row[1] == static_cast<float>(std::cos(double(p))));
    for (int i = 0; i < WIDTH / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / WIDTH);
      EXPECT(std::fabs(row[2 * i] - std::sin(angle)) < 3e-5 && std::fabs(row[2 * i + 1] - std::cos(angle)) < 3e-5);
    }
    EXPECT(std::all_of(row + WIDTH, row + padded(WIDTH), [](float one) { return one == 0.0f; }));
  }
}

// Each part runs once and is done when `run` returns, whether the others are awake or asleep.
void test_team() {
  for (const int size : {1, 2, 5}) {
    Team team(size);
    EXPECT(team.size() == size);
    std::vector<int> counts(size, 0);
    for (int round = 1; round <= 300; ++round) {
      if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      team.run([&](int part) { ++counts[part]; });
      EXPECT(std::all_of(counts.begin(), counts.end(), [&](int one) { return one == round; }));
    }
  }
}

void test_kernels() {
  test_int4_products(*plain_kernels());
  for (const char* name : FAST_KERNELS) {
    const Kernels* fast = kernels_named(name);
    if (fast == nullptr) continue;
    std::printf("kernels %s\n", name);
    test_products(*fast);
    test_int4_products(*fast);
    test_attention(*fast);
    test_halves(*fast);
  }
}

std::string translated(anydepth_model* model, const char* text, const anydepth_request& request) {
  anydepth_translations* made = anydepth_translate(model, &text, nullptr, 1, &request);
  if (made == nullptr) return std::string("! ") + anydepth_error();
  anydepth_output output;
  EXPECT(anydepth_outputs(made, 0) == request.nbest || anydepth_outputs(made, 0) >= 1);
  EXPECT(anydepth_output_at(made, 0, 0, &output) == ANYDEPTH_OK);
  EXPECT(anydepth_output_at(made, 0, 1000, &output) == ANYDEPTH_INVALID);
  EXPECT(anydepth_output_at(made, 1, 0, &output) == ANYDEPTH_INVALID);
  anydepth_output_at(made, 0, 0, &output);
  std::string found = std::string(output.depth) + ": " + output.text;
  anydepth_translations_free(made);
  return found;
}

// One text of 10 MB takes a while to tokenize: what stops a search stops that too.
void test_stopping_in_a_long_text(const char* path) {
  anydepth_model* model = anydepth_open(path, nullptr);
  EXPECT(model != nullptr);
  if (model == nullptr) return;
  const Json about = Json::parse(anydepth_header(model));
  const Json& first = about.at("core").at("pairs").items()[0];
  const std::string pair = first.at("source").text() + "-" + first.at("target").text();
  std::string endless;
  while (endless.size() < 10'000'000) endless += "a cat sees the old dog, ";
  const char* text = endless.c_str();
  anydepth_request request;
  anydepth_defaults(&request);
  request.pair = pair.c_str();
  const auto seconds = [&] {
    const auto began = std::chrono::steady_clock::now();
    EXPECT(anydepth_translate(model, &text, nullptr, 1, &request) == nullptr);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  const double all = std::min(seconds(), seconds());
  EXPECT(anydepth_error_code() == ANYDEPTH_TOO_LONG);
  const std::string larger(70'000'000, 'x');
  const char* larger_text = larger.c_str();
  EXPECT(anydepth_translate(model, &larger_text, nullptr, 1, &request) == nullptr);
  EXPECT(anydepth_error_code() == ANYDEPTH_TOO_LONG);
  EXPECT(anydepth_fits(model, larger_text, larger.size(), pair.c_str()) == 0);
  bool stopped = false;
  for (int i = 0; i < 5 && !stopped; ++i) {  // times are those of a busy machine
    request.timeout = 0.2 * all;
    EXPECT(seconds() >= request.timeout);
    stopped = anydepth_error_code() == ANYDEPTH_STOPPED;
  }
  EXPECT(stopped);
  request.timeout = 0;
  stopped = false;
  for (int i = 0; i < 5 && !stopped; ++i) {
    volatile int32_t abort = 0;
    request.abort = const_cast<const int32_t*>(&abort);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(0.2 * all));
      abort = 1;
    });
    seconds();
    stopped = anydepth_error_code() == ANYDEPTH_STOPPED;
    other.join();
  }
  EXPECT(stopped);
  anydepth_free(model);
}

void test_model(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  anydepth_model *mapped = anydepth_open(path, nullptr), *copied = anydepth_load(data.data(), data.size(), nullptr);
  EXPECT(mapped != nullptr && copied != nullptr);
  if (mapped == nullptr || copied == nullptr) return;
  anydepth_request request;
  anydepth_defaults(&request);
  const char* text = "le chat dort.";
  EXPECT(anydepth_fits(mapped, text, std::strlen(text), nullptr) == 1);
  EXPECT(anydepth_fits(mapped, nullptr, 0, nullptr) == 1 && anydepth_fits(mapped, nullptr, 1, nullptr) == ANYDEPTH_INVALID);
  const std::string longer(20000, 'x');
  EXPECT(anydepth_fits(mapped, longer.data(), longer.size(), nullptr) == 0);
  EXPECT(anydepth_fits(mapped, text, std::strlen(text), "xx-yy") == ANYDEPTH_INVALID);
  const int32_t count = anydepth_depths(mapped);
  EXPECT(count > 0);
  std::vector<std::string> expected(static_cast<size_t>(count)), unlisted(static_cast<size_t>(count));
  std::vector<std::string> names;
  for (int32_t i = 0; i < count; ++i) {
    anydepth_depth depth;
    EXPECT(anydepth_depth_at(mapped, i, &depth) == ANYDEPTH_OK && depth.ready == 1);
    names.emplace_back(depth.name);
    request.depth = names.back().c_str();
    expected[static_cast<size_t>(i)] = translated(mapped, text, request);
    EXPECT(expected[static_cast<size_t>(i)].compare(0, names.back().size() + 1, names.back() + ":") == 0);
    EXPECT(translated(copied, text, request) == expected[static_cast<size_t>(i)]);
    request.shortlist = ANYDEPTH_SHORTLIST_OFF;
    unlisted[static_cast<size_t>(i)] = translated(mapped, text, request);
    request.shortlist = ANYDEPTH_SHORTLIST_IF_THERE;
  }
  EXPECT(anydepth_depth_at(mapped, count, nullptr) == ANYDEPTH_INVALID);
  EXPECT(std::strstr(anydepth_header(mapped), "\"core\"") != nullptr);
  EXPECT(anydepth_complete(mapped) == 1 && anydepth_memory(mapped) > 0);
  EXPECT(anydepth_append(mapped, "x", 1) == ANYDEPTH_FILE);

  // Piece by piece: depths become ready one after the other, and each gives what it gives in the end, but for the
  // shortlist, which comes last.
  anydepth_model* growing = anydepth_begin(nullptr);
  int32_t ready_before = 0, first_at = 0;
  for (size_t at = 0; at < data.size(); at += 5000) {
    EXPECT(anydepth_append(growing, data.data() + at, std::min<size_t>(5000, data.size() - at)) == ANYDEPTH_OK);
    int32_t ready = 0;
    for (int32_t i = 0; i < count && anydepth_depths(growing) == count; ++i) {
      anydepth_depth depth;
      anydepth_depth_at(growing, i, &depth);
      ready += depth.ready;
    }
    EXPECT(ready >= ready_before);
    if (ready == ready_before) continue;
    if (ready_before == 0) first_at = static_cast<int32_t>(100 * at / data.size());
    ready_before = ready;
    for (int32_t i = 0; i < count; ++i) {
      anydepth_depth depth;
      anydepth_depth_at(growing, i, &depth);
      request.depth = names[static_cast<size_t>(i)].c_str();
      const std::string found = translated(growing, text, request);
      if (depth.ready) {
        const bool listed = anydepth_has_shortlist(growing) == anydepth_has_shortlist(mapped);
        EXPECT(found == (listed ? expected : unlisted)[static_cast<size_t>(i)]);
      } else {
        EXPECT(found.compare(0, 2, "! ") == 0 && anydepth_error_code() == ANYDEPTH_NOT_YET);
      }
    }
    request.depth = nullptr;
    EXPECT(translated(growing, text, request).compare(0, 2, "! ") != 0);
    request.shortlist = ANYDEPTH_SHORTLIST_ON;
    const std::string listed = translated(growing, text, request);
    if (anydepth_has_shortlist(growing)) {
      EXPECT(listed.compare(0, 2, "! ") != 0);
    } else {
      const int code = anydepth_has_shortlist(mapped) ? ANYDEPTH_NOT_YET : ANYDEPTH_INVALID;
      EXPECT(listed.compare(0, 2, "! ") == 0 && anydepth_error_code() == code);
    }
    request.shortlist = ANYDEPTH_SHORTLIST_OFF;
    EXPECT(translated(growing, text, request).compare(0, 2, "! ") != 0);
    request.shortlist = ANYDEPTH_SHORTLIST_IF_THERE;
  }
  EXPECT(ready_before == count && anydepth_complete(growing) == 1);
  EXPECT(anydepth_has_shortlist(growing) == anydepth_has_shortlist(mapped));
  EXPECT(first_at > 0 && first_at < 100);
  EXPECT(anydepth_append(growing, "x", 1) == ANYDEPTH_FILE);
  anydepth_free(growing);

  // What stops a search, and what is refused.
  request.depth = nullptr;
  int32_t abort = 1;
  request.abort = &abort;
  EXPECT(translated(mapped, text, request).compare(0, 2, "! ") == 0 && anydepth_error_code() == ANYDEPTH_STOPPED);
  abort = 0;
  EXPECT(translated(mapped, text, request).compare(0, 2, "! ") != 0);
  request.abort = nullptr;
  request.timeout = 1e-9;
  EXPECT(translated(mapped, text, request).compare(0, 2, "! ") == 0 && anydepth_error_code() == ANYDEPTH_STOPPED);
  request.timeout = 1000;
  EXPECT(translated(mapped, text, request).compare(0, 2, "! ") != 0);
  const auto refused = [&](const std::function<void(anydepth_request&)>& change, int code = ANYDEPTH_INVALID) {
    anydepth_request other;
    anydepth_defaults(&other);
    change(other);
    EXPECT(translated(mapped, text, other).compare(0, 2, "! ") == 0 && anydepth_error_code() == code);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused([](anydepth_request& r) { r.beam = 0; });
  refused([](anydepth_request& r) { r.beam = -3; });
  refused([](anydepth_request& r) { r.nbest = 2; });
  refused([](anydepth_request& r) { r.shortlist = 3; });
  for (const char* rule : {"", "margin", "margin:", "margin:-1", "margin:1e999", "margin:2x", "probe:1", "confidence:1",
                           "confidence:0", "patience:0", "patience:[2]", ":2"})
    refused([&](anydepth_request& r) { r.exit = rule; });
  refused([](anydepth_request& r) { r.max_length = -1; });
  refused([&](anydepth_request& r) { r.length_penalty = static_cast<float>(nan); });
  refused([&](anydepth_request& r) { r.timeout = nan; });
  refused([&](anydepth_request& r) { r.timeout = -1; });
  refused([&](anydepth_request& r) { r.budget = nan; });
  refused([&](anydepth_request& r) { r.depth = "99-99"; });
  refused([&](anydepth_request& r) { r.depth = ""; });
  refused([&](anydepth_request& r) { r.pair = "xx-yy"; });
  anydepth_request plain;
  anydepth_defaults(&plain);
  EXPECT(anydepth_translate(mapped, nullptr, nullptr, 1, &plain) == nullptr);
  EXPECT(anydepth_translate(mapped, &text, nullptr, -1, &plain) == nullptr);
  const char* nothing = nullptr;
  EXPECT(anydepth_translate(mapped, &nothing, nullptr, 1, &plain) == nullptr);
  EXPECT(translated(mapped, "\xFF", plain).compare(0, 2, "! ") == 0);
  std::string endless;
  for (int i = 0; i < 3000; ++i) endless += "a cat ";
  EXPECT(translated(mapped, endless.c_str(), plain).compare(0, 2, "! ") == 0 &&
         anydepth_error_code() == ANYDEPTH_TOO_LONG);
  plain.cut_long = 1;
  plain.max_length = 4;
  EXPECT(translated(mapped, endless.c_str(), plain).compare(0, 2, "! ") != 0);
  EXPECT(translated(mapped, "", plain) == ": ");
  anydepth_free(mapped);
  anydepth_free(copied);
}

bool classifies(const char* path) {
  anydepth_model* model = anydepth_open(path, nullptr);
  const bool found = model != nullptr && anydepth_classes(model) > 0;
  anydepth_free(model);
  return found;
}

// Of csrc/tests/make_models.py: two layers, three classes, a halting unit.
void test_classifier(const char* path) {
  anydepth_model* model = anydepth_open(path, nullptr);
  EXPECT(anydepth_classes(model) == 3);
  const int32_t layers[] = {0, 1}, tokens[] = {4, 9, 3, 5, 3}, starts[] = {0, 3, 5}, depths[] = {1, 2, 1, 1, 1};
  const int32_t exits[] = {1, 2}, wrong_exits[] = {2, 1}, limits[] = {3, 3}, late[] = {1, 3};
  const anydepth_subnetwork full = {layers, nullptr, 2, nullptr, nullptr, 0};
  const anydepth_batch batch = {tokens, starts, nullptr, nullptr, 2};
  const anydepth_classify_options plain = {nullptr, 0, 0, 0.0f, 0.0f, 0.0, nullptr};
  float found[6], other[6];
  int32_t ran[5];
  const auto run = [&](const anydepth_subnetwork& sub, const anydepth_batch& given,
                       const anydepth_classify_options& options, float* into) {
    return anydepth_classify(model, &sub, &given, &options, into, ran);
  };
  EXPECT(run(full, batch, plain, found) == ANYDEPTH_OK);
  for (int text = 0; text < 2; ++text)
    EXPECT(std::fabs(found[3 * text] + found[3 * text + 1] + found[3 * text + 2] - 1.0f) < 1e-5f);
  for (const int32_t depth : ran) EXPECT(depth == 2);

  // A text alone gives the bits it gives among others.
  const int32_t alone_starts[] = {0, 2};
  EXPECT(run(full, {tokens + 3, alone_starts, nullptr, nullptr, 1}, plain, other) == ANYDEPTH_OK);
  for (int c = 0; c < 3; ++c) EXPECT(other[c] == found[3 + c]);

  // All leave at the first exit, which is what the first layer alone says.
  EXPECT(run(full, batch, {exits, 2, 0, 0.01f, 0.0f, 0.0, nullptr}, other) == ANYDEPTH_OK);
  for (const int32_t depth : ran) EXPECT(depth == 1);
  const anydepth_subnetwork first = {layers, nullptr, 1, nullptr, nullptr, 0};
  EXPECT(run(first, batch, plain, found) == ANYDEPTH_OK);
  for (int i = 0; i < 6; ++i) EXPECT(other[i] == found[i]);

  // A depth for each token; those that are too large count as all layers.
  EXPECT(run(full, {tokens, starts, depths, nullptr, 2}, plain, other) == ANYDEPTH_OK);
  for (int i = 0; i < 5; ++i) EXPECT(ran[i] == depths[i]);
  for (int c = 0; c < 3; ++c) EXPECT(other[3 + c] == found[3 + c]);  // its tokens ran one layer
  const int32_t deep[] = {9, 9, 9, 9, -9};
  EXPECT(run(full, {tokens, starts, deep, nullptr, 2}, plain, other) == ANYDEPTH_OK);
  EXPECT(ran[0] == 2 && ran[4] == 0);
  EXPECT(run(full, batch, {nullptr, 0, 0, 0.0f, 1.0f, 0.0, nullptr}, other) == ANYDEPTH_OK);
  EXPECT(run(full, batch, {nullptr, 0, 0, 0.0f, 100.0f, 0.0, nullptr}, other) == ANYDEPTH_OK);
  for (const int32_t depth : ran) EXPECT(depth == 2);

  // What is refused.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const anydepth_classify_options& options :
       {anydepth_classify_options{nullptr, 1, 0, 0.0f, 0.0f, 0.0, nullptr}, {wrong_exits, 2, 2, 0.0f, 0.0f, 0.0, nullptr},
        {late, 2, 2, 0.0f, 0.0f, 0.0, nullptr}, {exits, -1, 0, 0.0f, 0.0f, 0.0, nullptr},
        {exits, 2, -1, 0.0f, 0.0f, 0.0, nullptr}, {exits, 2, 0, nan, 0.0f, 0.0, nullptr},
        {exits, 2, 0, 1.5f, 0.0f, 0.0, nullptr}, {nullptr, 0, 0, 0.0f, nan, 0.0, nullptr},
        {nullptr, 0, 0, 0.0f, -1.0f, 0.0, nullptr}, {nullptr, 0, 0, 0.0f, 0.0f, -1.0, nullptr}})
    EXPECT(run(full, batch, options, other) == ANYDEPTH_INVALID);
  EXPECT(anydepth_classify(model, &full, &batch, nullptr, other, ran) == ANYDEPTH_INVALID);
  EXPECT(anydepth_classify(model, &full, &batch, &plain, nullptr, ran) == ANYDEPTH_INVALID);
  EXPECT(anydepth_classify(model, &full, &batch, &plain, other, nullptr) == ANYDEPTH_INVALID);
  EXPECT(run({layers, nullptr, 3, nullptr, nullptr, 0}, batch, plain, other) == ANYDEPTH_INVALID);
  EXPECT(run({layers, nullptr, 2, layers, nullptr, 1}, batch, plain, other) == ANYDEPTH_INVALID);
  int32_t abort = 1;
  EXPECT(run(full, batch, {nullptr, 0, 0, 0.0f, 0.0f, 0.0, &abort}, other) == ANYDEPTH_STOPPED);

  // It does not translate, and what translates does not classify.
  const anydepth_options searching = {1, 1, 1, 0, 0, 0, 0, 0.6f, 0.0, nullptr, nullptr, 0, ANYDEPTH_EXIT_NONE, 0.0f};
  const anydepth_batch limited = {tokens, starts, nullptr, limits, 2};
  int32_t outputs[6], lengths[2], ended[2];
  float scores[2];
  anydepth_results results = {outputs, lengths, ended, scores, nullptr};
  EXPECT(anydepth_search(model, &full, &limited, &searching, &results) == ANYDEPTH_INVALID);
  EXPECT(anydepth_logits(model, &full, &limited, tokens, 1, 1, other) == ANYDEPTH_INVALID);
  EXPECT(anydepth_depths(model) == ANYDEPTH_INVALID);
  anydepth_request request;
  anydepth_defaults(&request);
  const char* text = "a b";
  EXPECT(anydepth_translate(model, &text, nullptr, 1, &request) == nullptr);
  EXPECT(anydepth_fits(model, text, 3, nullptr) == ANYDEPTH_INVALID);
  const std::vector<int32_t> offsets(64);
  EXPECT(anydepth_set_shortlist(model, tokens, 1, offsets.data(), nullptr) == ANYDEPTH_INVALID);
  anydepth_free(model);
}

}  // namespace

int main(int count, char** arguments) {
  test_sizes();
  test_json();
  test_utf8();
  test_wrong_arguments();
  test_team();
  test_sinusoids();
  test_kernels();
  if (count > 1) test_model(arguments[1]);
  for (int i = 1; i < count; ++i) (classifies(arguments[i]) ? test_classifier : test_stopping_in_a_long_text)(arguments[i]);
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures ? 1 : 0;
}
