// The C API: all arguments are checked, and no exception escapes.
#include "anydepth.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "search.h"

using namespace anydepth;

struct anydepth_model {
  std::unique_ptr<Model> model;
  SpeculationStats stats;
};

namespace {

thread_local std::string last_error;

template <class Result, class Body>
Result guarded(Result failed, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    last_error = "there is not enough memory";
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an unknown error";
  }
  return failed;
}

void check(bool holds, const char* otherwise) {
  if (!holds) throw Error(otherwise);
}

std::vector<int> layers(const int32_t* chosen, int32_t count, const Stack& stack) {
  check(chosen != nullptr && count >= 1 && count <= static_cast<int>(stack.pattern.size()),
        "the model has no such layers");
  std::vector<int> found(chosen, chosen + count);
  for (int i = 0; i < count; ++i)
    check(found[i] >= 0 && found[i] < static_cast<int>(stack.pattern.size()) && (i == 0 || found[i] > found[i - 1]),
          "layers must be there, and ascend");
  return found;
}

std::vector<float> weights(const float* given, int32_t count) {
  return given == nullptr ? std::vector<float>(count, 1.0f) : std::vector<float>(given, given + count);
}

SubNetwork checked(const Model& model, const anydepth_subnetwork* sub) {
  check(sub != nullptr, "there is no sub-network");
  return {layers(sub->encoder, sub->encoder_layers, model.encoder),
          layers(sub->decoder, sub->decoder_layers, model.decoder), weights(sub->encoder_weights, sub->encoder_layers),
          weights(sub->decoder_weights, sub->decoder_layers)};
}

SourceBatch checked(const Model& model, const anydepth_batch* batch) {
  check(batch != nullptr && batch->sentences >= 1 && batch->sentences <= 1 << 20,
        "there are no sentences, or too many");
  check(batch->tokens != nullptr && batch->starts != nullptr && batch->limits != nullptr, "the batch is not complete");
  SourceBatch found;
  found.starts.assign(batch->starts, batch->starts + batch->sentences + 1);
  check(found.starts[0] == 0, "sentences begin at 0");
  for (int i = 0; i < batch->sentences; ++i) {
    const int64_t length = int64_t(found.starts[i + 1]) - found.starts[i];
    check(length >= 1 && length <= model.positions, "a sentence is empty, or longer than the model takes");
    check(batch->limits[i] >= 1 && batch->limits[i] <= model.positions, "a limit is longer than the model takes");
  }
  found.tokens.assign(batch->tokens, batch->tokens + found.starts.back());
  for (const int32_t token : found.tokens)
    check(token >= 0 && token < model.vocabulary, "a token is not in the vocabulary");
  if (batch->depths != nullptr) found.depths.assign(batch->depths, batch->depths + found.starts.back());
  return found;
}

Options checked(const Model& model, const SubNetwork& sub, const anydepth_options* o) {
  check(o != nullptr && o->beam >= 1 && o->beam <= 1024 && o->nbest >= 1 && o->nbest <= o->beam,
        "the beam is out of range");
  check(o->draft_layers >= 0 && o->draft_layers < static_cast<int>(sub.decoder.size()),
        "drafts come from fewer layers");
  check(o->draft_length >= 0 && o->draft_length <= LONGEST_DRAFT, "drafts are shorter");
  check(!o->shortlist || !model.shortlist.offsets.empty(), "the model has no shortlist");
  check(o->length_penalty >= 0.0f && o->length_penalty <= 100.0f, "the length penalty is out of range");
  Options found;
  found.beam = o->beam, found.nbest = o->nbest, found.min_length = o->min_length,
  found.length_penalty = o->length_penalty;
  found.scores = o->scores != 0, found.shortlist = o->shortlist != 0, found.draft_layers = o->draft_layers;
  found.draft_length = o->draft_length;
  return found;
}

}  // namespace

int anydepth_interface(void) { return ANYDEPTH_INTERFACE; }

const char* anydepth_error(void) { return last_error.c_str(); }

