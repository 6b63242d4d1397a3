// anydepth-run: lines in, translations out, at any depth of a model file. It needs nothing but the file.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "anydepth.h"

#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <shellapi.h>
#else
#include <unistd.h>
#endif

namespace {

constexpr size_t CHUNK = 2048;      // lines in memory at once
constexpr size_t SHARE = 32;        // lines that a thread takes at a time
constexpr int MOST_THREADS = 1024;
const char NO_MEMORY[] = "there is not enough memory";

const char HELP[] =
    "anydepth-run FILE [options] < in > out\n"
    "Translate standard input to standard output, line by line, with a model file of anydepth.\n\n"
    "  --depth D            such as 4-1                      [default: that of the model]\n"
    "  --budget TIME        the best depth within this time per sentence, such as 20ms, by the times in the file\n"
    "  --exit RULE          tokens leave the decoder early by a rule: margin:2, confidence:0.9 or patience:2\n"
    "  --pair P             such as en-fr, of a model that has several language pairs\n"
    "  --beam N             beam size; 1 is greedy search    [default: 1]\n"
    "  --nbest N            give the N best as `line ||| text ||| score`\n"
    "  --length-penalty X   GNMT length penalty              [default: 0.6]\n"
    "  --max-length N       longest output in subwords       [default: twice the source]\n"
    "  --cut-long           cut lines that are too long instead of refusing them\n"
    "  --no-shortlist       compute the whole vocabulary, also where the file has a lexical shortlist\n"
    "  --shortlist          refuse a file that has none\n"
    "  --threads N          [default: all cores]\n"
    "  --list               print the depths of the file, and stop\n"
    "  --version, --help\n";

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "anydepth-run: %s\n", message.c_str());
  std::exit(2);
}

struct Arguments {
  std::string file, depth, pair, exit;
  anydepth_request request;
  int threads = 0;
  bool list = false;
};

double read_number(const std::string& flag, const char* text, double least, double most, bool whole) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*text == '\0' || *end != '\0' || !(value >= least && value <= most) || (whole && value != std::floor(value)))
    fail(flag + " is " + text + ": give a " + (whole ? "whole number" : "number") + " from " +
         std::to_string(static_cast<long long>(least)) + " to " + std::to_string(static_cast<long long>(most)));
  return value;
}

double read_budget(const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  const std::string unit = end;
  const double seconds = unit == "ms" ? value / 1000 : unit == "s" ? value : unit == "/s" && value > 0 ? 1 / value : -1;
  if (end == text || !(seconds > 0 && seconds < 1e9))
    fail(std::string("--budget ") + text + ": write a time per sentence such as 20ms or 0.02s, or a speed such as 50/s");
  return seconds;
}

Arguments read_arguments(int count, char** given) {
  Arguments found;
  anydepth_defaults(&found.request);
  anydepth_request& r = found.request;
  for (int i = 1; i < count; ++i) {
    std::string flag = given[i];
    const char* attached = nullptr;
    const size_t equals = flag.find('=');
    if (flag.compare(0, 2, "--") == 0 && equals != std::string::npos) {
      attached = given[i] + equals + 1;
      flag.resize(equals);
    }
    const auto value = [&]() -> const char* {
      if (attached != nullptr) return attached;
      if (i + 1 >= count) fail(flag + " needs a value");
      return given[++i];
    };
    const auto alone = [&] {
      if (attached != nullptr) fail(flag + " takes no value");
    };
    const auto integer = [&](int most) { return static_cast<int32_t>(read_number(flag, value(), 1, most, true)); };
    if (flag == "--help" || flag == "-h") {
      std::fputs(HELP, stdout);
      std::exit(0);
    } else if (flag == "--version") {
      std::printf("anydepth-run, interface %d, kernels %s\n", anydepth_interface(), anydepth_kernels(nullptr));
      std::exit(0);
    } else if (flag == "--depth") {
      found.depth = value();
      if (found.depth.empty()) fail("--depth is empty: write encoder-decoder, for instance 6-2");
    } else if (flag == "--exit") {
      found.exit = value();
      if (found.exit.empty()) fail("--exit is empty: write a rule such as margin:2");
    } else if (flag == "--pair") {
      found.pair = value();
    } else if (flag == "--budget") {
      r.budget = read_budget(value());
    } else if (flag == "--beam") {
      r.beam = integer(1024);
    } else if (flag == "--nbest") {
      r.nbest = integer(1024);
    } else if (flag == "--length-penalty") {
      r.length_penalty = static_cast<float>(read_number(flag, value(), 0, 10, false));
    } else if (flag == "--max-length") {
      r.max_length = integer(1 << 20);
    } else if (flag == "--threads") {
      found.threads = integer(MOST_THREADS);
    } else if (flag == "--cut-long") {
      alone();
      r.cut_long = 1;
    } else if (flag == "--shortlist") {
      alone();
      r.shortlist = ANYDEPTH_SHORTLIST_ON;
    } else if (flag == "--no-shortlist") {
      alone();
      r.shortlist = ANYDEPTH_SHORTLIST_OFF;
    } else if (flag == "--list") {
      alone();
      found.list = true;
    } else if (flag.compare(0, 1, "-") == 0 && flag.size() > 1) {
      fail("there is no option " + flag + " (--help shows what there is)");
    } else if (found.file.empty()) {
      found.file = given[i];
    } else {
      fail(std::string("one model file is enough: ") + given[i] + " is another (--help shows how to call it)");
    }
  }
  if (found.file.empty()) fail("name a model file, such as one of `anydepth export --to runtime` (--help shows more)");
  if (r.nbest > r.beam) fail("--nbest is more than --beam: give a beam at least as large");
  if (r.budget > 0 && !found.depth.empty()) fail("--depth and --budget both choose the depth: give one of the two");
  if (!found.depth.empty()) r.depth = found.depth.c_str();
  if (!found.pair.empty()) r.pair = found.pair.c_str();
  if (!found.exit.empty()) r.exit = found.exit.c_str();
  r.scores = r.nbest > 1;
  if (found.threads == 0) found.threads = static_cast<int>(std::thread::hardware_concurrency());
  if (found.threads < 1) found.threads = 1;
  return found;
}

