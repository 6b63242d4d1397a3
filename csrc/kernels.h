// The arithmetic that everything else is made of. A set of kernels is chosen once, when a model is loaded.
//
// Rows of floats are padded with zeros to a multiple of TILE, so that no kernel needs to look where a row ends;
// only norms and attention know the real width. Integer sums are exact, and what a row gives does not depend on how
// many rows are computed with it: a pass over several rows is bit-identical to passes over each.
#pragma once

#include <cstddef>
#include <cstdint>

// Before loops over sums that are to stay in registers.
#if defined(__clang__)
#define ANYDEPTH_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define ANYDEPTH_UNROLL _Pragma("GCC unroll 16")
#else
#define ANYDEPTH_UNROLL
#endif

namespace anydepth {

constexpr int TILE = 16;  // outputs that lie together in a matrix
constexpr int QUAD = 4;   // inputs that lie together for each of them

constexpr int padded(int n, int to = TILE) { return (n + to - 1) / to * to; }

// Half precision; what would be infinite or no number is the largest number.
inline float from_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * (1.0f / 16777216.0f);
    return sign ? -value : value;
  }
  const uint32_t bits = exponent == 31 ? sign | 0x477FE000u : sign | (exponent + 112) << 23 | fraction << 13;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// int8, symmetric, a scale for each output. In memory: [blocks][quads][TILE][QUAD].
struct Matrix {
  int outputs = 0, inputs = 0, blocks = 0, quads = 0;
  const int8_t* tiles = nullptr;
  const float* scales = nullptr;  // [blocks * TILE]
  const float* sums = nullptr;    // the same: what an output gives for inputs that are all 1
  const float* bias = nullptr;    // the same

  size_t bytes() const { return size_t(blocks) * quads * TILE * QUAD; }
};

// Rows of activations: a value is scale * integer + middle, with the two of its row, so that the integers span what is
// there, be it all positive. `sums` are of the integers of a row.
struct Quantized {
  const int8_t* values;
  int stride;  // a multiple of QUAD
  const float* scales;
  const float* middles;
  const int32_t* sums;
  int8_t* scratch;  // as large as the values, for kernels that want them in another order
};

enum class Then { store, relu, add };  // what happens with a product: out = p, max(p, 0), or out += alpha * p

struct Target {
  float* out;
  size_t stride;
  Then then = Then::store;
  float alpha = 1.0f;
};

struct Kernels {
  const char* name;
  float row_cost;  // of one more row beside a few, as a share of one: next to nothing where reading weights takes the time
  bool flips;  // whether the sign bits of matrices are flipped: as unsigned numbers they are then 128 larger

  void (*quantize)(const float* x, int n, int8_t* q, float* scale, float* middle, int32_t* sum);
  void (*normalize)(const float* x, int n, const float* weight, const float* bias, float epsilon, float* out);
  void (*multiply)(const Matrix& w, const Quantized& x, int rows, const Target& target);
  // What queries [queries, heads * e] get from keys and values, of which each position has a row: keys, then values.
  void (*attend)(const float* query, size_t query_stride, int queries, const float* const* key_value, int positions,
                 int heads, int e, float* scores, float* out, size_t out_stride);
  float (*dot_with_half)(const float* a, const uint16_t* b, int n);  // b is in half precision
  void (*gelu)(float* x, int n, bool by_tanh);  // in place; n is padded
  float (*log_sum_exp)(const float* x, int n);
  int (*argmax)(const float* x, int n);
  int (*next_above)(const float* x, int from, int n, float threshold);  // n if there is none
};

const Kernels* plain_kernels();
const Kernels* avx2_kernels();    // null where they were not compiled, or do not run
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Kernels* neon_dot_kernels();

}  // namespace anydepth
