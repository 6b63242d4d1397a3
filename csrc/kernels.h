// The kernels: int8 GEMM, quantization, layer norm, attention and the like, for each instruction set. A set is chosen
// when a model is loaded.
//
// Rows of floats are padded with zeros to a multiple of TILE, so that kernels need not handle the end of a row; only
// norms and attention know the real width. Integer sums are exact, and the result of a row does not depend on the rows
// computed with it: a pass over several rows is bit-identical to a pass over each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Before loops over accumulators that must stay in registers.
#if defined(__clang__)
#define ANYDEPTH_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define ANYDEPTH_UNROLL _Pragma("GCC unroll 16")
#else
#define ANYDEPTH_UNROLL
#endif

namespace anydepth {

constexpr int TILE = 16;  // outputs stored together in packed weights
constexpr int QUAD = 4;   // inputs stored together for each of them
constexpr int GROUP_QUADS = 8;      // of int4, that share a factor
constexpr int GROUP = GROUP_QUADS * QUAD;
constexpr int UNPACKED_BLOCKS = 2;  // of int4, at once

constexpr int padded(int n, int to = TILE) { return (n + to - 1) / to * to; }

// From half precision; infinity and NaN become the largest finite value.
inline float from_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * (1.0f / 16777216.0f);
    return sign ? -value : value;
  }
  const uint32_t bits = exponent == 31 ? sign | 0x477FE000u : sign | (exponent + 112) << 23 | fraction << 13;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A number in half precision, in memory.
struct Half {
  uint16_t bits;
};
inline float as_float(float x) { return x; }
inline float as_float(Half x) { return from_half(x.bits); }

constexpr float LARGEST_HALF = 65504.0f;

// The nearest, to even between two; for |x| <= LARGEST_HALF.
inline Half to_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7FFFFFFF;
  if (bits < 0x38800000) {  // below the normal numbers: the last bit of x + 0.5 is 2^-24
    float size;
    std::memcpy(&size, &bits, sizeof size);
    size += 0.5f;
    std::memcpy(&bits, &size, sizeof bits);
    return {static_cast<uint16_t>(sign | (bits - 0x3F000000))};
  }
  const uint32_t rounded = bits + 0xFFF + (bits >> 13 & 1) - (112u << 23);
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

// Packed weights: int8, symmetric, a scale per output. Layout: [blocks][quads][TILE][QUAD]. Or int4: of two quads that
// follow one another a byte has the lower four bits, plus 8, of the first, and the upper of the second; each group of
// quads has a factor for each output, from -15 to 15, and factor times weight is what int8 would be. `quads` is then a
// multiple of GROUP_QUADS.
struct PackedMatrix {
  int outputs = 0, inputs = 0, blocks = 0, quads = 0;
  const int8_t* tiles = nullptr;     // of int8
  const uint8_t* nibbles = nullptr;  // of int4: [blocks][quads / 2][TILE][QUAD]
  const int8_t* factors = nullptr;   // [blocks][quads / GROUP_QUADS][TILE]
  const float* scales = nullptr;  // [blocks * TILE]
  const float* sums = nullptr;    // the same shape: scale times the sum of an output's weights, for zero points
  const float* bias = nullptr;    // the same shape

  size_t weights() const { return size_t(blocks) * quads * TILE * QUAD; }
  size_t bytes() const { return nibbles == nullptr ? weights() : weights() / 2; }
};

inline PackedMatrix some_blocks(const PackedMatrix& w, int from, int to) {
  PackedMatrix some = w;
  some.outputs = (to - from) * TILE, some.blocks = to - from;
  const size_t before = size_t(from) * w.quads * TILE * QUAD;
  if (w.nibbles == nullptr)
    some.tiles += before;
  else
    some.nibbles += before / 2, some.factors += before / GROUP;
  some.scales += from * TILE, some.sums += from * TILE, some.bias += from * TILE;
  return some;
}

// Rows of activations, quantized asymmetrically: value = scale * integer + zero_point, both per row, the zero point as
// a float. `sums` are of the integers of a row.
struct QuantizedRows {
  const int8_t* values;
  int stride;  // a multiple of QUAD
  const float* scales;
  const float* zero_points;
  const int32_t* sums;
  int8_t* scratch;  // twice as large as the values, for kernels that interleave rows
  int8_t* tiles = nullptr;  // for UNPACKED_BLOCKS of int4 weights
};

enum class Curve { gelu, gelu_tanh, swish };  // x times Phi(x), that by a tanh, or the logistic function of x
enum class Epilogue { store, relu, add };  // after a product p: out = p, out = max(p, 0), or out += alpha * p

struct GemmOutput {
  float* out;
  size_t stride;
  Epilogue epilogue = Epilogue::store;
  float alpha = 1.0f;
};

// One after the other in memory: a call may be of some of the heads, if all pointers are to the first of those.
struct AttentionShape {
  int positions, heads, e;  // e: the width of a head

  static constexpr int ROWS = 6;  // queries that are computed together
  size_t scores() const { return size_t(ROWS) * padded(positions); }  // floats of scratch
};

// Value i of a head at a position: first[head * head_stride + position * stride + i].
template <typename T>
struct Values {
  const T* first;
  size_t stride, head_stride;
};

struct Kernels {
  const char* name;
  float row_cost;  // of one more row in a small batch, as a share of one row: near 0 where reading weights is the
                   // bottleneck

  void (*quantize)(const float* x, int n, int8_t* q, float* scale, float* zero_point, int32_t* sum);
  void (*normalize)(const float* x, int n, const float* weight, const float* bias, float epsilon, float* out);
  void (*gemm)(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target);
  // Keys [positions, heads * e] as `attend` reads them: [heads][padded(positions) / TILE][e][TILE].
  void (*transpose_keys)(const float* keys, size_t stride, int positions, int heads, int e, float* out);
  void (*halve)(const float* x, int n, Half* out);  // in half precision; what is too large becomes the largest
  // Attention of queries [queries, heads * e] over transposed keys, and values.
  void (*attend)(const float* query, size_t query_stride, int queries, const float* keys, const Values<float>& values,
                 const AttentionShape& shape, float* scores, float* out, size_t out_stride);
  // The same over those of the encoder's output.
  void (*attend_memory)(const float* query, size_t query_stride, int queries, const Half* keys,
                        const Values<Half>& values, const AttentionShape& shape, float* scores, float* out,
                        size_t out_stride);
  // Of one query over the KV cache. Each position has a pointer to its key of the first head; those of the others
  // follow, TILE * e apart, and then the values. For the heads from `first` to before `last`.
  void (*attend_cached)(const float* query, const Half* const* key_value, const AttentionShape& shape, int first,
                        int last, float* scores, float* out);
  float (*dot)(const float* a, const float* b, int n);
  void (*gelu)(float* x, int n, Curve curve);  // in place; n is padded
  float (*log_sum_exp)(const float* x, int n);
  float (*minimum)(const float* x, int n);
  int (*argmax)(const float* x, int n);
  int (*next_above)(const float* x, int from, int n, float threshold);  // n if there is none
};

const Kernels* plain_kernels();
const Kernels* avx2_kernels();  // null if not compiled, or not supported here
const Kernels* avx_vnni_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Kernels* neon_dot_kernels();
const Kernels* neon_i8mm_kernels();
const Kernels* wasm_kernels();

}  // namespace anydepth
