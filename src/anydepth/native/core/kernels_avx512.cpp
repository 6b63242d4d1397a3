// AVX-512 with VNNI: servers since 2019, AMD's desktops and laptops since 2022. Chosen at run time.
#include "kernels.h"

#include <cmath>
#include <limits>

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

namespace anydepth {
namespace {

struct V {
  static constexpr int W = 16;
  using F = __m512;
  static inline F load(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static inline F set(float x) { return _mm512_set1_ps(x); }
  static inline F zero() { return _mm512_setzero_ps(); }
  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static inline F max(F a, F b) { return _mm512_max_ps(b, a); }  // not a number: the first
  static inline F abs(F x) { return _mm512_abs_ps(x); }
  static inline F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static inline float sum(F x) { return _mm512_reduce_add_ps(x); }
  static inline float maximum(F x) { return _mm512_reduce_max_ps(x); }
  static inline F pow2(F n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static inline int above(F x, float threshold) {
    const int mask = _mm512_cmp_ps_mask(x, _mm512_set1_ps(threshold), _CMP_GT_OQ);
    return mask ? __builtin_ctz(mask) : W;
  }
  static inline void store_int8(int8_t* q, F x) {
    const __m128i all = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm_max_epi8(all, _mm_set1_epi8(-127)));
  }
};

#include "kernels_float.inl"

// Matrices are kept 128 larger, as unsigned bytes, which the one instruction there is wants beside signed activations;
// 128 times the sum of the activations comes off at the end.
inline void finish(const Matrix& w, const Quantized& x, int row, int block, __m512i sums, const Target& target) {
  const int output = block * TILE;
  sums = _mm512_sub_epi32(sums, _mm512_set1_epi32(128 * x.sums[row]));
  const __m512 factor = _mm512_mul_ps(_mm512_loadu_ps(w.scales + output), _mm512_set1_ps(x.scales[row]));
  __m512 p = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), factor, _mm512_loadu_ps(w.bias + output));
  float* out = target.out + row * target.stride + output;
  if (target.then == Then::relu) p = _mm512_max_ps(p, _mm512_setzero_ps());
  if (target.then == Then::add) p = _mm512_fmadd_ps(_mm512_set1_ps(target.alpha), p, _mm512_loadu_ps(out));
  _mm512_storeu_ps(out, p);
}

inline __m512i four_inputs(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// One row: the matrix streams by once. Four sums at a time hide the latency of each.
inline void one_row(const Matrix& w, const Quantized& x, int row, int block, const Target& target) {
  const int8_t* tiles = w.tiles + size_t(block) * w.quads * TILE * QUAD;
  const int8_t* a = x.values + size_t(row) * x.stride;
  __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  int quad = 0;
  for (; quad + 4 <= w.quads; quad += 4) {
    _mm_prefetch(reinterpret_cast<const char*>(tiles + size_t(quad) * 64 + 4096), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(tiles + size_t(quad) * 64 + 4096 + 64), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(tiles + size_t(quad) * 64 + 4096 + 128), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(tiles + size_t(quad) * 64 + 4096 + 192), _MM_HINT_T0);
    for (int i = 0; i < 4; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_loadu_si512(tiles + size_t(quad + i) * 64), four_inputs(a + (quad + i) * QUAD));
  }
  for (; quad < w.quads; ++quad)
    sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_loadu_si512(tiles + size_t(quad) * 64), four_inputs(a + quad * QUAD));
  const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  finish(w, x, row, block, all, target);
}

template <int ROWS, int BLOCKS>
inline void some_rows(const Matrix& w, const Quantized& x, int row, int block, const Target& target) {
  const size_t next = size_t(w.quads) * TILE * QUAD;
  const int8_t* tiles = w.tiles + block * next;
  const int8_t* a = x.values + size_t(row) * x.stride;
  __m512i sums[ROWS][BLOCKS];
  for (int r = 0; r < ROWS; ++r)
    for (int b = 0; b < BLOCKS; ++b) sums[r][b] = _mm512_setzero_si512();
  for (int quad = 0; quad < w.quads; ++quad) {
    __m512i tile[BLOCKS];
    for (int b = 0; b < BLOCKS; ++b) tile[b] = _mm512_loadu_si512(tiles + b * next + size_t(quad) * 64);
    for (int r = 0; r < ROWS; ++r) {
      const __m512i four = four_inputs(a + size_t(r) * x.stride + quad * QUAD);
      for (int b = 0; b < BLOCKS; ++b) sums[r][b] = _mm512_dpbusd_epi32(sums[r][b], tile[b], four);
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int b = 0; b < BLOCKS; ++b) finish(w, x, row + r, block + b, sums[r][b], target);
}

template <int BLOCKS>
void block_of_rows(const Matrix& w, const Quantized& x, int row, int count, int block, const Target& target) {
  switch (count) {
    case 12: return some_rows<12, BLOCKS>(w, x, row, block, target);
    case 11: return some_rows<11, BLOCKS>(w, x, row, block, target);
    case 10: return some_rows<10, BLOCKS>(w, x, row, block, target);
    case 9: return some_rows<9, BLOCKS>(w, x, row, block, target);
    case 8: return some_rows<8, BLOCKS>(w, x, row, block, target);
    case 7: return some_rows<7, BLOCKS>(w, x, row, block, target);
    case 6: return some_rows<6, BLOCKS>(w, x, row, block, target);
    case 5: return some_rows<5, BLOCKS>(w, x, row, block, target);
    case 4: return some_rows<4, BLOCKS>(w, x, row, block, target);
    case 3: return some_rows<3, BLOCKS>(w, x, row, block, target);
    case 2: return some_rows<2, BLOCKS>(w, x, row, block, target);
    default: return some_rows<1, BLOCKS>(w, x, row, block, target);
  }
}

void multiply(const Matrix& w, const Quantized& x, int rows, const Target& target) {
  if (rows == 1) {
    for (int block = 0; block < w.blocks; ++block) one_row(w, x, 0, block, target);
    return;
  }
  const int parts = (rows + 11) / 12;  // as equal as can be: none of them is a lone row
  for (int block = 0; block < w.blocks; block += 2)
    for (int part = 0; part < parts; ++part) {
      const int from = int(int64_t(rows) * part / parts), to = int(int64_t(rows) * (part + 1) / parts);
      if (block + 2 <= w.blocks)
        block_of_rows<2>(w, x, from, to - from, block, target);
      else
        block_of_rows<1>(w, x, from, to - from, block, target);
    }
}

}  // namespace
}  // namespace anydepth

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace anydepth {

const Kernels* avx512_kernels() {
  static const Kernels kernels = {"avx512-vnni", true, quantize, normalize, multiply, attend, gelu, log_sum_exp, argmax, next_above};
  static const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vnni");
  return runs ? &kernels : nullptr;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace anydepth

#endif
