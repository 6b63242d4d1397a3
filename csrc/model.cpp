// Reads a model. The order of read_model in the file follows from its header; engines/native_format.py writes it.
#include "model.h"

#include "buffer.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace anydepth {

namespace {

constexpr char MAGIC[8] = {'A', 'N', 'Y', 'D', 'E', 'P', 'T', 'H'};
constexpr int32_t VERSION = 1;
constexpr size_t LINE = 64;             // matrices begin at a cache line
constexpr size_t HUGE_PAGE = 2u << 20;  // huge pages: fewer TLB misses while weights are streamed
// With more inputs than MOST_FFN, sums of products would not fit in 32 bits.
constexpr int MOST_LAYERS = 1000, MOST_WIDTH = 65536, MOST_FFN = 131072, MOST_TOKENS = 1 << 24,
              MOST_POSITIONS = 1 << 20;

uint32_t checksum(const uint8_t* data, size_t size) {  // CRC-32, as zlib has it
  static const auto table = [] {
    std::vector<uint32_t> made(8 * 256);
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      made[i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i)
      for (int k = 1; k < 8; ++k)
        made[k * 256 + i] = (made[(k - 1) * 256 + i] >> 8) ^ made[made[(k - 1) * 256 + i] & 255];
    return made;
  }();
  uint32_t c = 0xFFFFFFFFu;
  for (; size >= 8; data += 8, size -= 8) {
    c ^= uint32_t(data[0]) | uint32_t(data[1]) << 8 | uint32_t(data[2]) << 16 | uint32_t(data[3]) << 24;
    c = table[7 * 256 + (c & 255)] ^ table[6 * 256 + (c >> 8 & 255)] ^ table[5 * 256 + (c >> 16 & 255)] ^
        table[4 * 256 + (c >> 24)] ^ table[3 * 256 + data[4]] ^ table[2 * 256 + data[5]] ^ table[256 + data[6]] ^
        table[data[7]];
  }
  for (; size; ++data, --size) c = table[(c ^ *data) & 255] ^ (c >> 8);
  return c ^ 0xFFFFFFFFu;
}

}  // namespace

