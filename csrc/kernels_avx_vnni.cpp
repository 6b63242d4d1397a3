// AVX-VNNI: Intel's processors without AVX-512 since 2021, AMD's since 2024. Chosen at run time. The same instructions have
// another encoding in AVX-512; these are what runs here by this name where only that is there, as on servers that test it.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__clang__)
#define ANYDEPTH_HAS_AVX_VNNI (__clang_major__ >= 14)
#elif defined(__GNUC__)
#define ANYDEPTH_HAS_AVX_VNNI (__GNUC__ >= 11)
#else
#define ANYDEPTH_HAS_AVX_VNNI 0
#endif

#if (defined(__x86_64__) || defined(__amd64__)) && ANYDEPTH_HAS_AVX_VNNI

#include <immintrin.h>

#include "cpu.h"

// dpbusd multiplies unsigned by signed bytes: weights are made 128 larger when they are loaded, and 128 times the sum of
// the activations is subtracted at the end.
#define ANYDEPTH_DOT(DPBUSD)                                                                             \
  struct Dot {                                                                                           \
    using Input = int8_t;                                                                                \
    static constexpr int VECTORS = 1, UNITS = 2, SPLIT = 4;                                              \
    static constexpr bool WIDENS = false;                                                                \
    static inline void load(const int8_t* tile, __m256i* to) {                                           \
      const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile));                    \
      to[0] = _mm256_xor_si256(own, _mm256_set1_epi8(static_cast<char>(0x80)));                          \
    }                                                                                                    \
    static inline void interleave_inputs(const int8_t* values, size_t stride, int rows, int quads, Input* to) { \
      interleave(values, stride, rows, quads, to);                                                       \
    }                                                                                                    \
    static inline __m256i broadcast(const Input* four) {                                                 \
      int32_t all;                                                                                       \
      __builtin_memcpy(&all, four, sizeof all);                                                          \
      return _mm256_set1_epi32(all);                                                                     \
    }                                                                                                    \
    static inline __m256i add(__m256i sums, __m256i w, __m256i a) { return DPBUSD(sums, w, a); }         \
    static inline __m256i finish(const __m256i* sums, int32_t inputs) {                                  \
      return _mm256_sub_epi32(sums[0], _mm256_set1_epi32(128 * inputs));                                 \
    }                                                                                                    \
    static inline int32_t offset(const int8_t* a) {                                                      \
      const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));                    \
      const __m256i sums = DPBUSD(_mm256_setzero_si256(), _mm256_set1_epi8(8), values);                  \
      __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));      \
      all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4E));                                            \
      return -_mm_cvtsi128_si32(_mm_add_epi32(all, _mm_shuffle_epi32(all, 0xB1)));                       \
    }                                                                                                    \
    static inline void group(const uint8_t* nibbles, const int8_t* a, int32_t offset, const int8_t* factors,\
                             __m256i (&sums)[2]) {                                                       \
      const __m256i lower = _mm256_set1_epi8(0x0F), upper = _mm256_set1_epi8(static_cast<char>(0xF0));   \
      __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}; /* 16 times what they are */   \
      sums[0] = sums[1] = _mm256_set1_epi32(offset);                                                     \
      ANYDEPTH_UNROLL                                                                                    \
      for (int two = 0; two < GROUP_QUADS / 2; ++two, nibbles += TILE * QUAD, a += 2 * QUAD) {           \
        const __m256i first = broadcast(a), second = broadcast(a + QUAD);                                \
        ANYDEPTH_UNROLL                                                                                  \
        for (int half = 0; half < 2; ++half) {                                                           \
          const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles) + half);     \
          sums[half] = DPBUSD(sums[half], _mm256_and_si256(both, lower), first);                         \
          high[half] = DPBUSD(high[half], _mm256_and_si256(both, upper), second);                        \
        }                                                                                                \
      }                                                                                                  \
      ANYDEPTH_UNROLL                                                                                    \
      for (int half = 0; half < 2; ++half) {                                                             \
        const __m128i own = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors + half * 8));       \
        const __m256i all = _mm256_add_epi32(sums[half], _mm256_srai_epi32(high[half], 4));              \
        sums[half] = _mm256_mullo_epi32(all, _mm256_cvtepi8_epi32(own));                                 \
      }                                                                                                  \
    }                                                                                                    \
  };

// After all headers: what is in those is shared with code that must run anywhere.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace vex {
namespace {

#include "kernels_interleave.inl"
ANYDEPTH_DOT(_mm256_dpbusd_avx_epi32)
#include "kernels_avx2.inl"

}  // namespace
}  // namespace vex
}  // namespace anydepth

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni")
#pragma GCC optimize("no-tree-pre")
#endif

namespace anydepth {
namespace evex {
namespace {

#include "kernels_interleave.inl"
ANYDEPTH_DOT(_mm256_dpbusd_epi32)
#include "kernels_avx2.inl"

}  // namespace
}  // namespace evex
}  // namespace anydepth

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace anydepth {

const Kernels* avx_vnni_kernels() {
  static const Kernels with_vex = {"avx-vnni", 0.1f, vex::quantize, vex::normalize, vex::gemm, vex::transpose_keys,
                                   vex::halve, vex::attend, vex::attend_memory, vex::attend_cached, vex::dot, vex::gelu, vex::log_sum_exp, vex::minimum,
                                   vex::argmax, vex::next_above};
  static const Kernels with_evex = {"avx-vnni", 0.1f, evex::quantize, evex::normalize, evex::gemm, evex::transpose_keys,
                                    evex::halve, evex::attend, evex::attend_memory, evex::attend_cached, evex::dot, evex::gelu, evex::log_sum_exp,
                                    evex::minimum, evex::argmax, evex::next_above};
  static const CpuFeatures cpu = cpu_features();
  return cpu.avx_vnni ? &with_vex : cpu.avx512_vnni ? &with_evex : nullptr;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* avx_vnni_kernels() { return nullptr; }
}  // namespace anydepth

#endif
