// Greedy search in which the first layers draft several tokens and all layers verify them in one pass.
//
// Every position runs through every layer once, whoever asks: the draft leaves its states and keys and values where the
// rest of the layers go on from. A pass over several rows gives each row the bits that a pass of its own would, so the
// output is that of greedy search with all layers.
#include <algorithm>
#include <cmath>

#include "search.h"

namespace anydepth {

namespace {

constexpr float SURE = 0.5f;       // how far, in logits, a drafted token is ahead of the next if drafting goes on
constexpr float MEMORY = 0.02f;    // how fast the rate of further tokens forgets
constexpr float HOPE = 0.002f;     // how fast, where drafting does not pay, it comes to be tried again
constexpr float BEST = 0.85f;      // the rate that is then hoped for
constexpr float PAYS = 1.15f;      // the gain from which on it is worth it

// What runs cost, by the weights that they read: reading those is what takes the time, of large models at least. What a
// row takes besides, in a layer and for its logits, is as if so many more bytes were read.
constexpr double OF_LAYER = 64e3, OF_LOGITS = 256e3;

struct Costs {
  float draft;  // one drafted token, beside the pass of one position through everything
  float rest;   // verifying one
  float row;    // one more in the same pass, as a share of that

  Costs(const Model& model, const SubNetwork& sub, int draft_layers, const Outputs& outputs, const Outputs& draft_outputs) {
    const auto layers = [&](int from, int to) {
      double total = 0;
      for (int place = from; place < to; ++place) {
        const Layer& l = model.decoder.own[model.decoder.pattern[sub.decoder[place]]];
        for (const Matrix* m : {&l.qkv, &l.attention_out, &l.cross_query, &l.cross_out, &l.up, &l.down})
          total += static_cast<double>(m->bytes());
        total += OF_LAYER;
      }
      return total;
    };
    const auto logits = [](const Outputs& of) { return static_cast<double>(of.matrix().bytes()) + OF_LOGITS; };
    const int places = static_cast<int>(sub.decoder.size());
    const double first = layers(0, draft_layers), others = layers(draft_layers, places) + logits(outputs);
    draft = static_cast<float>((first + logits(draft_outputs)) / (first + others));
    rest = static_cast<float>(others / (first + others));
    row = static_cast<float>(((places - draft_layers) * OF_LAYER + OF_LOGITS) / others) + model.kernels->row_cost;
  }

  // Tokens per time, beside one at a time, if of at most `count` tokens each is followed by another with this
  // probability. Drafts mostly end because they are not sure, so that about as many rows run as tokens come of them.
  float gain(int count, float rate) const {
    float expected = 0.0f, reached = 1.0f;
    for (int i = 0; i < count; ++i, reached *= rate) expected += reached;
    return expected / (expected * draft + rest * (1.0f + row * (expected - 1.0f)));
  }

  int best_length(float rate) const {
    int best = 1;
    for (int count = 2; count <= LONGEST_DRAFT; ++count)
      if (gain(count, rate) > gain(best, rate)) best = count;
    return gain(best, rate) > PAYS ? best : 1;
  }
};

}  // namespace

std::vector<Candidate> speculate(const Model& model, const SubNetwork& sub, Runner& runner, const Outputs& outputs,
                                 const Outputs& draft_outputs, int limit, const Options& options, Acceptance& acceptance) {
  const Kernels& kernels = *model.kernels;
  const int places = runner.places(), draft_layers = options.draft_layers;
  const Costs costs(model, sub, draft_layers, outputs, draft_outputs);
  const size_t stride = outputs.stride();
  Cache cache(places, model.width);
  runner.states(LONGEST_DRAFT);
  std::vector<int32_t> tokens, slots, drafts;
  std::vector<std::vector<int32_t>> slots_of(LONGEST_DRAFT);
  float score = 0.0f, rate = acceptance.rate(places, draft_layers).load(std::memory_order_relaxed);
  for (bool done = false, ended = false; !done;) {
    const int position = static_cast<int>(tokens.size()), left = limit - position;
    const bool fixed = options.draft_length > 0;
    int count = std::min(fixed ? options.draft_length : costs.best_length(rate), left);
    if (count == 1) rate += HOPE * (BEST - rate);

    // Row i is at position + i: the token before it is known for the first and drafted for the others.
    std::vector<Row> rows;
    bool unsure = false;
    drafts.clear();
    slots.assign(position, 0);
    for (int i = 0; i < count; ++i) {
      slots.push_back(0);
      slots_of[i] = slots;
      const int before = i == 0 ? (tokens.empty() ? BOS : tokens.back()) : drafts.back();
      cache.make_room(position + i, 1);
      rows.push_back({before, 0, &slots_of[i]});
      runner.decode({rows.back()}, cache, 0, draft_layers, i);
      if (i + 1 == count) break;
      const float* logits = runner.logits(draft_outputs, 1, i);
      const Best guess = best_of(kernels, draft_outputs, logits, position + i + 1 > options.min_length, false, true);
      unsure = !fixed && guess.margin < SURE;
      if (guess.token == EOS || unsure) break;
      drafts.push_back(guess.token);
    }
    const int run = static_cast<int>(rows.size());
    runner.decode(rows, cache, draft_layers, places);
    const float* logits = runner.logits(outputs, run);
    acceptance.passes.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < run; ++i) {
      const int length = position + i + 1;
      const Best best = best_of(kernels, outputs, logits + i * stride, length > options.min_length, options.scores);
      score += best.log_probability;
      ended = best.token == EOS;
      if (!ended) tokens.push_back(best.token);
      acceptance.tokens.fetch_add(1, std::memory_order_relaxed);
      if (ended || length >= limit) {
        score /= length_penalty(length, options.length_penalty);
        done = true;
        break;
      }
      if (i + 1 == run) {
        if (unsure) rate -= MEMORY * rate;  // as good as wrong: no more tokens come of this pass
        break;
      }
      const bool right = best.token == drafts[i];
      rate += MEMORY * ((right ? 1.0f : 0.0f) - rate);
      acceptance.drafted.fetch_add(1, std::memory_order_relaxed);
      if (!right) break;
      acceptance.accepted.fetch_add(1, std::memory_order_relaxed);
    }
    if (done) {
      acceptance.rate(places, draft_layers).store(rate, std::memory_order_relaxed);
      return {{std::move(tokens), score, ended}};
    }
  }
  return {};
}

}  // namespace anydepth
