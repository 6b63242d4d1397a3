// Self-speculative greedy decoding: the first layers draft several tokens, all layers verify them in one pass.
//
// Every position runs through every layer once: the remaining layers continue from the states and the KV cache that the
// draft leaves. A pass over several rows gives each row the same bits as a pass of its own, so the output is that of
// greedy search with all layers.
#include <algorithm>
#include <cmath>

#include "search.h"

namespace anydepth {

namespace {

constexpr float MARGIN = 0.5f;      // the margin in logits over the second best token that a draft needs to go on
constexpr float SMOOTHING = 0.02f;  // of the moving average of the acceptance rate
constexpr float RECOVERY = 0.002f;  // how fast the rate recovers where drafting does not pay, so that it is tried again
constexpr float RECOVERED_RATE = 0.85f;  // the rate towards which it recovers
constexpr float MIN_GAIN = 1.15f;        // the smallest speed-up that is worth drafting

// Costs are estimated in bytes of weights read, which bounds the speed, of large models at least. What a row costs
// besides, in a layer and for its logits, counts as so many more bytes.
constexpr double LAYER_BYTES = 64e3, LOGITS_BYTES = 256e3;

struct Costs {
  float draft;  // of one drafted token, as a share of one pass through all layers
  float rest;   // of verifying one token, likewise
  float row;    // of one more row in the same pass, as a share of `rest`

  Costs(const Model& model, const SubNetwork& sub, int draft_layers, const OutputLayer& outputs,
        const OutputLayer& draft_outputs) {
    const auto bytes_of_layers = [&](int from, int to) {
      double total = 0;
      for (int layer = from; layer < to; ++layer) {
        const Layer& l = model.decoder.own[model.decoder.pattern[sub.decoder[layer]]];
        for (const PackedMatrix* m : {&l.qkv, &l.attention_out, &l.cross_query, &l.cross_out, &l.up, &l.down})
          total += static_cast<double>(m->bytes());
        total += LAYER_BYTES;
      }
      return total;
    };
    const auto logits = [](const OutputLayer& of) { return static_cast<double>(of.matrix().bytes()) + LOGITS_BYTES; };
    const int layers = static_cast<int>(sub.decoder.size());
    const double first = bytes_of_layers(0, draft_layers),
                 others = bytes_of_layers(draft_layers, layers) + logits(outputs);
    draft = static_cast<float>((first + logits(draft_outputs)) / (first + others));
    rest = static_cast<float>(others / (first + others));
    row = static_cast<float>(((layers - draft_layers) * LAYER_BYTES + LOGITS_BYTES) / others) + model.kernels->row_cost;
  }

  // Speed-up over one token per pass, if of at most `count` tokens each is followed by another with this
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
    return gain(best, rate) > MIN_GAIN ? best : 1;
  }
};

}  // namespace

std::vector<Candidate> speculate(const Model& model, const SubNetwork& sub, Runner& runner, const OutputLayer& outputs,
                                 const OutputLayer& draft_outputs, int limit, const Options& options,
                                 SpeculationStats& stats) {
  const Kernels& kernels = *model.kernels;
  const int layers = runner.decoder_layers(), draft_layers = options.draft_layers;
  const Costs costs(model, sub, draft_layers, outputs, draft_outputs);
  const size_t stride = outputs.stride();
  KVCache cache(layers, model.heads, model.width / model.heads);
  runner.states(LONGEST_DRAFT);
  std::vector<int32_t> tokens, slots, drafts;
  std::vector<std::vector<int32_t>> slots_of(LONGEST_DRAFT);
  float score = 0.0f, rate = stats.rate(layers, draft_layers).load(std::memory_order_relaxed);
  for (bool done = false, ended = false; !done;) {
    const int position = static_cast<int>(tokens.size()), left = limit - position;
    const bool fixed = options.draft_length > 0;
    int count = std::min(fixed ? options.draft_length : costs.best_length(rate), left);
    if (count == 1) rate += RECOVERY * (RECOVERED_RATE - rate);

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
      const float* logits = runner.logits(draft_outputs, 1, i, false);
      const TopToken guess =
          find_top(kernels, draft_outputs, logits, position + i + 1 > options.min_length, false, true);
      unsure = !fixed && guess.margin < MARGIN;
      if (guess.token == EOS || unsure) break;
      drafts.push_back(guess.token);
    }
    const int run = static_cast<int>(rows.size());
    runner.decode(rows, cache, draft_layers, layers);
    const float* logits = runner.logits(outputs, run);
    stats.passes.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < run; ++i) {
      const int length = position + i + 1;
      const TopToken best =
          find_top(kernels, outputs, logits + i * stride, length > options.min_length, options.scores);
      score += best.log_probability;
      ended = best.token == EOS;
      if (!ended) tokens.push_back(best.token);
      stats.tokens.fetch_add(1, std::memory_order_relaxed);
      if (ended || length >= limit) {
        score /= length_penalty(length, options.length_penalty);
        done = true;
        break;
      }
      if (i + 1 == run) {
        if (unsure) rate -= SMOOTHING * rate;  // counts as a rejection: no more tokens come of this pass
        break;
      }
      const bool right = best.token == drafts[i];
      rate += SMOOTHING * ((right ? 1.0f : 0.0f) - rate);
      stats.drafted.fetch_add(1, std::memory_order_relaxed);
      if (!right) break;
      stats.accepted.fetch_add(1, std::memory_order_relaxed);
    }
    if (done) {
      stats.rate(layers, draft_layers).store(rate, std::memory_order_relaxed);
      return {{std::move(tokens), score, ended, static_cast<float>(layers)}};
    }
  }
  return {};
}

}  // namespace anydepth
