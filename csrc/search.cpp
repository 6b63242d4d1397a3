#include "search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>

namespace anydepth {

namespace {

struct Hypothesis {
  std::vector<int32_t> tokens,
      slots;  // slots: where each position is in the KV cache, BOS first, so one more than tokens
  float score = 0.0f;
  int64_t layers = 0;  // that its tokens ran
};

// A sentence whose search has not ended, with its hypotheses: one, or as many as the beam is wide.
struct SentenceSearch {
  int sentence, limit;
  const OutputLayer* outputs;
  std::vector<Hypothesis> active;
  std::vector<Candidate> finished;
};

struct Extension {
  float score;
  int parent, token;
};

bool better(const Extension& a, const Extension& b) {
  return a.score != b.score ? a.score > b.score : a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
}

class Search {
 public:
  Search(const Model& model, const Options& options) : kernels_(*model.kernels), options_(options) {}

  // Extends all hypotheses of a sentence by a token, given their logits. True if the sentence is done.
  bool extend(SentenceSearch& s, const std::vector<const float*>& logits, int length) {
    return options_.beam == 1 ? extend_greedily(s, logits[0], length) : extend_beam(s, logits, length);
  }

 private:
  bool extend_greedily(SentenceSearch& s, const float* logits, int length) {
    Hypothesis& h = s.active[0];
    const TopToken best = find_top(kernels_, *s.outputs, logits, length > options_.min_length, options_.scores);
    h.score += best.log_probability;
    const bool ended = best.token == EOS;
    if (!ended) h.tokens.push_back(best.token);
    if (!ended && length < s.limit) return false;
    s.finished.push_back({std::move(h.tokens), h.score / length_penalty(length, options_.length_penalty), ended,
                          mean_layers(h, length)});
    return true;
  }

  bool extend_beam(SentenceSearch& s, const std::vector<const float*>& logits, int length) {
    const int k = options_.beam;
    found_.clear();
    for (size_t row = 0; row < s.active.size(); ++row)
      add_best(s, static_cast<int>(row), logits[row], length);
    std::sort(found_.begin(), found_.end(), better);
    if (found_.size() > size_t(2 * k)) found_.resize(2 * k);  // even if k of them end here, k go on

    std::vector<Extension> going;
    for (size_t rank = 0; rank < found_.size() && going.size() < size_t(k); ++rank) {
      const Extension& e = found_[rank];
      if (e.token != EOS)
        going.push_back(e);
      else if (rank < size_t(k))  // an end that k others beat is not worth keeping
        s.finished.push_back(candidate(s, e, length, true));
    }
    const bool at_limit = length >= s.limit;
    if (at_limit && s.finished.size() < size_t(k))
      for (const Extension& e : going) {
        s.finished.push_back(candidate(s, e, length, false));
        s.finished.back().tokens.push_back(e.token);
      }
    if (at_limit || going.empty() || s.finished.size() >= size_t(k)) {
      std::stable_sort(s.finished.begin(), s.finished.end(),
                       [](const auto& a, const auto& b) { return a.score > b.score; });
      if (s.finished.size() > size_t(options_.nbest)) s.finished.resize(options_.nbest);
      return true;
    }
    std::vector<Hypothesis> next;
    for (const Extension& e : going) {
      next.push_back(s.active[e.parent]);
      next.back().tokens.push_back(e.token);
      next.back().score = e.score;
    }
    s.active = std::move(next);
    return false;
  }

  Candidate candidate(const SentenceSearch& s, const Extension& e, int length, bool ended) const {
    const Hypothesis& parent = s.active[e.parent];
    return {parent.tokens, e.score / length_penalty(length, options_.length_penalty), ended, mean_layers(parent, length)};
  }

  static float mean_layers(const Hypothesis& h, int length) { return static_cast<float>(h.layers) / static_cast<float>(length); }

  // The 2k best extensions of one hypothesis.
  void add_best(const SentenceSearch& s, int row, const float* logits, int length) {
    const OutputLayer& outputs = *s.outputs;
    const size_t most = 2 * options_.beam;
    const float total = kernels_.log_sum_exp(logits + outputs.first(), outputs.count() - outputs.first());
    const float base = s.active[row].score - total;
    best_.clear();
    float threshold = -std::numeric_limits<float>::infinity();
    const bool only_end = outputs.count() - outputs.first() < 2;
    const int from = outputs.first() + (length <= options_.min_length && !only_end ? 1 : 0);
    for (int i = kernels_.next_above(logits, from, outputs.count(), threshold); i < outputs.count();
         i = kernels_.next_above(logits, i + 1, outputs.count(), threshold)) {
      const auto at =
          std::upper_bound(best_.begin(), best_.end(), logits[i], [](float x, const auto& b) { return x > b.first; });
      best_.insert(at, {logits[i], i});
      if (best_.size() > most) best_.pop_back();
      if (best_.size() == most) threshold = best_.back().first;
    }
    for (const auto& [value, column] : best_) {
      const float score = base + value;
      if (std::isfinite(score)) found_.push_back({score, row, outputs.token(column)});
    }
  }

