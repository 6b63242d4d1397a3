// The C API: all arguments are checked, and no exception escapes.
#include "anydepth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "classify.h"
#include "mutex.h"
#include "search.h"
#include "translate.h"

using namespace anydepth;

struct anydepth_model {
  std::unique_ptr<Model> model;
  SpeculationStats stats;
  Mutex making, appending, sharing;
  std::unique_ptr<TextModel> text_model;
  int calls = 0;               // that search now
  std::unique_ptr<Team> team;  // of the call that has it, if there is one
  bool team_in_use = false;

  ~anydepth_model() { drop_team(); }
  void drop_team() {
    if (team && !team->here()) team.release();
    team.reset();
  }

  // Made when it is first needed: a model may be used with token ids alone.
  TextModel& text() {
    const Lock lock(making);
    if (!model->has_header()) throw NotYet("the header of the file has not arrived");
    if (model->classes > 0) throw Error("the model classifies texts: it does not translate");
    if (!text_model) text_model = std::make_unique<TextModel>(*model);
    return *text_model;
  }
};

namespace {

// A call that searches. It has the model's threads if no other runs: many calls at once keep all cores busy anyway.
class Call {
 public:
  explicit Call(anydepth_model& model) : model_(model) {
    const Lock lock(model.sharing);
    if (++model.calls > 1 || model.team_in_use || !model.team || !model.team->here()) return;
    model.team_in_use = has_team_ = true;
  }
  ~Call() {
    const Lock lock(model_.sharing);
    --model_.calls;
    if (has_team_) model_.team_in_use = false;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Team* team() const { return has_team_ ? model_.team.get() : nullptr; }

 private:
  anydepth_model& model_;
  bool has_team_ = false;
};

}  // namespace

struct anydepth_translations {
  std::vector<std::vector<TextOutput>> texts;
};

namespace {

constexpr double LONGEST_TIME = 1e9;  // seconds
constexpr int32_t MOST_THREADS = 256;

struct Failure {
  int code = ANYDEPTH_OK;
  std::string message;
};
thread_local Failure last_failure;

int fail(int code, const char* message) {
  last_failure.code = code;
  try {
    last_failure.message = message;
  } catch (...) {
    last_failure.message.clear();
  }
  return code;
}

// The code of what went wrong in `body`, or what it returns.
template <class Body>
int guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(ANYDEPTH_NO_MEMORY, "there is not enough memory");
  } catch (const Stopped& error) {
    return fail(ANYDEPTH_STOPPED, error.what());
  } catch (const NotYet& error) {
    return fail(ANYDEPTH_NOT_YET, error.what());
  } catch (const TooLong& error) {
    return fail(ANYDEPTH_TOO_LONG, error.what());
  } catch (const FileError& error) {
    return fail(ANYDEPTH_FILE, error.what());
  } catch (const std::runtime_error& error) {
    return fail(ANYDEPTH_INVALID, error.what());
  } catch (const std::exception& error) {
    return fail(ANYDEPTH_INTERNAL, error.what());
  } catch (...) {
    return fail(ANYDEPTH_INTERNAL, "an unknown error");
  }
}

// What `body` refuses is the fault of the file.
template <class Body>
auto reading(Body body) {
  try {
    return body();
  } catch (const std::runtime_error& error) {
    throw FileError(error.what());
  }
}

void check(bool holds, const char* otherwise) {
  if (!holds) throw Error(otherwise);
}

const Model& checked(const anydepth_model* model) {
  check(model != nullptr, "there is no model");
  if (!model->model->has_header()) throw NotYet("the header of the file has not arrived");
  return *model->model;
}

const Model& checked_translator(const anydepth_model* model) {
  const Model& found = checked(model);
  check(found.classes == 0, "the model classifies texts: it does not translate");
  return found;
}

