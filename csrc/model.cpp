// Reads a model file: engines/native_format.py writes it, and docs/reference/file-format.md describes it.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace anydepth {

namespace {

constexpr int REMAINDERS = 254;  // steps of a remainder in one of int8
// With more inputs than MOST_FFN, sums of products would not fit in 32 bits.
constexpr int MOST_LAYERS = 1000, MOST_WIDTH = 65536, MOST_FFN = 131072, MOST_TOKENS = 1 << 24,
              MOST_POSITIONS = 1 << 20, MOST_CLASSES = 1 << 20;

template <class Enum, size_t N>
Enum choice(const Json& value, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (value.text() == names[i]) return static_cast<Enum>(i);
  throw Error("the file needs something that this version of anydepth does not have: " + value.text());
}

PackedMatrix read_matrix(SectionReader& from, int outputs, int inputs) {
  PackedMatrix m;
  m.outputs = outputs, m.inputs = inputs;
  m.blocks = padded(outputs) / TILE, m.quads = padded(inputs, QUAD) / QUAD;
  const uint64_t rows = checked_mul(m.blocks, TILE);
  m.scales = from.floats(rows);
  m.sums = from.floats(rows);
  m.bias = from.floats(rows);
  const uint64_t bytes = checked_mul(rows, uint64_t(m.quads) * QUAD);
  m.tiles = from.take<int8_t>(bytes);
  if (std::memchr(m.tiles, 0x80, static_cast<size_t>(bytes)) != nullptr)
    throw Error("a weight is -128: kernels take magnitudes up to 127");
  return m;
}

PackedMatrix read_matrix_int4(SectionReader& from, int outputs, int inputs) {
  PackedMatrix m;
  m.outputs = outputs, m.inputs = inputs;
  m.blocks = padded(outputs) / TILE, m.quads = padded(inputs, GROUP) / QUAD;
  const uint64_t rows = checked_mul(m.blocks, TILE);
  m.scales = from.floats(rows);
  m.sums = from.floats(rows);
  m.bias = from.floats(rows);
  const uint64_t factors = checked_mul(rows, m.quads / GROUP_QUADS);
  m.factors = from.take<int8_t>(factors);
  if (!std::all_of(m.factors, m.factors + static_cast<size_t>(factors), [](int f) { return f >= -15 && f <= 15; }))
    throw Error("a factor of int4 weights is out of range");
  m.nibbles = from.take<uint8_t>(checked_mul(rows, uint64_t(m.quads) * QUAD / 2));
  return m;
}

}  // namespace

// As sinusoids() of tensors.py: products in single precision, functions in double precision, rounded to single.
Sinusoids::Sinusoids(int positions, int width)
    : width_(width), rates_(width / 2), blocks_((size_t(positions) + BLOCK - 1) / BLOCK) {
  const float step = static_cast<float>(-std::log(10000.0) / width);
  for (size_t i = 0; i < rates_.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) * step;
    rates_[i] = static_cast<float>(std::exp(double(exponent)));
  }
}

const float* Sinusoids::row(int position) const {
  const float* rows = blocks_[position / BLOCK].rows.load(std::memory_order_acquire);
  if (rows == nullptr) rows = compute(position / BLOCK);
  return rows + size_t(position % BLOCK) * padded(width_);
}

const float* Sinusoids::compute(int block) const {
  const size_t stride = padded(width_);
  auto rows = std::make_unique<float[]>(BLOCK * stride);
  for (int r = 0; r < BLOCK; ++r)
    for (size_t i = 0; i < rates_.size(); ++i) {
      const float angle = static_cast<float>(block * BLOCK + r) * rates_[i];
      rows[r * stride + 2 * i] = static_cast<float>(std::sin(double(angle)));
      rows[r * stride + 2 * i + 1] = static_cast<float>(std::cos(double(angle)));
    }
  const float* found = nullptr;  // what another thread has computed meanwhile
  if (blocks_[block].rows.compare_exchange_strong(found, rows.get(), std::memory_order_acq_rel)) found = rows.release();
  return found;
}

std::unique_ptr<Model> Model::growing(const Kernels* kernels) {
  auto model = std::make_unique<Model>();
  model->kernels = kernels;
  return model;
}

std::unique_ptr<Model> Model::open(const char* path, const Kernels* kernels) {
  auto model = growing(kernels);
  model->mapped_ = std::make_unique<MappedFile>(path);
  const uint8_t* data = model->mapped_->data();
  const size_t size = model->mapped_->size();
  model->configure(read_header(data, size));
  if (size < model->header_.file_size) throw Error("the file is not complete: it is shorter than its header says");
  if (size > model->header_.file_size) throw Error("the file is longer than its header says");
  for (const SectionInfo& section : model->header_.sections)
    model->attach(section, data + static_cast<size_t>(section.offset));
  model->next_ = model->header_.sections.size();
  model->finish();
  return model;
}

