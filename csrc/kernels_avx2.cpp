// AVX2 with FMA: x86 processors since 2013. Chosen at run time; nothing else in the library is compiled for it.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)

#include <immintrin.h>

#include "cpu.h"

// After all headers: what is in those is shared with code that must run anywhere.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace {

struct V {
  static constexpr int W = 8;
  using F = __m256;
  static inline F load(const float* p) { return _mm256_loadu_ps(p); }
  static inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static inline F set(float x) { return _mm256_set1_ps(x); }
  static inline F zero() { return _mm256_setzero_ps(); }
  static inline F add(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm256_div_ps(a, b); }
  static inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static inline F max(F a, F b) { return _mm256_max_ps(b, a); }  // NaN: the first
  static inline F min(F a, F b) { return _mm256_min_ps(b, a); }
  static inline F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static inline F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static inline float sum(F x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static inline F sums(const F* x) {  // element i: of vector i
    const F a = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    const F b = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
    return add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  static inline float maximum(F x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static inline F pow2(F n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static inline int above(F x, float threshold) {
    const int mask = _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(threshold), _CMP_GT_OQ));
    return mask ? __builtin_ctz(mask) : W;
  }
  static inline void store_int8(int8_t* q, F x) {
    const __m256i wide = _mm256_cvtps_epi32(x);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    const __m128i all = _mm_max_epi8(_mm_packs_epi16(half, half), _mm_set1_epi8(-127));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(q), all);
  }
};

#include "kernels_float.inl"

inline void apply_epilogue(const PackedMatrix& w, const QuantizedRows& x, int row, int block, int half, __m256i sums,
                           const GemmOutput& target) {
  const int output = block * TILE + half * 8;
  const __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(w.scales + output), _mm256_set1_ps(x.scales[row]));
  const __m256 offset = _mm256_fmadd_ps(_mm256_set1_ps(x.zero_points[row]), _mm256_loadu_ps(w.sums + output),
                                        _mm256_loadu_ps(w.bias + output));
  __m256 p = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), factor, offset);
  float* out = target.out + row * target.stride + output;
  if (target.epilogue == Epilogue::relu) p = _mm256_max_ps(p, _mm256_setzero_ps());
  if (target.epilogue == Epilogue::add) p = _mm256_fmadd_ps(_mm256_set1_ps(target.alpha), p, _mm256_loadu_ps(out));
  _mm256_storeu_ps(out, p);
}

// maddubs multiplies unsigned by signed bytes: |a| times w with the sign of a. Pairs of products, each at most
// 127 x 127, fit in 16 bits.
inline __m256i add_products(__m256i sums, __m256i w, __m256i a, __m256i magnitude) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(w, a));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <int ROWS>
inline void gemm_rows(const PackedMatrix& w, const QuantizedRows& x, int row, int block, const GemmOutput& target) {
  const int8_t* tiles = w.tiles + size_t(block) * w.quads * TILE * QUAD;
  __m256i sums[ROWS][2];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  const int8_t* a[ROWS];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) a[r] = x.values + size_t(row + r) * x.stride;
  for (int quad = 0; quad < w.quads; ++quad) {
    const __m256i* tile = reinterpret_cast<const __m256i*>(tiles + size_t(quad) * TILE * QUAD);
    const __m256i low = _mm256_loadu_si256(tile), high = _mm256_loadu_si256(tile + 1);
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a[r] + quad * QUAD, sizeof four);
      const __m256i all = _mm256_set1_epi32(four), magnitude = _mm256_abs_epi8(all);
      sums[r][0] = add_products(sums[r][0], low, all, magnitude);
      sums[r][1] = add_products(sums[r][1], high, all, magnitude);
    }
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int half = 0; half < 2; ++half) apply_epilogue(w, x, row + r, block, half, sums[r][half], target);
  }
}

void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for (int block = 0; block < w.blocks; ++block) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) gemm_rows<4>(w, x, row, block, target);
    if (rows - row == 3) gemm_rows<3>(w, x, row, block, target);
    if (rows - row == 2) gemm_rows<2>(w, x, row, block, target);
    if (rows - row == 1) gemm_rows<1>(w, x, row, block, target);
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

const Kernels* avx2_kernels() {
  static const Kernels kernels = {"avx2", 0.3f, quantize,    normalize, gemm,
                                  transpose_keys, attend, attend_cached, dot, gelu, log_sum_exp, minimum, argmax, next_above};
  static const bool runs = cpu_features().avx2;
  return runs ? &kernels : nullptr;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace anydepth

#endif