std::vector<int> layers(const int32_t* chosen, int32_t count, const Stack& stack) {
  if (stack.pattern.empty() && count == 0) return {};  // the decoder of a model that classifies
  check(chosen != nullptr && count >= 1 && count <= static_cast<int>(stack.pattern.size()),
        "the model has no such layers");
  std::vector<int> found(chosen, chosen + count);
  for (int i = 0; i < count; ++i)
    check(found[i] >= 0 && found[i] < static_cast<int>(stack.pattern.size()) && (i == 0 || found[i] > found[i - 1]),
          "layers must be there, and ascend");
  return found;
}

std::vector<float> weights(const float* given, int32_t count) {
  std::vector<float> found = given == nullptr ? std::vector<float>(count, 1.0f) : std::vector<float>(given, given + count);
  for (const float weight : found) check(std::isfinite(weight), "the weight of a layer is not finite");
  return found;
}

SubNetwork checked(const Model& model, const anydepth_subnetwork* sub) {
  check(sub != nullptr, "there is no sub-network");
  const std::vector<int> encoder = layers(sub->encoder, sub->encoder_layers, model.encoder),
                         decoder = layers(sub->decoder, sub->decoder_layers, model.decoder);
  if (!model.has_layers(encoder, decoder)) throw NotYet("some of these layers have not arrived");
  return {encoder, decoder, weights(sub->encoder_weights, sub->encoder_layers),
          weights(sub->decoder_weights, sub->decoder_layers)};
}

// Of a model that classifies without limits.
SourceBatch checked(const Model& model, const anydepth_batch* batch) {
  const bool limited = model.classes == 0;
  check(batch != nullptr && batch->sentences >= 1 && batch->sentences <= 1 << 20,
        "there are no sentences, or too many");
  check(batch->tokens != nullptr && batch->starts != nullptr && (batch->limits != nullptr || !limited),
        "the batch is not complete");
  SourceBatch found;
  found.starts.assign(batch->starts, batch->starts + batch->sentences + 1);
  check(found.starts[0] == 0, "sentences begin at 0");
  for (int i = 0; i < batch->sentences; ++i) {
    const int64_t length = int64_t(found.starts[i + 1]) - found.starts[i];
    check(length >= 1 && length <= model.positions, "a sentence is empty, or longer than the model takes");
    check(!limited || (batch->limits[i] >= 1 && batch->limits[i] <= model.positions),
          "a limit is longer than the model takes");
  }
  found.tokens.assign(batch->tokens, batch->tokens + found.starts.back());
  for (const int32_t token : found.tokens)
    check(token >= 0 && token < model.vocabulary, "a token is not in the vocabulary");
  if (batch->depths != nullptr) found.depths.assign(batch->depths, batch->depths + found.starts.back());
  return found;
}

StopConditions stop_conditions(double timeout, const int32_t* abort) {
  check(timeout >= 0.0 && timeout <= LONGEST_TIME, "the timeout is out of range");
  StopConditions found;
  found.abort = abort;
  if (timeout > 0.0) {
    found.has_deadline = true;
    found.deadline = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(timeout));
  }
  return found;
}

TokenExits token_exits(int32_t rule, float value, std::vector<int> exits) {
  check(rule >= ANYDEPTH_EXIT_NONE && rule <= ANYDEPTH_EXIT_PATIENCE, "the rule of the exits is 0 to 3");
  if (rule == ANYDEPTH_EXIT_NONE) return {};
  check(rule == ANYDEPTH_EXIT_CONFIDENCE ? value > 0.0f && value < 1.0f
        : rule == ANYDEPTH_EXIT_PATIENCE ? value >= 1.0f && value <= 1e6f
                                         : value >= 0.0f,  // not where it is not a number
        "the threshold of the exits is out of range");
  return {static_cast<ExitKind>(rule), value, std::move(exits)};
}

