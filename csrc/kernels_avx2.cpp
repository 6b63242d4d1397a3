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
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace {

// Without dot products: inputs and weights are widened to 16 bits, and pairs of products added in 32.
struct Dot {
  using Input = int16_t;
  static constexpr int VECTORS = 2, UNITS = 1, SPLIT = 1;
  static constexpr bool WIDENS = true;
  static inline void load(const int8_t* tile, __m256i* to) {
    to[0] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tile)));
    to[1] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + 16)));
  }
  static inline void interleave_inputs(const int8_t* values, size_t stride, int rows, int quads, Input* to) {
    for (int r = 0; r < rows; ++r, values += stride)
      for (int quad = 0; quad < quads; ++quad) {
        int32_t four;
        __builtin_memcpy(&four, values + quad * QUAD, QUAD);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + (size_t(quad) * rows + r) * QUAD),
                         _mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
      }
  }
  static inline __m256i broadcast(const Input* four) {
    int64_t all;
    __builtin_memcpy(&all, four, sizeof all);
    return _mm256_set1_epi64x(all);
  }
  static inline __m256i add(__m256i sums, __m256i w, __m256i a) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(w, a));
  }
  static inline __m256i finish(const __m256i* sums, int32_t) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[0], sums[1]), 0xD8);
  }
  // Eight quads of int4, plus 8: pairs of products, at most 2 x 15 x 127, are added in 16 bits. What wraps around on the
  // way comes back, as in the end a half has at most 16 x 8 x 127. An offset has two of 16 bits.
  static inline int32_t offset(const int8_t* a) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(8), values);
    __m128i all = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    all = _mm_add_epi16(all, _mm_shuffle_epi32(all, 0x4E));
    all = _mm_add_epi16(all, _mm_shuffle_epi32(all, 0xB1));
    return _mm_cvtsi128_si32(_mm_sub_epi16(_mm_setzero_si128(), all));
  }
  static inline void group(const uint8_t* nibbles, const int8_t* a, int32_t offset, const int8_t* factors,
                           __m256i (&sums)[2]) {
    const __m256i lower = _mm256_set1_epi8(0x0F);
    sums[0] = sums[1] = _mm256_set1_epi32(offset);
    ANYDEPTH_UNROLL
    for (int two = 0; two < GROUP_QUADS / 2; ++two, nibbles += TILE * QUAD, a += 2 * QUAD) {
      int32_t fours[2];
      __builtin_memcpy(fours, a, sizeof fours);
      const __m256i first = _mm256_set1_epi32(fours[0]), second = _mm256_set1_epi32(fours[1]);
      ANYDEPTH_UNROLL
      for (int half = 0; half < 2; ++half) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles) + half);
        const __m256i next = _mm256_and_si256(_mm256_srli_epi16(both, 4), lower);
        sums[half] = _mm256_add_epi16(sums[half], _mm256_maddubs_epi16(_mm256_and_si256(both, lower), first));
        sums[half] = _mm256_add_epi16(sums[half], _mm256_maddubs_epi16(next, second));
      }
    }
    const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
    sums[0] = _mm256_madd_epi16(sums[0], _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(own, own)));
    sums[1] = _mm256_madd_epi16(sums[1], _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(own, own)));
  }
};

#include "kernels_avx2.inl"

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
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
  static const bool runs = cpu_features().avx2;
  return runs ? &kernels : nullptr;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace anydepth

#endif