const char* anydepth_kernels(const char* name) {
  const Kernels* found = kernels_named(name);
  return found == nullptr ? nullptr : found->name;
}

anydepth_model* anydepth_load(const void* data, size_t size, const char* kernels) {
  return guarded<anydepth_model*>(nullptr, [&] {
    const Kernels* found = kernels_named(kernels);
    check(found != nullptr, "this processor does not have these instructions");
    check(data != nullptr, "there is no data");
    auto made = std::make_unique<anydepth_model>();
    made->model = Model::read(static_cast<const uint8_t*>(data), size, found);
    return made.release();
  });
}

void anydepth_free(anydepth_model* model) { delete model; }

size_t anydepth_memory(const anydepth_model* model) { return model->model->memory(); }

int anydepth_set_shortlist(anydepth_model* model, const int32_t* always, size_t always_count, const int32_t* offsets,
                           const int32_t* outputs) {
  return guarded(-1, [&] {
    model->model->set_shortlist(always, always_count, offsets, outputs);
    return 0;
  });
}

int anydepth_search(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                    const anydepth_options* options, anydepth_results* results) {
  return guarded(-1, [&] {
    const Model& m = *model->model;
    const SubNetwork chosen = checked(m, sub);
    const SourceBatch sources = checked(m, batch);
    const Options wanted = checked(m, chosen, options);
    const std::vector<int32_t> limits(batch->limits, batch->limits + batch->sentences);
    const NBest found = search(m, chosen, sources, limits, wanted, model->stats);
    const size_t longest = *std::max_element(limits.begin(), limits.end());
    for (size_t i = 0; i < found.size(); ++i)
      for (int j = 0; j < wanted.nbest; ++j) {
        const size_t slot = i * wanted.nbest + j;
        const bool there = j < static_cast<int>(found[i].size());
        results->lengths[slot] = there ? static_cast<int32_t>(found[i][j].tokens.size()) : -1;
        results->ended[slot] = there && found[i][j].ended;
        results->scores[slot] = there ? found[i][j].score : 0.0f;
        if (there) std::copy(found[i][j].tokens.begin(), found[i][j].tokens.end(), results->tokens + slot * longest);
      }
    return 0;
  });
}

int anydepth_logits(const anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                    const int32_t* target, int32_t target_length, int32_t at_once, float* logits) {
  return guarded(-1, [&] {
    const Model& m = *model->model;
    const SubNetwork chosen = checked(m, sub);
    const SourceBatch sources = checked(m, batch);
    check(sources.sentences() == 1, "logits are of one sentence");
    check(target_length >= 1 && target_length <= m.positions && at_once >= 1,
          "the target is longer than the model takes");
    for (int i = 0; i < target_length; ++i)
      check(target[i] >= 0 && target[i] < m.vocabulary, "a token is not in the vocabulary");
    Runner runner(m, chosen);
    runner.encode(sources);
    KVCache cache(runner.decoder_layers(), m.width);
    const OutputLayer full(m);
    for (int from = 0; from < target_length; from += at_once) {
      const int count = std::min(at_once, target_length - from);
      std::vector<std::vector<int32_t>> slots;
      for (int i = 0; i < count; ++i) slots.emplace_back(from + i + 1, 0);
      std::vector<Row> rows;
      for (int i = 0; i < count; ++i) {
        cache.make_room(from + i, 1);
        rows.push_back({target[from + i], 0, &slots[i]});
      }
      runner.states(count);
      runner.decode(rows, cache, 0, runner.decoder_layers());
      const float* found = runner.logits(full, count);
      for (int i = 0; i < count; ++i)
        std::memcpy(logits + size_t(from + i) * m.vocabulary, found + i * full.stride(), m.vocabulary * sizeof(float));
    }
    return 0;
  });
}

void anydepth_speculation(const anydepth_model* model, int64_t counts[4]) {
  const SpeculationStats& a = model->stats;
  counts[0] = a.drafted, counts[1] = a.accepted, counts[2] = a.passes, counts[3] = a.tokens;
}