std::unique_ptr<Model> Model::copy(const uint8_t* data, size_t size, const Kernels* kernels) {
  auto model = growing(kernels);
  if (size < PREAMBLE) throw Error("the file is too short to be a model");
  model->append(data, size);
  if (!model->complete()) throw Error("the file is not complete: it is shorter than its header says");
  return model;
}

void Model::append(const uint8_t* data, size_t size) {
  if (failed_) throw Error("the file was refused before: open it again");
  failed_ = true;
  while (size > 0 || (has_header() && !complete())) {
    // What comes next: the preamble, the header, or a section with the bytes before it that align it.
    const bool in_header = !has_header();
    if (!in_header && next_ == header_.sections.size()) {
      if (!complete()) finish();
      if (size > 0) throw Error("the file is longer than its header says");
      break;
    }
    uint64_t until = PREAMBLE;
    if (in_header && coming_.size() >= PREAMBLE) until = header_size(coming_.data(), coming_.size());
    if (!in_header) {
      const SectionInfo& section = header_.sections[next_];
      if (arrived_ < section.offset) {
        const uint64_t skipped = std::min<uint64_t>(section.offset - arrived_, size);
        arrived_ += skipped, data += skipped, size -= static_cast<size_t>(skipped);
        if (arrived_ < section.offset) break;
      }
      until = section.size;
    }
    const uint64_t missing = until - coming_.size();
    const size_t taken = static_cast<size_t>(std::min<uint64_t>(missing, size));
    coming_.append(data, taken, until);
    arrived_ += taken, data += taken, size -= taken;
    if (coming_.size() < until) break;
    if (in_header) {
      if (until == header_size(coming_.data(), coming_.size())) {
        configure(read_header(coming_.data(), coming_.size()));
        coming_ = GrowingBytes();
      }
      continue;
    }
    owned_.push_back(std::move(coming_));
    coming_ = GrowingBytes();
    attach(header_.sections[next_], owned_.back().data());
    ++next_;
  }
  failed_ = false;
}

void Model::configure(Header header) {
  header_ = std::move(header);
  about_ = Json::parse(header_.json);
  const Json& core = about_.at("core");
  const auto integer = [&core](const char* key, int least, int most) {
    return static_cast<int>(core.at(key).integer(least, most));
  };
  width = integer("width", 8, MOST_WIDTH);
  heads = integer("heads", 1, 1024);
  if (width % heads) throw Error("the width is not a multiple of the heads");
  ffn = integer("ffn", 8, MOST_FFN);
  vocabulary = integer("vocabulary", 5, MOST_TOKENS);
  positions = integer("positions", 1, MOST_POSITIONS);
  if (const Json* computed = core.find("sinusoidal"); computed != nullptr && computed->boolean()) {
    if (width % 2) throw Error("sinusoidal positions need an even width");
    sinusoids_ = std::make_unique<Sinusoids>(positions, width);
  }
  norm = choice<NormPosition>(core.at("norm"), {"layer", "post", "none"});
  norms_embeddings_ = norm == NormPosition::post;
  if (const Json* norms = core.find("embedding_norm")) norms_embeddings_ = norms->boolean();
  activation = choice<Activation>(core.at("activation"), {"relu", "gelu", "gelu-tanh", "swish"});
  residual_ = choice<Residual>(core.at("residual"), {"plain", "rezero", "dlcl"});
  epsilon = static_cast<float>(core.at("norm_epsilon").number());
  if (!(epsilon > 0.0f && epsilon < 1e30f)) throw Error("the norms' epsilon is not positive");
  embedding_scale = core.at("scale_embeddings").boolean() ? static_cast<float>(std::sqrt(double(width))) : 1.0f;
  shared_target_ = core.at("shared_target").boolean();
  tied_output_ = core.at("tied_output").boolean();
  const Json* int4 = core.find("int4");
  int4_ = int4 != nullptr && int4->boolean();
  for (const SectionInfo& section : header_.sections) lists_ = lists_ || section.kind == SectionKind::shortlist;
  read_pattern(encoder, core.at("encoder"));
  read_pattern(decoder, core.at("decoder"));
  if (core.find("classes") != nullptr) configure_classes(core);
  if (encoder.pattern.empty() || decoder.pattern.empty() != (classes > 0))
    throw Error("a number in the file is out of range");
  has_header_.store(true, std::memory_order_release);
}

