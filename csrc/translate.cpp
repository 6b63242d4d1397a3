#include "translate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "capitals.h"

namespace anydepth {

namespace {

constexpr size_t BATCH = 32;  // texts decoded together
constexpr size_t LONGEST_TEXT = size_t(64) << 20;  // bytes; the tokenizer takes no more
constexpr int UNK = 1;        // as data/tokenizer.py has it
constexpr double UNMEASURED = std::numeric_limits<double>::quiet_NaN();

double figure(const Json& values, const char* key) {
  const Json* found = values.find(key);
  return found == nullptr ? UNMEASURED : found->number();
}

Figures read_figures(const Json& from) {
  const Json &cost = from.at("cost"), &quality = from.at("quality");
  return {figure(cost, "seconds_per_sentence"), figure(quality, "bleu"), figure(quality, "chrf")};
}

std::vector<int> read_layers(const Json& from, const Stack& stack) {
  std::vector<int> found;
  const int count = static_cast<int>(stack.pattern.size());
  for (const Json& one : from.items())
    found.push_back(static_cast<int>(one.integer(found.empty() ? 0 : found.back() + 1, count - 1)));
  if (found.empty()) throw Error("a depth in the file has no layers");
  return found;
}

std::vector<float> read_weights(const Json* from, size_t layers) {
  if (from == nullptr) return std::vector<float>(layers, 1.0f);
  std::vector<float> found;
  for (const Json& one : from->items()) found.push_back(static_cast<float>(one.number()));
  for (const float weight : found)
    if (!std::isfinite(weight)) throw Error("the file has values that are not finite");
  if (found.size() != layers) throw Error("a depth in the file has other weights than layers");
  return found;
}

MenuEntry read_entry(const Json& row, const Model& model) {
  MenuEntry entry;
  entry.name = row.at("name").text();
  if (const Json* pair = row.find("pair")) entry.pair = pair->text();
  const Json& sub = row.at("subnetwork");
  entry.sub.encoder = read_layers(sub.at("encoder"), model.encoder);
  entry.sub.decoder = read_layers(sub.at("decoder"), model.decoder);
  const Json *encoder = sub.find("encoder_weights"), *decoder = sub.find("decoder_weights");
  entry.sub.encoder_weights = read_weights(encoder, entry.sub.encoder.size());
  entry.sub.decoder_weights = read_weights(decoder, entry.sub.decoder.size());
  entry.weighted = encoder != nullptr || decoder != nullptr;
  const Json* by_word = sub.find("by_word");
  entry.by_word = by_word != nullptr && by_word->boolean();
  entry.figures = read_figures(row);
  if (const Json* of_pairs = row.find("of_pairs"))
    for (const auto& [pair, figures] : of_pairs->members()) entry.of_pairs.emplace_back(pair, read_figures(figures));
  return entry;
}

const Figures& figures_of(const MenuEntry& entry, const std::string& pair) {
  for (const auto& [name, figures] : entry.of_pairs)
    if (name == pair) return figures;
  return entry.figures;
}

}  // namespace

TextModel::TextModel(const Model& model) : model_(model) {
  const Json& about = model.about();
  const Json& core = about.at("core");
  max_length_ = static_cast<int>(core.at("max_length").integer(1, model.positions));
  if (const Json* config = about.find("config"))
    if (const Json* lowercase = config->find("lowercase_capitals")) lowercase_capitals_ = lowercase->boolean();
  const Json* depths = about.find("depths");
  if (depths == nullptr) throw Error("the file has no depths by name: it takes token ids only");
  for (const Json& row : depths->at("depths").items()) menu_.push_back(read_entry(row, model));
  if (menu_.empty()) throw Error("the file has no depths by name: it takes token ids only");
  if (const Json* named = depths->find("default"); named != nullptr) default_ = named->text();
  for (const Json& one : core.at("pairs").items()) {
    const Json* tag = one.find("tag");
    pairs_.push_back({one.at("source").text(), one.at("target").text(),
                      tag == nullptr ? -1 : static_cast<int>(tag->integer(0, model.vocabulary - 1))});
  }
}

const Tokenizer& TextModel::tokenizer() {
  const Lock lock(making_);
  if (!tokenizer_) {
    if (!model_.has_base()) throw NotYet("the tokenizer of the file has not arrived");
    if (model_.tokenizer() == nullptr) throw FileError("the file has no tokenizer: it takes token ids only");
    std::unique_ptr<Tokenizer> made;
    try {
      made = std::make_unique<Tokenizer>(model_.tokenizer(), model_.tokenizer_size());
    } catch (const std::runtime_error& error) {
      throw FileError(error.what());
    }
    if (made->size() != model_.vocabulary) throw FileError("the tokenizer of the file does not fit its model");
    tokenizer_ = std::move(made);
  }
  return *tokenizer_;
}

// The pair that is wanted; null where it does not matter which one a text is of.
const LanguagePair* TextModel::choose_pair(const std::string& wanted) const {
  std::string names;
  bool differ = false;
  for (const LanguagePair& pair : pairs_) {
    if (pair.name() == wanted) return &pair;
    names += (names.empty() ? "" : ", ") + pair.name();
    differ = differ || pair.tag != pairs_[0].tag;
  }
  if (!wanted.empty()) throw Error("this model does not translate " + wanted + "; it has: " + names);
  for (const MenuEntry& entry : menu_) differ = differ || !entry.pair.empty();
  if (pairs_.size() == 1) return &pairs_[0];
  if (pairs_.size() > 1 && differ) throw Error("this model has several language pairs, " + names + ": choose one");
  return nullptr;
}

const MenuEntry& TextModel::choose_depth(const TextRequest& request, const std::string& pair) const {
  const auto belongs = [&](const MenuEntry& entry) { return entry.pair.empty() || entry.pair == pair; };
  if (!request.depth.empty()) {
    for (const MenuEntry& entry : menu_) {
      if (!belongs(entry) || (entry.name != request.depth && entry.name != pair + ":" + request.depth)) continue;
      if (entry.by_word) throw Error("depth " + entry.name + " has a depth for each word, which needs the Python package");
      if (!ready(entry)) throw NotYet("the layers of depth " + entry.name + " have not arrived");
      return entry;
    }
    std::string names;
    for (const MenuEntry& entry : menu_)
      if (belongs(entry) && !entry.by_word) names += (names.empty() ? "" : ", ") + entry.name;
    throw Error("this model has no depth " + request.depth + "; it has: " + names);
  }
  const MenuEntry* best = nullptr;
  bool any = false, measured = false;
  for (const MenuEntry& entry : menu_) {
    if (!belongs(entry) || entry.by_word) continue;
    any = true;
    if (!ready(entry)) continue;
    if (request.budget > 0) {
      const Figures& own = figures_of(entry, pair);
      if (std::isnan(own.seconds) || std::isnan(own.bleu)) continue;
      measured = true;
      if (own.seconds <= request.budget && (best == nullptr || own.bleu > figures_of(*best, pair).bleu)) best = &entry;
    } else if (entry.name == default_) {
      return entry;
    } else if (best == nullptr || (best->weighted && !entry.weighted) ||
               (best->weighted == entry.weighted && entry.layers() > best->layers())) {
      best = &entry;  // without a default the deepest without layer weights, as in depth/menu.py
    }
  }
  if (best != nullptr) return *best;
  if (measured) throw Error("the budget is below the time of the fastest depth: give more time, or name a depth");
  if (!any) throw Error("this model has no depth for text: all of them have a depth for each word");
  if (!model_.complete()) throw NotYet("no depth of the file has arrived yet");
  throw Error("the depths of this file were never measured: name a depth instead of a budget");
}

std::vector<int> TextModel::exits_before(const MenuEntry& entry) const {
  const auto begins = [](const auto& all, const auto& first) {
    return first.size() < all.size() && std::equal(first.begin(), first.end(), all.begin());
  };
  std::vector<int> found;
  for (const MenuEntry& other : menu_)
    if (!other.by_word && other.sub.encoder == entry.sub.encoder &&
        other.sub.encoder_weights == entry.sub.encoder_weights && begins(entry.sub.decoder, other.sub.decoder) &&
        begins(entry.sub.decoder_weights, other.sub.decoder_weights))
      found.push_back(static_cast<int>(other.sub.decoder.size()));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

size_t TextModel::longest(const LanguagePair* pair) const {
  const bool tagged = pair != nullptr && pair->tag >= 0;
  return static_cast<size_t>(std::max(0, max_length_ - 1 - (tagged ? 1 : 0)));
}

bool TextModel::fits(std::string_view text, const std::string& pair) {
  if (!is_utf8(text)) throw Error("the text is not valid UTF-8");
  const bool in_capitals = lowercase_capitals_ && is_in_capitals(text);
  return tokenizer().encode(in_capitals ? to_sentence_case(text) : text).size() <= longest(choose_pair(pair));
}

std::vector<std::vector<TextOutput>> TextModel::translate(const std::vector<std::string_view>& texts,
                                                          const TextRequest& request, SpeculationStats& stats) {
  const LanguagePair* pair = choose_pair(request.pair);
  const MenuEntry& depth = choose_depth(request, pair == nullptr ? "" : pair->name());
  const Tokenizer& splitter = tokenizer();
  const int tag = pair == nullptr ? -1 : pair->tag;
  const size_t longest = this->longest(pair);
  if (request.needs_shortlist) model_.check_shortlist();
  Options options = request.search;
  if (options.exits.kind != ExitKind::none) {
    options.exits.exits = exits_before(depth);
    if (options.exits.exits.empty())
      throw Error("at depth " + depth.name + " tokens cannot leave early: the file has no depth with fewer decoder "
                  "layers and the same encoder");
  }

  std::vector<std::vector<int32_t>> sources(texts.size());
  std::vector<size_t> order;
  std::vector<bool> in_capitals(texts.size());
  std::vector<std::vector<TextOutput>> found(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    request.search.stop.check();
    if (texts[i].size() > LONGEST_TEXT)
      throw TooLong("text " + std::to_string(i + 1) + " has more than 64 MiB: split it into sentences");
    if (!is_utf8(texts[i])) throw Error("text " + std::to_string(i + 1) + " is not valid UTF-8");
    in_capitals[i] = lowercase_capitals_ && is_in_capitals(texts[i]);
    std::vector<int32_t> ids =
        splitter.encode(in_capitals[i] ? to_sentence_case(texts[i]) : texts[i], request.search.stop);
    if (ids.size() > longest) {
      if (!request.cut_long)
        throw TooLong("text " + std::to_string(i + 1) + " has " + std::to_string(ids.size()) +
                      " subwords, the limit is " + std::to_string(longest) +
                      ": split it into sentences, or have long texts cut");
      ids.resize(longest);
    }
    if (ids.empty()) {
      found[i].push_back({"", "", 0.0f, true, 0.0f});
      continue;
    }
    if (tag >= 0) ids.insert(ids.begin(), tag);
    ids.push_back(EOS);
    sources[i] = std::move(ids);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });

  const size_t together = BATCH * (request.search.team == nullptr ? 1 : request.search.team->size());
  for (size_t from = 0; from < order.size(); from += together) {
    const size_t to = std::min(order.size(), from + together);
    SourceBatch batch;
    batch.starts.push_back(0);
    std::vector<int32_t> limits;
    for (size_t k = from; k < to; ++k) {
      const std::vector<int32_t>& source = sources[order[k]];
      batch.tokens.insert(batch.tokens.end(), source.begin(), source.end());
      batch.starts.push_back(static_cast<int32_t>(batch.tokens.size()));
      const int64_t wanted = request.max_length > 0 ? request.max_length : 2 * int64_t(source.size()) + 10;
      limits.push_back(static_cast<int32_t>(std::min<int64_t>(wanted, max_length_)));
    }
    const NBest outputs = search(model_, depth.sub, batch, limits, options, stats);
    for (size_t k = from; k < to; ++k)
      for (const Candidate& one : outputs[k - from]) {
        std::vector<int32_t> kept;
        for (const int32_t token : one.tokens)
          if (token > EOS || token == UNK) kept.push_back(token);
        const std::string text = join_lines(splitter.decode(kept.data(), kept.size()));
        found[order[k]].push_back({in_capitals[order[k]] ? to_capitals(text) : text, depth.name, one.score, one.ended,
                                   one.layers});
      }
  }
  return found;
}

}  // namespace anydepth
