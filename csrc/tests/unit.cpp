// Unit tests of the core's parts: sizes, JSON, UTF-8, the C API with wrong arguments.   unit [MODEL [OTHER...]]
// With a model file of `anydepth export --to runtime`, also: a file that arrives piece by piece, deadlines, aborting;
// with others, for their tokenizers, the latter two in a long text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
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
  EXPECT(anydepth_memory(nullptr) == 0 && !anydepth_complete(nullptr) && !anydepth_has_shortlist(nullptr));
  EXPECT(anydepth_header(nullptr) == nullptr);
  EXPECT(anydepth_depths(nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_fits(nullptr, "a", 1, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_depth_at(nullptr, 0, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_search(nullptr, nullptr, nullptr, nullptr, nullptr) == ANYDEPTH_INVALID);
  EXPECT(anydepth_logits(nullptr, nullptr, nullptr, nullptr, 0, 0, nullptr) == ANYDEPTH_INVALID);
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
  const std::string wrong(64, 'x');
  EXPECT(anydepth_append(empty, wrong.data(), wrong.size()) == ANYDEPTH_FILE);
  EXPECT(anydepth_append(empty, wrong.data(), wrong.size()) == ANYDEPTH_FILE);
  anydepth_free(empty);
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
  std::vector<std::string> expected(static_cast<size_t>(count));
  std::vector<std::string> names;
  for (int32_t i = 0; i < count; ++i) {
    anydepth_depth depth;
    EXPECT(anydepth_depth_at(mapped, i, &depth) == ANYDEPTH_OK && depth.ready == 1);
    names.emplace_back(depth.name);
    request.depth = names.back().c_str();
    expected[static_cast<size_t>(i)] = translated(mapped, text, request);
    EXPECT(expected[static_cast<size_t>(i)].compare(0, names.back().size() + 1, names.back() + ":") == 0);
    EXPECT(translated(copied, text, request) == expected[static_cast<size_t>(i)]);
  }
  EXPECT(anydepth_depth_at(mapped, count, nullptr) == ANYDEPTH_INVALID);
  EXPECT(std::strstr(anydepth_header(mapped), "\"core\"") != nullptr);
  EXPECT(anydepth_complete(mapped) == 1 && anydepth_memory(mapped) > 0);
  EXPECT(anydepth_append(mapped, "x", 1) == ANYDEPTH_FILE);

  // Piece by piece: depths become ready one after the other, and each gives what it gives in the end.
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
        EXPECT(found == expected[static_cast<size_t>(i)]);
      } else {
        EXPECT(found.compare(0, 2, "! ") == 0 && anydepth_error_code() == ANYDEPTH_NOT_YET);
      }
    }
    request.depth = nullptr;
    EXPECT(translated(growing, text, request).compare(0, 2, "! ") != 0);
    // A depth is ready with the shortlist, so that it translates alike from then on.
    EXPECT(anydepth_has_shortlist(growing) == anydepth_has_shortlist(mapped));
    request.shortlist = ANYDEPTH_SHORTLIST_ON;
    const std::string listed = translated(growing, text, request);
    if (anydepth_has_shortlist(growing)) {
      EXPECT(listed.compare(0, 2, "! ") != 0);
    } else {
      EXPECT(listed.compare(0, 2, "! ") == 0 && anydepth_error_code() == ANYDEPTH_INVALID);
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

}  // namespace

int main(int count, char** arguments) {
  test_sizes();
  test_json();
  test_utf8();
  test_wrong_arguments();
  if (count > 1) test_model(arguments[1]);
  for (int i = 1; i < count; ++i) test_stopping_in_a_long_text(arguments[i]);
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures ? 1 : 0;
}