// Reads the buffer twice: first to add up the memory needed, then to fill it. Both times every length is checked
// against what is left.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size, Model& model) : data_(data), size_(size), model_(model) {}

  void read() {
    check_whole();
    for (const bool filling : {false, true}) {
      filling_ = filling;
      at_ = sizeof MAGIC;
      used_ = 0;
      if (filling) allocate();
      read_model();
      if (at_ != size_ - sizeof(uint32_t)) throw Error("the file is longer than its header says");
      if (!filling) needed_ = used_;
    }
  }

 private:
  void check_whole() {
    if (size_ < sizeof MAGIC + 2 * sizeof(uint32_t)) throw Error("the file is too short to be a model");
    if (std::memcmp(data_, MAGIC, sizeof MAGIC) != 0) throw Error("this is not a file of anydepth's native engine");
    uint32_t stored;
    std::memcpy(&stored, data_ + size_ - sizeof stored, sizeof stored);
    if (checksum(data_, size_ - sizeof stored) != stored) throw Error("the file is damaged: its checksum is wrong");
  }

  void allocate() {
    const size_t size = (needed_ + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    model_.arena = static_cast<uint8_t*>(aligned_memory(size >= 4 * HUGE_PAGE ? HUGE_PAGE : 4096, size));
    model_.arena_size = size;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= 4 * HUGE_PAGE) madvise(model_.arena, size, MADV_HUGEPAGE);
#endif
  }

  void read_model() {
    if (integer(1, 1 << 30) != VERSION)
      throw Error("the file was written by another version of anydepth: write it again");
    Model& m = model_;
    m.width = integer(8, MOST_WIDTH);
    m.heads = integer(1, 1024);
    if (m.width % m.heads) throw Error("the width is not a multiple of the heads");
    m.ffn = integer(8, MOST_FFN);
    m.vocabulary = integer(5, MOST_TOKENS);
    m.norm = static_cast<NormPosition>(integer(0, 2));
    m.activation = static_cast<Activation>(integer(0, 2));
    m.epsilon = number();
    m.embedding_scale = number();
    if (!(m.epsilon > 0.0f)) throw Error("the norms' epsilon is not positive");
    m.positions = integer(1, MOST_POSITIONS);
    m.source = table(m.vocabulary);
    const bool shared = integer(0, 1) == 1;
    m.target = shared ? m.source : table(m.vocabulary);
    m.position_embeddings = rows_of_floats(m.positions);
    m.embedding_norm = m.norm == NormPosition::post ? norm() : Norm{};
    stack(m.encoder, false);
    stack(m.decoder, true);
    m.output = matrix(m.vocabulary, m.width);
    m.output_rows = integer(0, 1) ? m.target : table(m.vocabulary);
  }

  void stack(Stack& s, bool decoder) {
    s = Stack{};
    const int layers = integer(1, MOST_LAYERS), own = integer(1, layers), residual = integer(0, 2);
    for (int i = 0; i < layers; ++i) s.pattern.push_back(integer(0, own - 1));
    for (int i = 0; i < own; ++i) s.own.push_back(layer(decoder));
    if (model_.norm != NormPosition::post) s.final_norm = norm();
    if (residual == 1)
      for (int i = 0; i < layers; ++i) s.scales.push_back(number());
    if (residual == 2) {
      s.dense = std::make_unique<Dense>();
      for (int k = 0; k <= layers; ++k) s.dense->rows.push_back(floats(k + 1, k + 1));
      for (int k = 0; k <= layers; ++k) s.dense->norms.push_back(norm());
    }
  }

  Layer layer(bool decoder) {
    const int d = model_.width, f = model_.ffn;
    const bool norms = model_.norm != NormPosition::none;
    Layer l;
    if (norms) l.attention_norm = norm();
    l.qkv = matrix(3 * d, d);
    l.attention_out = matrix(d, d);
    if (decoder) {
      if (norms) l.cross_norm = norm();
      l.cross_query = matrix(d, d);
      l.cross_key_value = matrix(2 * d, d);
      l.cross_out = matrix(d, d);
    }
    if (norms) l.ffn_norm = norm();
    l.up = matrix(f, d);
    l.down = matrix(d, f);
    return l;
  }

  Norm norm() {
    const int d = model_.width;
    const float* weight = floats(d, padded(d));
    return {weight, floats(d, padded(d))};
  }

  PackedMatrix matrix(int outputs, int inputs) {
    PackedMatrix m;
    m.outputs = outputs, m.inputs = inputs;
    m.blocks = padded(outputs) / TILE, m.quads = padded(inputs, QUAD) / QUAD;
    m.scales = floats(outputs, m.blocks * TILE);
    m.bias = integer(0, 1) ? floats(outputs, m.blocks * TILE) : zeros(m.blocks * TILE);
    float* sums = const_cast<float*>(zeros(m.blocks * TILE));
    m.sums = sums;
    const int8_t* rows = reinterpret_cast<const int8_t*>(take(size_t(outputs) * inputs));
    int8_t* tiles = reinterpret_cast<int8_t*>(reserve(m.bytes()));
    m.tiles = tiles;
    if (filling_) pack(m, rows, tiles, sums);
    return m;
  }

  void pack(const PackedMatrix& m, const int8_t* rows, int8_t* tiles, float* sums) {
    const uint8_t flip = model_.kernels->unsigned_weights ? 0x80 : 0;
    std::memset(tiles, flip, m.bytes());
    for (int o = 0; o < m.outputs; ++o) {
      int8_t* block = tiles + size_t(o / TILE) * m.quads * TILE * QUAD + (o % TILE) * QUAD;
      const int8_t* row = rows + size_t(o) * m.inputs;
      int64_t sum = 0;
      for (int i = 0; i < m.inputs; ++i) {
        const int8_t value = row[i] == -128 ? -127 : row[i];  // kernels assume magnitudes up to 127
        sum += value;
        block[size_t(i / QUAD) * TILE * QUAD + i % QUAD] = static_cast<int8_t>(static_cast<uint8_t>(value) ^ flip);
      }
      sums[o] = static_cast<float>(sum) * m.scales[o];
    }
  }

  EmbeddingTable table(int count) {
    const size_t bytes = size_t(count) * model_.width * sizeof(uint16_t);
    const uint8_t* from = take(bytes);
    uint8_t* to = reserve(bytes);
    if (filling_) std::memcpy(to, from, bytes);
    return {reinterpret_cast<const uint16_t*>(to), count};
  }

  const float* rows_of_floats(int count) {
    const size_t d = model_.width, stride = padded(model_.width);
    const uint8_t* from = take(count * d * sizeof(float));
    float* to = reinterpret_cast<float*>(reserve(count * stride * sizeof(float)));
    if (filling_)
      for (int i = 0; i < count; ++i) {
        std::memset(to + i * stride, 0, stride * sizeof(float));
        std::memcpy(to + i * stride, from + i * d * sizeof(float), d * sizeof(float));
        check_finite(to + i * stride, stride);
      }
    return to;
  }

  const float* floats(int count, int with_padding) {
    const uint8_t* from = take(size_t(count) * sizeof(float));
    float* to = const_cast<float*>(zeros(with_padding));
    if (filling_) {
      std::memcpy(to, from, size_t(count) * sizeof(float));
      check_finite(to, count);
    }
    return to;
  }

  const float* zeros(int count) {
    float* to = reinterpret_cast<float*>(reserve(size_t(count) * sizeof(float)));
    if (filling_) std::memset(to, 0, size_t(count) * sizeof(float));
    return to;
  }

  static void check_finite(const float* x, size_t count) {
    for (size_t i = 0; i < count; ++i)
      if (!(std::fabs(x[i]) < 1e30f)) throw Error("the file has values that are not finite");
  }

  int integer(int least, int most) {
    int32_t value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    if (value < least || value > most) throw Error("a number in the file is out of range");
    return value;
  }

  float number() {
    float value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    check_finite(&value, 1);
    return value;
  }

  const uint8_t* take(size_t bytes) {
    if (bytes > size_ - sizeof(uint32_t) - at_) throw Error("the file is shorter than its header says");
    const uint8_t* here = data_ + at_;
    at_ += bytes;
    return here;
  }

  // Memory of the model; null in the first pass, which only counts.
  uint8_t* reserve(size_t bytes) {
    uint8_t* here = filling_ ? model_.arena + used_ : nullptr;
    used_ += (bytes + LINE - 1) / LINE * LINE;
    if (filling_ && used_ > needed_) throw Error("the file changed while it was read");
    return here;
  }

  const uint8_t* data_;
  const size_t size_;
  Model& model_;
  bool filling_ = false;
  size_t at_ = 0, used_ = 0, needed_ = 0;
};