  const Kernels& kernels_;
  const Options& options_;
  std::vector<Extension> found_;
  std::vector<std::pair<float, int>> best_;
};

// Where each hypothesis keeps its next position: in the slot of the one before, as long as the block lasts and unless a
// sister has it.
void choose_slots(std::vector<SentenceSearch>& alive, int position, int slots, std::vector<bool>& taken) {
  taken.assign(slots, false);
  const bool stays = position % KVCache::BLOCK != 0;
  for (SentenceSearch& s : alive)
    for (Hypothesis& h : s.active) {
      const bool keeps = stays && !taken[h.slots.back()];
      h.slots.push_back(keeps ? h.slots.back() : -1);
      if (keeps) taken[h.slots.back()] = true;
    }
  int next = 0;
  for (SentenceSearch& s : alive)
    for (Hypothesis& h : s.active)
      if (h.slots.back() < 0) {
        while (taken[next]) ++next;
        taken[next] = true;
        h.slots.back() = next;
      }
}

}  // namespace

namespace {

// A part of the sentences for each thread, of about as many tokens.
NBest search_in_parts(const Model& model, const SubNetwork& sub, const SourceBatch& sources,
                      const std::vector<int32_t>& limits, const Options& options, SpeculationStats& stats) {
  const int parts = options.team->size();
  Options alone = options;
  alone.team = nullptr;
  alone.draft_layers = 0;  // a batch is not speculated on, whatever its parts have
  const std::vector<int> starts = sources.divide(parts);
  std::vector<NBest> found(parts);
  options.team->run_or_throw([&](int part) {
    const int from = starts[part], to = starts[part + 1];
    if (from == to) return;
    const std::vector<int32_t> own_limits(limits.begin() + from, limits.begin() + to);
    found[part] = search(model, sub, sources.between(from, to), own_limits, alone, stats);
  });
  NBest all;
  for (NBest& part : found) std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

// The shortlists of the sentences of a batch. One product computes those of all, and each takes its own of that: what a
// sentence's list leaves out plays no part in its search, whatever else is in its batch.
class ShortlistedBatch {
 public:
  template <class Listed>
  ShortlistedBatch(const Model& model, int sentences, const Listed& listed) {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<int32_t> any;
    for (int i = 0; i < sentences; ++i) {
      tokens.push_back(listed(i));
      std::vector<int32_t> both;
      std::set_union(any.begin(), any.end(), tokens[i].begin(), tokens[i].end(), std::back_inserter(both));
      any = std::move(both);
    }
    if (sentences == 0) return;
    all_ = std::make_unique<OutputLayer>(model, std::move(any));
    for (int i = 0; i < sentences && sentences > 1; ++i) own_.emplace_back(*all_, std::move(tokens[i]));
  }

  const OutputLayer& all() const { return *all_; }
  const OutputLayer& of(int sentence) const { return own_.empty() ? *all_ : own_[sentence]; }

 private:
  std::unique_ptr<OutputLayer> all_;
  std::vector<OutputLayer> own_;
};

// A decoder step of all hypotheses: the logits of each, from the exit where its token leaves.
class Step {
 public:
  Step(const Model& model, const SubNetwork& sub, Runner& runner, const Options& options)
      : model_(model),
        runner_(runner),
        options_(options),
        cache_(runner.decoder_layers(), model.heads, model.width / model.heads, options.exits.kind != ExitKind::none) {
    const int layers = static_cast<int>(sub.decoder.size());
    for (const int exit : options.exits.exits)
      if (exit < layers) exits_.push_back(exit);
    exits_.push_back(layers);
  }

  KVCache& cache() { return cache_; }

  // `outputs` has those of each row; `all`, if they are lists, of all sentences. Rows are changed.
  void run(std::vector<Row>& rows, std::vector<const OutputLayer*>& outputs, const OutputLayer& all, int length) {
    const int count = static_cast<int>(rows.size());
    const bool may_end = length > options_.min_length;
    logits_.assign(count, nullptr), layers_.assign(count, 0), seen_.assign(count, Seen{});
    left_.resize(std::max<size_t>(left_.size(), count));
    going_.resize(count);
    std::iota(going_.begin(), going_.end(), 0);
    runner_.states(count);
    int done = 0;
    for (const int exit : exits_) {
      runner_.decode(rows, cache_, done, exit);
      done = exit;
      const bool own = !outputs[0]->columns().empty();
      const std::vector<const float*>* each = own ? &runner_.logits(all, outputs) : nullptr;
      const float* together = own ? nullptr : runner_.logits(*outputs[0], static_cast<int>(rows.size()));
      const auto logits = [&](int r) { return own ? (*each)[r] : together + r * outputs[r]->stride(); };
      kept_.clear();
      for (int r = 0; r < static_cast<int>(rows.size()); ++r) {
        const int row = going_[r];
        if (exit != exits_.back() && !leaves(*outputs[r], logits(r), may_end, seen_[row])) {
          kept_.push_back(r);
          continue;
        }
        logits_[row] = logits(r), layers_[row] = exit;
      }
      if (kept_.empty()) {
        if (exit != exits_.back()) runner_.keep_rows(rows, kept_, cache_, exit);
        return;
      }
      if (kept_.size() == rows.size()) continue;
      runner_.keep_rows(rows, kept_, cache_, exit);
      size_t next = 0;
      for (int r = 0; r < static_cast<int>(rows.size()); ++r) {  // the next exit writes where the logits are
        if (next < kept_.size() && kept_[next] == r) {
          rows[next] = rows[r], outputs[next] = outputs[r], going_[next] = going_[r];
          ++next;
          continue;
        }
        float* copy = left_[going_[r]].get(outputs[r]->stride());
        std::memcpy(copy, logits(r), outputs[r]->stride() * sizeof(float));
        logits_[going_[r]] = copy;
      }
      rows.resize(next), outputs.resize(next), going_.resize(next);
    }
  }

  const float* logits(int row) const { return logits_[row]; }
  int layers(int row) const { return layers_[row]; }

 private:
  struct Seen {  // at the exits so far
    int token = -1, alike = 0;
  };

  bool leaves(const OutputLayer& outputs, const float* logits, bool may_end, Seen& seen) const {
    const TokenExits& rule = options_.exits;
    if (rule.kind == ExitKind::margin) return has_margin(*model_.kernels, outputs, logits, may_end, rule.value);
    const bool score = rule.kind == ExitKind::confidence;
    const TopToken best = find_top(*model_.kernels, outputs, logits, may_end, score);
    if (score) return best.log_probability >= std::log(rule.value);
    seen.alike = best.token == seen.token ? seen.alike + 1 : 1;
    seen.token = best.token;
    return static_cast<float>(seen.alike) >= rule.value;
  }

  const Model& model_;
  Runner& runner_;
  const Options& options_;
  KVCache cache_;
  std::vector<int> exits_, going_, kept_, layers_;
  std::vector<Seen> seen_;
  std::vector<const float*> logits_;
  std::vector<Buffer<float>> left_;
};

}  // namespace

NBest search(const Model& model, const SubNetwork& sub, const SourceBatch& sources, const std::vector<int32_t>& limits,
             const Options& options, SpeculationStats& stats) {
  if (options.team != nullptr && sources.sentences() >= 2 * options.team->size())
    return search_in_parts(model, sub, sources, limits, options, stats);
  Runner runner(model, sub, options.stop, options.team);
  runner.encode(sources);
  const OutputLayer full(model);
  const bool speculates = options.draft_layers > 0 && options.beam == 1 && sources.sentences() == 1;
  const bool shortlisted = options.shortlist && model.has_shortlist();
  const auto listed = [&](int sentence) {
    return shortlist_tokens(model, sources.tokens.data() + sources.starts[sentence],
                            sources.starts[sentence + 1] - sources.starts[sentence]);
  };
  if (speculates) {
    if (!model.has_shortlist()) return {speculate(model, sub, runner, full, full, limits[0], options, stats)};
    const OutputLayer own(model, listed(0));
    return {speculate(model, sub, runner, shortlisted ? own : full, own, limits[0], options, stats)};
  }
  const ShortlistedBatch lists(model, shortlisted ? sources.sentences() : 0, listed);

  Search extending(model, options);
  Step step(model, sub, runner, options);
  NBest found(sources.sentences());
  std::vector<SentenceSearch> alive;
  for (int i = 0; i < sources.sentences(); ++i)
    alive.push_back({i, limits[i], shortlisted ? &lists.of(i) : &full, {Hypothesis{}}, {}});
  std::vector<Row> rows;
  std::vector<const OutputLayer*> outputs;
  std::vector<bool> taken;
  for (int length = 1; !alive.empty(); ++length) {
    rows.clear(), outputs.clear();
    for (SentenceSearch& s : alive)
      for (Hypothesis& h : s.active) {
        rows.push_back({h.tokens.empty() ? BOS : h.tokens.back(), s.sentence, &h.slots});
        outputs.push_back(s.outputs);
      }
    step.cache().make_room(length - 1, static_cast<int>(alive.size()) * options.beam);
    choose_slots(alive, length - 1, step.cache().slots(length - 1), taken);
    step.run(rows, outputs, shortlisted ? lists.all() : full, length);
    std::vector<SentenceSearch> still;
    std::vector<const float*> logits;
    int row = 0;
    for (SentenceSearch& s : alive) {
      logits.clear();
      for (Hypothesis& h : s.active) {
        h.layers += step.layers(row);
        logits.push_back(step.logits(row++));
      }
      if (extending.extend(s, logits, length))
        found[s.sentence] = std::move(s.finished);
      else
        still.push_back(std::move(s));
    }
    alive = std::move(still);
  }
  return found;
}

}  // namespace anydepth