void Model::configure_classes(const Json& core) {
  classes = static_cast<int>(core.at("classes").integer(1, MOST_CLASSES));
  if (!shared_target_ || tied_output_) throw Error("a model that classifies has one table of subwords, and no output");
  if (const Json* confidence = core.find("halting")) {
    halting_ = true;
    halting_confidence = static_cast<float>(confidence->number());
    if (!(halting_confidence >= 0.0f && halting_confidence <= 1.0f)) throw Error("the confidence is no probability");
  }
}

void Model::read_pattern(Stack& stack, const Json& pattern) {
  int own = 0;
  for (const Json& one : pattern.items()) {
    const int layer = static_cast<int>(one.integer(0, own));  // each new one is the next
    stack.pattern.push_back(layer);
    own = std::max(own, layer + 1);
  }
  if (stack.pattern.size() > MOST_LAYERS) throw Error("a number in the file is out of range");
  stack.own = std::vector<Layer>(own);
}

void Model::attach(const SectionInfo& section, const uint8_t* data) {
  const size_t size = checked_size(section.size);
  if (crc32(data, size) != section.checksum) throw Error("the file is damaged: the checksum of a section is wrong");
  const bool before_output = section.kind == SectionKind::tokenizer || section.kind == SectionKind::embeddings;
  if (before_output && has_output_) throw Error("the sections of the file are in the wrong order");
  SectionReader from(data, section.size);
  switch (section.kind) {
    case SectionKind::tokenizer:
      tokenizer_ = data;
      tokenizer_size_ = size;
      break;
    case SectionKind::embeddings: attach_embeddings(from); break;
    case SectionKind::output: classes > 0 ? attach_classes(from) : attach_output(from); break;
    case SectionKind::shortlist: attach_shortlist(from); break;
    case SectionKind::encoder_layer: attach_layer(encoder, section, from, false); break;
    case SectionKind::decoder_layer: attach_layer(decoder, section, from, true); break;
    default: break;
  }
  memory_.fetch_add(section.size, std::memory_order_relaxed);
  if (has_embeddings_ && has_output_) has_base_.store(true, std::memory_order_release);
}

void Model::finish() {
  const auto ready = [](const Stack& stack) {
    return std::all_of(stack.own.begin(), stack.own.end(),
                       [](const Layer& l) { return l.ready.load(std::memory_order_relaxed); });
  };
  if (!has_base() || !ready(encoder) || !ready(decoder)) throw Error("the file lacks a section of the model");
  complete_.store(true, std::memory_order_release);
}

void Model::attach_embeddings(SectionReader& from) {
  if (!(shared_target_ && tied_output_)) source = read_table(from);
  target = shared_target_ ? source : tied_output_ ? EmbeddingTable() : read_table(from);
  if (!sinusoids_) position_embeddings_ = from.floats(checked_mul(positions, padded(width)));
  if (norms_embeddings_) embedding_norm = read_norm(from);
  attach_stack(encoder, from);
  if (classes == 0) attach_stack(decoder, from);
  from.end();
  has_embeddings_ = true;
}

void Model::attach_stack(Stack& stack, SectionReader& from) {
  const size_t layers = stack.pattern.size();
  if (norm != NormPosition::post) stack.final_norm = read_norm(from);
  if (residual_ == Residual::rezero) stack.scales = from.floats(layers);
  if (residual_ == Residual::dense) {
    stack.dense = std::make_unique<Dense>();
    for (size_t k = 0; k <= layers; ++k) stack.dense->rows.push_back(from.floats(k + 1));
    for (size_t k = 0; k <= layers; ++k) stack.dense->norms.push_back(read_norm(from));
  }
}

void Model::attach_output(SectionReader& from) {
  if (!has_embeddings_) throw Error("the sections of the file are in the wrong order");
  output = read_matrix(from, vocabulary, width);
  output_remainders = from.take<int8_t>(vocabulary, width);
  from.end();
  has_output_ = true;
}

void Model::attach_classes(SectionReader& from) {
  if (!has_embeddings_) throw Error("the sections of the file are in the wrong order");
  class_weights = from.floats(checked_mul(classes, 2 * uint64_t(width)));
  class_bias = from.floats(classes);
  if (halting_) {
    const uint64_t layers = encoder.pattern.size();
    halting_weights = from.floats(checked_mul(layers, width));
    halting_bias = from.floats(layers);
  }
  from.end();
  has_output_ = true;
}

void Model::attach_layer(Stack& stack, const SectionInfo& section, SectionReader& from, bool decoder_layer) {
  if (section.index >= stack.own.size()) throw Error("the file has a layer that its header does not name");
  const int d = width;
  const bool norms = norm != NormPosition::none;
  Layer& l = stack.own[section.index];
  if (norms) l.attention_norm = read_norm(from);
  l.qkv = read_matrix(from, 3 * d, d);
  l.attention_out = read_matrix(from, d, d);
  if (decoder_layer) {
    if (norms) l.cross_norm = read_norm(from);
    l.cross_query = read_matrix(from, d, d);
    l.cross_key_value = read_matrix(from, 2 * d, d);
    l.cross_out = read_matrix(from, d, d);
  }
  if (norms) l.ffn_norm = read_norm(from);
  const auto read = int4_ ? read_matrix_int4 : read_matrix;
  l.up = read(from, ffn, d);
  l.down = read(from, d, ffn);
  from.end();
  l.ready.store(true, std::memory_order_release);
}