std::unique_ptr<Model> Model::read(const uint8_t* data, size_t size, const Kernels* kernels) {
  auto model = std::make_unique<Model>();
  model->kernels = kernels;
  Reader(data, size, *model).read();
  return model;
}

Model::~Model() { std::free(arena); }

void Model::set_shortlist(const int32_t* always, size_t always_count, const int32_t* offsets, const int32_t* outputs) {
  Shortlist made;
  const auto known = [this](int32_t token) { return token >= 0 && token < vocabulary; };
  if (offsets[0] != 0) throw Error("the shortlist does not begin at 0");
  for (int i = 0; i < vocabulary; ++i)
    if (offsets[i + 1] < offsets[i]) throw Error("the shortlist's offsets do not ascend");
  made.always.assign(always, always + always_count);
  made.offsets.assign(offsets, offsets + vocabulary + 1);
  made.outputs.assign(outputs, outputs + offsets[vocabulary]);
  for (const auto* list : {&made.always, &made.outputs})
    for (const int32_t token : *list)
      if (!known(token)) throw Error("the shortlist has a subword that the model does not know");
  shortlist = std::move(made);
}

const Kernels* kernels_named(const char* name) {
  const Kernels* const all[] = {avx512_kernels(), avx2_kernels(), neon_dot_kernels(), neon_kernels(), plain_kernels()};
  for (const Kernels* one : all)
    if (one != nullptr && (name == nullptr || std::strcmp(one->name, name) == 0)) return one;
  return nullptr;
}

}  // namespace anydepth
