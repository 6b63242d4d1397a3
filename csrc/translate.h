// Texts in, texts out: the depths, language pairs and tokenizer of a model file around the search.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mutex.h"
#include "search.h"
#include "tokenizer.h"

namespace anydepth {

struct Figures {
  double seconds, bleu, chrf;  // NaN: not measured
};

struct MenuEntry {
  std::string name, pair;  // pair: empty if it is for all
  SubNetwork sub;
  bool by_word, weighted;
  Figures figures;
  std::vector<std::pair<std::string, Figures>> of_pairs;

  size_t layers() const { return sub.encoder.size() + sub.decoder.size(); }
};

struct LanguagePair {
  std::string source, target;
  int tag;  // the token before every source, or -1

  std::string name() const { return source + "-" + target; }
};

struct TextRequest {
  std::string depth, pair;  // empty: the default
  double budget = 0;        // seconds per sentence; 0: none
  int max_length = 0;       // 0: twice the source and 10 more
  bool cut_long = false;
  bool needs_shortlist = false;  // refuse a file without one; else `search.shortlist` is for those that have one
  Options search;
};

struct TextOutput {
  std::string text, depth;
  float score;
  bool ended;
  float layers;  // of the decoder, the mean of its tokens
};

// The model must outlive it and have its header.
class TextModel {
 public:
  explicit TextModel(const Model& model);

  const std::vector<MenuEntry>& menu() const { return menu_; }
  // Without the shortlist, which comes last: until then a depth searches the whole vocabulary.
  bool ready(const MenuEntry& entry) const { return model_.has_layers(entry.sub.encoder, entry.sub.decoder); }

  // Whether a text is short enough for the model; longer ones are better divided.
  bool fits(std::string_view text, const std::string& pair);

  std::vector<std::vector<TextOutput>> translate(const std::vector<std::string_view>& texts,
                                                 const TextRequest& request, SpeculationStats& stats);

 private:
  const LanguagePair* choose_pair(const std::string& wanted) const;
  const MenuEntry& choose_depth(const TextRequest& request, const std::string& pair) const;
  std::vector<int> exits_before(const MenuEntry& entry) const;  // decoder layers of shallower depths with its encoder
  const Tokenizer& tokenizer();
  size_t longest(const LanguagePair* pair) const;  // source, in subwords

  const Model& model_;
  int max_length_ = 0;
  bool lowercase_capitals_ = false;  // read a text in capitals in lowercase
  std::vector<MenuEntry> menu_;
  std::string default_;  // a name in the menu, or empty
  std::vector<LanguagePair> pairs_;
  Mutex making_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace anydepth