TokenExits parsed_exits(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const int32_t rule = kind == "margin"       ? ANYDEPTH_EXIT_MARGIN
                       : kind == "confidence" ? ANYDEPTH_EXIT_CONFIDENCE
                       : kind == "patience"   ? ANYDEPTH_EXIT_PATIENCE
                                              : ANYDEPTH_EXIT_NONE;
  try {
    check(rule != ANYDEPTH_EXIT_NONE && colon != std::string::npos, "");
    return token_exits(rule, static_cast<float>(Json::parse(text.substr(colon + 1)).number()), {});
  } catch (const std::runtime_error&) {
    throw Error(text + " is not an early-exit rule: write margin:2, confidence:0.9 or patience:2");
  }
}

void check_beam(int32_t beam, int32_t nbest, float length_penalty) {
  check(beam >= 1 && beam <= 1024 && nbest >= 1 && nbest <= beam, "the beam is out of range");
  check(length_penalty >= 0.0f && length_penalty <= 100.0f, "the length penalty is out of range");
}

Options checked(const Model& model, const SubNetwork& sub, const anydepth_options* o) {
  check(o != nullptr, "there are no options");
  check_beam(o->beam, o->nbest, o->length_penalty);
  check(o->min_length >= 0, "the minimum length is negative");
  check(o->draft_layers >= 0 && o->draft_layers < static_cast<int>(sub.decoder.size()),
        "drafts come from fewer layers");
  check(o->draft_length >= 0 && o->draft_length <= LONGEST_DRAFT, "drafts are shorter");
  check(o->shortlist >= ANYDEPTH_SHORTLIST_OFF && o->shortlist <= ANYDEPTH_SHORTLIST_IF_THERE,
        "the use of the shortlist is 0, 1 or 2");
  if (o->shortlist == ANYDEPTH_SHORTLIST_ON) model.check_shortlist();
  Options found;
  found.beam = o->beam, found.nbest = o->nbest, found.min_length = o->min_length,
  found.length_penalty = o->length_penalty;
  found.scores = o->scores != 0, found.shortlist = o->shortlist != 0, found.draft_layers = o->draft_layers;
  found.draft_length = o->draft_length;
  check(o->exit_count >= 0 && o->exit_count <= static_cast<int>(sub.decoder.size()) &&
            (o->exits != nullptr || o->exit_count == 0),
        "there are no exits, or too many");
  std::vector<int> exits(o->exits, o->exits + o->exit_count);
  for (size_t i = 0; i < exits.size(); ++i)
    check(exits[i] >= 1 && exits[i] <= static_cast<int>(sub.decoder.size()) && (i == 0 || exits[i] > exits[i - 1]),
          "exits are after layers that run, and ascend");
  found.exits = token_exits(o->exit_rule, o->exit_value, std::move(exits));
  check(found.exits.kind == ExitKind::none || found.draft_layers == 0, "drafts have no exits");
  found.stop = stop_conditions(o->timeout, o->abort);
  return found;
}

ClassifyOptions checked(const Model& model, const SubNetwork& sub, const anydepth_classify_options* o) {
  check(o != nullptr, "there are no options");
  check(o->exit_count >= 0 && o->exit_count <= static_cast<int>(sub.encoder.size()) &&
            (o->exits != nullptr || o->exit_count == 0),
        "there are no exits, or too many");
  ClassifyOptions found;
  found.rule.exits.assign(o->exits, o->exits + o->exit_count);
  for (int32_t i = 0; i < o->exit_count; ++i)
    check(o->exits[i] >= 1 && o->exits[i] <= static_cast<int>(sub.encoder.size()) &&
              (i == 0 || o->exits[i] > o->exits[i - 1]),
          "exits are after layers that run, and ascend");
  check(o->confidence >= 0.0f && o->confidence <= 1.0f && o->patience >= 0, "the rule of the exits is out of range");
  check(o->halting_scale >= 0.0f && o->halting_scale <= 1e6f, "the scale of depths is out of range");
  check(o->halting_scale == 0.0f || model.halting_weights != nullptr, "the model has no halting unit");
  found.rule.confidence = o->confidence, found.rule.patience = o->patience, found.halting_scale = o->halting_scale;
  found.stop = stop_conditions(o->timeout, o->abort);
  return found;
}