void list_depths(anydepth_model* model) {
  const int32_t count = anydepth_depths(model);
  if (count < 0) fail(anydepth_error());
  std::printf("%-14s %14s %8s %8s\n", "depth", "ms/sentence", "BLEU", "chrF");
  for (int32_t i = 0; i < count; ++i) {
    anydepth_depth d;
    if (anydepth_depth_at(model, i, &d) != ANYDEPTH_OK) fail(anydepth_error());
    const auto figure = [](double value, int digits) {
      char text[32] = "-";
      if (!std::isnan(value)) std::snprintf(text, sizeof text, "%.*f", digits, value);
      return std::string(text);
    };
    std::printf("%-14s %14s %8s %8s\n", d.name, figure(1000 * d.seconds_per_sentence, 2).c_str(),
                figure(d.bleu, 1).c_str(), figure(d.chrf, 1).c_str());
  }
}

// Lines of standard input: only a line feed ends one.
class Lines {
 public:
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      if (at_ == size_) {
        size_ = read_some();
        at_ = 0;
        if (size_ == 0) {
          if (!line.empty() || partial_) return finish(line);
          return false;
        }
      }
      const char* from = buffer_ + at_;
      const char* end = static_cast<const char*>(std::memchr(from, '\n', size_ - at_));
      const size_t taken = end == nullptr ? size_ - at_ : static_cast<size_t>(end - from);
      line.append(from, taken);
      at_ += taken;
      partial_ = end == nullptr;
      if (end == nullptr) continue;
      ++at_;
      return finish(line);
    }
  }

  // Whether the next line is here already: whoever writes the lines may be waiting for their translations.
  bool has_next() const { return std::memchr(buffer_ + at_, '\n', size_ - at_) != nullptr; }

 private:
  // What there is, not as much as fits.
  size_t read_some() {
#if defined(_WIN32)
    const int count = _read(0, buffer_, static_cast<unsigned>(sizeof buffer_));
#else
    ssize_t count;
    do count = ::read(0, buffer_, sizeof buffer_);
    while (count < 0 && errno == EINTR);
#endif
    if (count < 0) fail("standard input cannot be read");
    return static_cast<size_t>(count);
  }
  bool finish(std::string& line) {
    if (number_++ == 0 && line.compare(0, 3, "\xEF\xBB\xBF") == 0) line.erase(0, 3);  // a byte order mark
    if (!line.empty() && line.back() == '\r') line.pop_back();
    partial_ = false;
    return true;
  }
  char buffer_[1 << 16];
  size_t at_ = 0, size_ = 0;
  long long number_ = 0;
  bool partial_ = false;
};

struct Failure {
  size_t line = 0;
  std::string message;
};

// What threads share while they translate a chunk of lines.
struct Chunk {
  const std::vector<std::string>& lines;
  std::vector<std::string> outputs;
  std::atomic<size_t> next{0};
};

void write_text(Chunk& chunk, const anydepth_translations* made, size_t at, int32_t text, const Arguments& arguments,
                long long before) {
  const int32_t count = anydepth_outputs(made, text);
  for (int32_t rank = 0; rank < count; ++rank) {
    anydepth_output one;
    anydepth_output_at(made, text, rank, &one);
    if (arguments.request.nbest == 1) {
      chunk.outputs[at] += std::string(one.text) + "\n";
      return;
    }
    char score[32];
    std::snprintf(score, sizeof score, "%.4f", one.score);
    chunk.outputs[at] += std::to_string(before + static_cast<long long>(at)) + " ||| " + one.text + " ||| " + score + "\n";
  }
}