void Model::attach_shortlist(SectionReader& from) {
  Shortlist list;
  const uint32_t* counts = from.take<uint32_t>(2);
  list.always_count = counts[0];
  list.always = from.take<int32_t>(counts[0]);
  list.offsets = from.take<int32_t>(uint64_t(vocabulary) + 1);
  list.outputs = from.take<int32_t>(counts[1]);
  from.end();
  if (list.offsets[vocabulary] < 0 || uint32_t(list.offsets[vocabulary]) != counts[1])
    throw Error("the shortlist's offsets do not fit its outputs");
  check(list);
  shortlist = list;
  has_shortlist_.store(true, std::memory_order_release);
}

Norm Model::read_norm(SectionReader& from) const {
  const float* weight = from.floats(padded(width));
  return {weight, from.floats(padded(width))};
}

EmbeddingTable Model::read_table(SectionReader& from) const {
  return {from.take<uint16_t>(vocabulary, width)};
}

void Model::embedding(const EmbeddingTable& table, int token, float* row) const {
  if (table.rows == nullptr) return output_row(token, row);
  const uint16_t* from = table.rows + size_t(token) * width;
  for (int i = 0; i < width; ++i) row[i] = from_half(from[i]);
}

void Model::output_row(int token, float* row) const {
  const int8_t* tiles = output.tiles + size_t(token / TILE) * output.quads * TILE * QUAD + (token % TILE) * QUAD;
  const int8_t* remainders = output_remainders + size_t(token) * width;
  const float step = output.scales[token] / REMAINDERS;
  for (int i = 0; i < width; ++i) {
    const int tile = tiles[size_t(i / QUAD) * TILE * QUAD + i % QUAD];
    row[i] = static_cast<float>(tile * REMAINDERS + remainders[i]) * step;
  }
}

bool Model::has_layers(const std::vector<int>& encoder_layers, const std::vector<int>& decoder_layers) const {
  const auto ready = [](const Stack& stack, const std::vector<int>& layers) {
    return std::all_of(layers.begin(), layers.end(), [&stack](int layer) {
      return stack.own[stack.pattern[layer]].ready.load(std::memory_order_acquire);
    });
  };
  return has_base() && ready(encoder, encoder_layers) && ready(decoder, decoder_layers);
}

void Model::check(const Shortlist& list) const {
  if (list.offsets[0] != 0) throw Error("the shortlist does not begin at 0");
  for (int i = 0; i < vocabulary; ++i)
    if (list.offsets[i + 1] < list.offsets[i]) throw Error("the shortlist's offsets do not ascend");
  const auto known = [this](int32_t token) { return token >= 0 && token < vocabulary; };
  if (!std::all_of(list.always, list.always + list.always_count, known) ||
      !std::all_of(list.outputs, list.outputs + list.offsets[vocabulary], known))
    throw Error("the shortlist has a subword that the model does not know");
}

void Model::check_shortlist() const {
  if (has_shortlist()) return;
  if (lists_) throw NotYet("the shortlist of the file has not arrived");
  throw Error("the model has no shortlist");
}

void Model::set_shortlist(const int32_t* always, size_t always_count, const int32_t* offsets, const int32_t* outputs) {
  if (!complete()) throw NotYet("the file has not arrived, and may have a shortlist of its own");
  const Shortlist given = {always, always_count, offsets, outputs};
  check(given);
  std::vector<int32_t> own(always, always + always_count);
  own.insert(own.end(), offsets, offsets + vocabulary + 1);
  own.insert(own.end(), outputs, outputs + offsets[vocabulary]);
  own_shortlist_ = std::move(own);
  const int32_t* from = own_shortlist_.data();
  shortlist = {from, always_count, from + always_count, from + always_count + vocabulary + 1};
  has_shortlist_.store(true, std::memory_order_release);
}

const Kernels* kernels_named(const char* name) {
  const Kernels* const all[] = {avx512_kernels(),   avx_vnni_kernels(), avx2_kernels(), neon_i8mm_kernels(),
                                neon_dot_kernels(), neon_kernels(),     wasm_kernels(), plain_kernels()};
  for (const Kernels* one : all)
    if (one != nullptr && (name == nullptr || std::strcmp(one->name, name) == 0)) return one;
  return nullptr;
}

}  // namespace anydepth