TextRequest checked(const anydepth_request* r) {
  check(r != nullptr, "there is no request");
  check_beam(r->beam, r->nbest, r->length_penalty);
  check(r->budget >= 0.0 && r->budget <= LONGEST_TIME, "the budget is out of range");
  check(r->max_length >= 0, "the maximum length is negative");
  check(r->shortlist >= ANYDEPTH_SHORTLIST_OFF && r->shortlist <= ANYDEPTH_SHORTLIST_IF_THERE,
        "the use of the shortlist is 0, 1 or 2");
  check(r->budget == 0.0 || r->depth == nullptr, "a depth and a budget both choose the depth: give one of the two");
  TextRequest found;
  if (r->depth != nullptr) found.depth = r->depth;
  if (r->pair != nullptr) found.pair = r->pair;
  check(r->depth == nullptr || !found.depth.empty(), "the name of the depth is empty");
  found.budget = r->budget, found.max_length = r->max_length, found.cut_long = r->cut_long != 0;
  found.search.beam = r->beam, found.search.nbest = r->nbest, found.search.length_penalty = r->length_penalty;
  found.search.scores = r->scores != 0 || r->beam > 1, found.search.shortlist = r->shortlist != 0;
  found.needs_shortlist = r->shortlist == ANYDEPTH_SHORTLIST_ON;
  if (r->exit != nullptr) found.search.exits = parsed_exits(r->exit);  // where, the menu says
  found.search.stop = stop_conditions(r->timeout, r->abort);
  return found;
}

// A new model from what `make` makes of the kernels.
template <class Make>
anydepth_model* opened(const char* kernels, Make make) {
  anydepth_model* result = nullptr;
  guarded([&] {
    const Kernels* found = kernels_named(kernels);
    check(found != nullptr, "this processor does not have these instructions");
    auto made = std::make_unique<anydepth_model>();
    made->model = make(found);
    result = made.release();
    return ANYDEPTH_OK;
  });
  return result;
}

}  // namespace

int anydepth_interface(void) { return ANYDEPTH_INTERFACE; }

const char* anydepth_error(void) { return last_failure.message.c_str(); }

int anydepth_error_code(void) { return last_failure.code; }

const char* anydepth_kernels(const char* name) {
  const Kernels* found = kernels_named(name);
  return found == nullptr ? nullptr : found->name;
}

anydepth_model* anydepth_open(const char* path, const char* kernels) {
  return opened(kernels, [&](const Kernels* found) {
    check(path != nullptr, "there is no path");
    return reading([&] { return Model::open(path, found); });
  });
}

anydepth_model* anydepth_load(const void* data, size_t size, const char* kernels) {
  return opened(kernels, [&](const Kernels* found) {
    check(data != nullptr, "there is no data");
    return reading([&] { return Model::copy(static_cast<const uint8_t*>(data), size, found); });
  });
}

anydepth_model* anydepth_begin(const char* kernels) {
  return opened(kernels, [&](const Kernels* found) { return Model::growing(found); });
}

int anydepth_append(anydepth_model* model, const void* data, size_t size) {
  return guarded([&] {
    check(model != nullptr, "there is no model");
    check(data != nullptr || size == 0, "there is no data");
    const Lock lock(model->appending);
    reading([&] { model->model->append(static_cast<const uint8_t*>(data), size); });
    return ANYDEPTH_OK;
  });
}

void anydepth_free(anydepth_model* model) { delete model; }

int anydepth_set_threads(anydepth_model* model, int32_t threads) {
  return guarded([&] {
    check(model != nullptr && threads >= 1 && threads <= MOST_THREADS, "there is no model, or the threads are too many");
    const Lock lock(model->sharing);
    check(model->calls == 0, "the model is in use");
    model->drop_team();
    if (threads > 1) model->team = std::make_unique<Team>(threads);
    return ANYDEPTH_OK;
  });
}

