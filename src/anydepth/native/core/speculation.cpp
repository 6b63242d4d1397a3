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
constexpr float MEMORY = 0.02f;    // how fast the rate of acceptance forgets
constexpr float HOPE = 0.002f;     // how fast, where drafting does not pay, it comes to be tried again
constexpr float BEST = 0.97f;      // the rate that is then hoped for

// What runs cost, by the weights that they read: reading those is what takes the time.
struct Costs {
  float draft;  // one drafted token, beside the pass of one position through everything
  float rest;   // verifying
  float row;    // one more row in a pass, as a share of the pass

  Costs(const Model& model, const SubNetwork& sub, int draft_layers, const Outputs& outputs, const Outputs& draft_outputs) {
    const auto bytes = [&](int from, int to) {
      double total = 0;
      for (int place = from; place < to; ++place) {
        const Layer& l = model.decoder.own[model.decoder.pattern[sub.decoder[place]]];
        for (const Matrix* m : {&l.qkv, &l.attention_out, &l.cross_query, &l.cross_out, &l.up, &l.down})
          total += static_cast<double>(m->bytes());
      }
      return total;
    };
    const int places = static_cast<int>(sub.decoder.size());
    const double first = bytes(0, draft_layers), others = bytes(draft_layers, places) + static_cast<double>(outputs.matrix().bytes());
    const double all = first + others;
    row = model.kernels->row_cost;
    draft = static_cast<float>((first + static_cast<double>(draft_outputs.matrix().bytes())) / all);
    rest = static_cast<float>(others / all);
  }

  // Tokens per time, beside one at a time, if each of `count` drafts is right with this probability.
  float gain(int count, float rate) const {
    float expected = 0.0f, right = 1.0f;
    for (int i = 0; i < count; ++i, right *= rate) expected += right;
    return expected / (static_cast<float>(count) * draft + rest * (1.0f + row * static_cast<float>(count - 1)));
  }

  int best_length(float rate) const {
    int best = 1;
    for (int count = 2; count <= LONGEST_DRAFT; ++count)
      if (gain(count, rate) > gain(best, rate)) best = count;
    return gain(best, rate) > 1.02f ? best : 1;
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
      if (guess.token == EOS || (!fixed && guess.margin < SURE)) break;
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
      if (i + 1 == run) break;
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