void work(anydepth_model* model, const Arguments& arguments, Chunk& chunk, size_t share, long long before,
          Failure& failure) {
  for (size_t from; (from = chunk.next.fetch_add(share)) < chunk.lines.size();) {
    const size_t to = std::min(chunk.lines.size(), from + share);
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (size_t i = from; i < to; ++i) texts.push_back(chunk.lines[i].data()), lengths.push_back(chunk.lines[i].size());
    anydepth_translations* made =
        anydepth_translate(model, texts.data(), lengths.data(), static_cast<int32_t>(texts.size()), &arguments.request);
    if (made != nullptr) {
      for (size_t i = from; i < to; ++i) write_text(chunk, made, i, static_cast<int32_t>(i - from), arguments, before);
      anydepth_translations_free(made);
      continue;
    }
    for (size_t i = from; i < to; ++i) {  // one of them is wrong: find it, and translate those before it
      made = anydepth_translate(model, &texts[i - from], &lengths[i - from], 1, &arguments.request);
      if (made == nullptr) {
        if (failure.message.empty() || i < failure.line) {
          std::string reason = anydepth_error();
          if (anydepth_error_code() == ANYDEPTH_TOO_LONG) reason += " with --cut-long";
          if (reason.compare(0, 7, "text 1 ") == 0)
            reason = "line " + std::to_string(before + static_cast<long long>(i) + 1) + " " + reason.substr(7);
          failure = {i, reason};
        }
        return;
      }
      write_text(chunk, made, i, 0, arguments, before);
      anydepth_translations_free(made);
    }
  }
}

void translate_lines(anydepth_model* model, const Arguments& arguments) {
  Lines input;
  std::vector<std::string> lines;
  long long before = 0;
  for (bool more = true; more;) {
    lines.clear();
    std::string line;
    while (lines.size() < CHUNK && (lines.empty() || input.has_next()) && (more = input.next(line)))
      lines.push_back(line);
    Chunk chunk{lines, std::vector<std::string>(lines.size())};
    const size_t workers = std::min<size_t>(arguments.threads, (lines.size() + SHARE - 1) / SHARE);
    std::vector<Failure> failures(std::max<size_t>(1, workers));
    const auto work_on = [&](size_t i) {
      try {
        work(model, arguments, chunk, SHARE, before, failures[i]);
      } catch (const std::bad_alloc&) {
        failures[i] = {0, NO_MEMORY};
      }
    };
    std::vector<std::thread> threads;
    try {
      for (size_t i = 1; i < workers; ++i) threads.emplace_back(work_on, i);
    } catch (const std::system_error&) {  // the system gives no more: those that are there do the work
    }
    if (!lines.empty()) work_on(0);
    for (std::thread& thread : threads) thread.join();
    size_t end = lines.size();
    std::string reason;
    for (const Failure& one : failures)
      if (!one.message.empty() && one.line < end) end = one.line, reason = one.message;
    for (size_t i = 0; i < end; ++i)
      if (std::fwrite(chunk.outputs[i].data(), 1, chunk.outputs[i].size(), stdout) != chunk.outputs[i].size())
        fail("standard output cannot be written");
    if (std::fflush(stdout) != 0) fail("standard output cannot be written");
    if (!reason.empty()) fail(reason);
    before += static_cast<long long>(lines.size());
  }
}

#if defined(_WIN32)
// Those of main() are in the code page of the system, which lacks most letters; the library takes UTF-8.
std::vector<std::string> utf8_arguments() {
  int count = 0;
  LPWSTR* wide = CommandLineToArgvW(GetCommandLineW(), &count);
  std::vector<std::string> found;
  for (int i = 0; wide != nullptr && i < count; ++i) {
    const int size = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, nullptr, 0, nullptr, nullptr);
    std::string text(size > 0 ? size : 1, '\0');
    WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, &text[0], size, nullptr, nullptr);
    found.emplace_back(text.c_str());
  }
  if (wide != nullptr) LocalFree(wide);
  return found;
}
#endif

}  // namespace

int main(int count, char** given) {
#if defined(_WIN32)
  const std::vector<std::string> words = utf8_arguments();
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  if (!pointers.empty()) count = static_cast<int>(pointers.size()), given = pointers.data();
  _setmode(_fileno(stdin), _O_BINARY);
  _setmode(_fileno(stdout), _O_BINARY);
#endif
  try {
    const Arguments arguments = read_arguments(count, given);
    anydepth_model* model = anydepth_open(arguments.file.c_str(), nullptr);
    if (model == nullptr) {
      const std::string reason = anydepth_error();
      fail(reason.find(arguments.file) == std::string::npos ? arguments.file + ": " + reason : reason);
    }
    if (arguments.list) {
      list_depths(model);
      if (std::fflush(stdout) != 0) fail("standard output cannot be written");
    } else {
      anydepth_translations* nothing = anydepth_translate(model, nullptr, nullptr, 0, &arguments.request);
      if (nothing == nullptr) fail(anydepth_error());  // refuses bad options before it waits for a line
      anydepth_translations_free(nothing);
      translate_lines(model, arguments);
    }
    anydepth_free(model);
  } catch (const std::bad_alloc&) {
    fail(NO_MEMORY);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}