uint64_t anydepth_memory(const anydepth_model* model) { return model == nullptr ? 0 : model->model->memory(); }

int anydepth_complete(const anydepth_model* model) { return model != nullptr && model->model->complete(); }

int anydepth_has_shortlist(const anydepth_model* model) {
  return model != nullptr && model->model->has_shortlist();
}

const char* anydepth_header(const anydepth_model* model) {
  const char* found = nullptr;
  guarded([&] {
    found = checked(model).header().c_str();
    return ANYDEPTH_OK;
  });
  return found;
}

int32_t anydepth_depths(anydepth_model* model) {
  return guarded([&] {
    check(model != nullptr, "there is no model");
    return static_cast<int>(model->text().menu().size());
  });
}

int anydepth_fits(anydepth_model* model, const char* text, size_t length, const char* pair) {
  return guarded([&] {
    check(model != nullptr && (text != nullptr || length == 0), "there is no model, or no text");
    try {
      return static_cast<int>(model->text().fits(std::string_view(text, length), pair == nullptr ? "" : pair));
    } catch (const TooLong&) {  // even for the tokenizer
      return 0;
    }
  });
}

int anydepth_depth_at(anydepth_model* model, int32_t index, anydepth_depth* depth) {
  return guarded([&] {
    check(model != nullptr && depth != nullptr, "there is no model, or no place for the depth");
    const TextModel& text = model->text();
    check(index >= 0 && static_cast<size_t>(index) < text.menu().size(), "there is no such depth");
    const MenuEntry& entry = text.menu()[index];
    *depth = {entry.name.c_str(),
              entry.pair.empty() ? nullptr : entry.pair.c_str(),
              static_cast<int32_t>(entry.sub.encoder.size()),
              static_cast<int32_t>(entry.sub.decoder.size()),
              text.ready(entry),
              entry.by_word,
              entry.figures.seconds,
              entry.figures.bleu,
              entry.figures.chrf};
    return ANYDEPTH_OK;
  });
}

void anydepth_defaults(anydepth_request* request) {
  if (request == nullptr) return;
  *request = anydepth_request{};
  request->beam = request->nbest = 1;
  request->length_penalty = 0.6f;
  request->shortlist = ANYDEPTH_SHORTLIST_IF_THERE;
}

anydepth_translations* anydepth_translate(anydepth_model* model, const char* const* texts, const size_t* lengths,
                                          int32_t count, const anydepth_request* request) {
  anydepth_translations* result = nullptr;
  guarded([&] {
    check(model != nullptr, "there is no model");
    check(count >= 0 && count <= 1 << 20 && (texts != nullptr || count == 0), "there are no texts, or too many");
    TextRequest wanted = checked(request);
    const Call call(*model);
    wanted.search.team = call.team();
    std::vector<std::string_view> given;
    for (int32_t i = 0; i < count; ++i) {
      check(texts[i] != nullptr, "a text is null");
      given.emplace_back(texts[i], lengths == nullptr ? std::strlen(texts[i]) : lengths[i]);
    }
    auto made = std::make_unique<anydepth_translations>();
    made->texts = model->text().translate(given, wanted, model->stats);
    result = made.release();
    return ANYDEPTH_OK;
  });
  return result;
}

int32_t anydepth_outputs(const anydepth_translations* translations, int32_t text) {
  return guarded([&] {
    check(translations != nullptr && text >= 0 && static_cast<size_t>(text) < translations->texts.size(),
          "there is no such text");
    return static_cast<int>(translations->texts[text].size());
  });
}

int anydepth_output_at(const anydepth_translations* translations, int32_t text, int32_t rank, anydepth_output* output) {
  return guarded([&] {
    check(translations != nullptr && text >= 0 && static_cast<size_t>(text) < translations->texts.size(),
          "there is no such text");
    const std::vector<TextOutput>& all = translations->texts[text];
    check(output != nullptr && rank >= 0 && static_cast<size_t>(rank) < all.size(), "there is no such output");
    *output = {all[rank].text.c_str(), all[rank].depth.c_str(), all[rank].score, all[rank].ended, all[rank].layers};
    return ANYDEPTH_OK;
  });
}

void anydepth_translations_free(anydepth_translations* translations) { delete translations; }

int anydepth_set_shortlist(anydepth_model* model, const int32_t* always, size_t always_count, const int32_t* offsets,
                           const int32_t* outputs) {
  return guarded([&] {
    checked_translator(model);
    check(offsets != nullptr && (always != nullptr || always_count == 0), "the shortlist is not complete");
    check(outputs != nullptr || offsets[model->model->vocabulary] == 0, "the shortlist is not complete");
    model->model->set_shortlist(always, always_count, offsets, outputs);
    return ANYDEPTH_OK;
  });
}

int anydepth_search(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                    const anydepth_options* options, anydepth_results* results) {
  return guarded([&] {
    const Model& m = checked_translator(model);
    const SubNetwork chosen = checked(m, sub);
    const SourceBatch sources = checked(m, batch);
    Options wanted = checked(m, chosen, options);
    const Call call(*model);
    wanted.team = call.team();
    check(results != nullptr && results->tokens != nullptr && results->lengths != nullptr &&
              results->ended != nullptr && results->scores != nullptr,
          "there is no place for the results");
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
        if (results->layers != nullptr) results->layers[slot] = there ? found[i][j].layers : 0.0f;
        if (there) std::copy(found[i][j].tokens.begin(), found[i][j].tokens.end(), results->tokens + slot * longest);
      }
    return ANYDEPTH_OK;
  });
}

int anydepth_logits(const anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                    const int32_t* target, int32_t target_length, int32_t at_once, float* logits) {
  return guarded([&] {
    const Model& m = checked_translator(model);
    const SubNetwork chosen = checked(m, sub);
    const SourceBatch sources = checked(m, batch);
    check(sources.sentences() == 1, "logits are of one sentence");
    check(target_length >= 1 && target_length <= m.positions && at_once >= 1,
          "the target is longer than the model takes");
    check(target != nullptr && logits != nullptr, "there is no target, or no place for the logits");
    for (int i = 0; i < target_length; ++i)
      check(target[i] >= 0 && target[i] < m.vocabulary, "a token is not in the vocabulary");
    const StopConditions never;
    Runner runner(m, chosen, never);
    runner.encode(sources);
    KVCache cache(runner.decoder_layers(), m.heads, m.width / m.heads);
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
    return ANYDEPTH_OK;
  });
}

int32_t anydepth_classes(const anydepth_model* model) {
  return guarded([&] { return checked(model).classes; });
}

int anydepth_classify(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                      const anydepth_classify_options* options, float* probabilities, int32_t* depths) {
  return guarded([&] {
    const Model& m = checked(model);
    check(m.classes > 0, "the model translates: it has no classes");
    const SubNetwork chosen = checked(m, sub);
    const SourceBatch sources = checked(m, batch);
    ClassifyOptions wanted = checked(m, chosen, options);
    check(probabilities != nullptr && depths != nullptr, "there is no place for the results");
    const Call call(*model);
    wanted.team = call.team();
    const Classified found = classify(m, chosen, sources, wanted);
    std::copy(found.probabilities.begin(), found.probabilities.end(), probabilities);
    std::copy(found.depths.begin(), found.depths.end(), depths);
    return ANYDEPTH_OK;
  });
}

void anydepth_speculation(const anydepth_model* model, int64_t counts[4]) {
  if (counts == nullptr) return;
  std::fill(counts, counts + 4, 0);
  if (model == nullptr) return;
  const SpeculationStats& a = model->stats;
  counts[0] = a.drafted, counts[1] = a.accepted, counts[2] = a.passes, counts[3] = a.tokens;
}
