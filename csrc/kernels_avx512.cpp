// AVX-512 with VNNI: servers since 2019, AMD's desktops and laptops since 2022. Chosen at run time.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if (defined(__x86_64__) || defined(__amd64__)) && defined(__GNUC__)

#include <immintrin.h>

#include "cpu.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace {

struct V {
  static constexpr int W = 16;
  using F = __m512;
  static inline F load(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static inline F load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static inline void store(Half* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static inline F set(float x) { return _mm512_set1_ps(x); }
  static inline F zero() { return _mm512_setzero_ps(); }
  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static inline F max(F a, F b) { return _mm512_max_ps(b, a); }  // NaN: the first
  static inline F min(F a, F b) { return _mm512_min_ps(b, a); }
  static inline F abs(F x) { return _mm512_abs_ps(x); }
  static inline F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static inline float sum(F x) { return _mm512_reduce_add_ps(x); }
  static inline F sums(const F* x) {  // element i: of vector i
    const auto fours = [&](int i) {  // of four vectors, in each quarter
      const F a = add(_mm512_unpacklo_ps(x[i], x[i + 1]), _mm512_unpackhi_ps(x[i], x[i + 1]));
      const F b = add(_mm512_unpacklo_ps(x[i + 2], x[i + 3]), _mm512_unpackhi_ps(x[i + 2], x[i + 3]));
      return add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    };
    const auto halves = [](F a, F b) { return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD)); };
    return halves(halves(fours(0), fours(4)), halves(fours(8), fours(12)));
  }
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
#include "kernels_int4.inl"
#include "kernels_interleave.inl"

// VNNI multiplies unsigned by signed bytes: weights are made 128 larger, as unsigned bytes, when they are loaded, and 128
// times the sum of the activations is subtracted at the end.
inline __m512i load_unsigned(const int8_t* tile) {
  return _mm512_xor_si512(_mm512_loadu_si512(tile), _mm512_set1_epi8(static_cast<char>(0x80)));
}

inline void apply_epilogue(const PackedMatrix& w, const QuantizedRows& x, int row, int block, __m512i sums,
                           const GemmOutput& target) {
  const int output = block * TILE;
  const __m512 factor = _mm512_mul_ps(_mm512_loadu_ps(w.scales + output), _mm512_set1_ps(x.scales[row]));
  const __m512 offset = _mm512_fmadd_ps(_mm512_set1_ps(x.zero_points[row]), _mm512_loadu_ps(w.sums + output),
                                        _mm512_loadu_ps(w.bias + output));
  __m512 p = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), factor, offset);
  float* out = target.out + row * target.stride + output;
  if (target.epilogue == Epilogue::relu) p = _mm512_max_ps(p, _mm512_setzero_ps());
  if (target.epilogue == Epilogue::add) p = _mm512_fmadd_ps(_mm512_set1_ps(target.alpha), p, _mm512_loadu_ps(out));
  _mm512_storeu_ps(out, p);
}

inline __m512i without_offset(__m512i sums, const QuantizedRows& x, int row) {
  return _mm512_sub_epi32(sums, _mm512_set1_epi32(128 * x.sums[row]));
}

inline __m512i four_inputs(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

inline void prefetch(const int8_t* tile) { _mm_prefetch(reinterpret_cast<const char*>(tile), _MM_HINT_T0); }

// A few rows: bound by reading the weights. Inputs are split among several accumulators, which hides their latency. `a`
// is [quads, ROWS, QUAD].
template <int ROWS, int SPLIT>
inline void gemm_few_rows(const PackedMatrix& w, const QuantizedRows& x, const int8_t* a, int block,
                          const GemmOutput& target) {
  constexpr size_t AHEAD = 4096;
  const int8_t* tile = w.tiles + size_t(block) * w.quads * TILE * QUAD;
  __m512i sums[SPLIT][ROWS];
  ANYDEPTH_UNROLL
  for (int i = 0; i < SPLIT; ++i) {
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) sums[i][r] = _mm512_setzero_si512();
  }
  int quad = 0;
  for (; quad + SPLIT <= w.quads; quad += SPLIT, tile += SPLIT * TILE * QUAD, a += SPLIT * ROWS * QUAD) {
    ANYDEPTH_UNROLL
    for (int i = 0; i < SPLIT; ++i) {
      prefetch(tile + i * TILE * QUAD + AHEAD);
      const __m512i own = load_unsigned(tile + i * TILE * QUAD);
      ANYDEPTH_UNROLL
      for (int r = 0; r < ROWS; ++r)
        sums[i][r] = _mm512_dpbusd_epi32(sums[i][r], own, four_inputs(a + (i * ROWS + r) * QUAD));
    }
  }
  for (; quad < w.quads; ++quad, tile += TILE * QUAD, a += ROWS * QUAD) {
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r)
      sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], load_unsigned(tile), four_inputs(a + r * QUAD));
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int i = 1; i < SPLIT; ++i) sums[0][r] = _mm512_add_epi32(sums[0][r], sums[i][r]);
    apply_epilogue(w, x, r, block, without_offset(sums[0][r], x, r), target);
  }
}

// The products of codes from 0 to 15 and factors, of even and of odd bytes, less 8 times the factor.
inline void unpack_group_fast(const uint8_t* from, const int8_t* factors, int8_t* to) {
  constexpr int STEP = TILE * QUAD;
  const __m512i lower = _mm512_set1_epi8(0x0F), even = _mm512_set1_epi16(0x00FF);
  const __m512i repeat = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
  const __m512i factor = _mm512_shuffle_epi8(_mm512_cvtepi8_epi32(own), repeat);
  const __m512i of_even = _mm512_and_si512(factor, even), of_odd = _mm512_andnot_si512(even, factor);
  const __m512i eight = _mm512_and_si512(_mm512_slli_epi16(factor, 3), _mm512_set1_epi8(static_cast<char>(0xF8)));
  const auto store = [&](__m512i codes, int8_t* into) {
    const __m512i first = _mm512_and_si512(_mm512_maddubs_epi16(codes, of_even), even);
    const __m512i second = _mm512_slli_epi16(_mm512_maddubs_epi16(codes, of_odd), 8);
    _mm512_storeu_si512(into, _mm512_sub_epi8(_mm512_or_si512(first, second), eight));
  };
  ANYDEPTH_UNROLL
  for (int two = 0; two < GROUP_QUADS / 2; ++two, from += STEP, to += 2 * STEP) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + 4096, _MM_HINT_T0);
    const __m512i both = _mm512_loadu_si512(from);
    store(_mm512_and_si512(both, lower), to);
    store(_mm512_and_si512(_mm512_srli_epi16(both, 4), lower), to + STEP);
  }
}

// -8 times the sum of a group: int4 weights are 8 larger as unsigned bytes.
inline int32_t group_offset(const int8_t* a) {
  const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(8),
                                           _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)));
  __m128i all = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0x4E));
  return -_mm_cvtsi128_si32(_mm_add_epi32(all, _mm_shuffle_epi32(all, 0xB1)));
}

// A few rows of int4. `a` is [quads, ROWS, QUAD], and `offsets` [groups, ROWS]. In a single row the upper four bits stay
// where they are, 16 times their value, and so is the sum of their products.
template <int ROWS>
inline void gemm_int4_rows(const PackedMatrix& w, const QuantizedRows& x, const int8_t* a, const int32_t* offsets,
                           int block, const GemmOutput& target) {
  constexpr size_t STEP = TILE * QUAD, AHEAD = 4096;
  const int groups = w.quads / GROUP_QUADS;
  const uint8_t* nibbles = w.nibbles + size_t(block) * w.quads * STEP / 2;
  const int8_t* factors = w.factors + size_t(block) * groups * TILE;
  const __m512i lower = _mm512_set1_epi8(0x0F), upper = _mm512_set1_epi8(static_cast<char>(0xF0));
  __m512i sums[ROWS];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) sums[r] = _mm512_setzero_si512();
  for (int group = 0; group < groups; ++group, factors += TILE, offsets += ROWS) {
    __m512i own[ROWS], high = _mm512_setzero_si512();
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) own[r] = _mm512_set1_epi32(offsets[r]);
    ANYDEPTH_UNROLL
    for (int two = 0; two < GROUP_QUADS / 2; ++two, nibbles += STEP, a += 2 * ROWS * QUAD) {
      prefetch(reinterpret_cast<const int8_t*>(nibbles) + AHEAD);
      const __m512i both = _mm512_loadu_si512(nibbles), first = _mm512_and_si512(both, lower);
      const __m512i second = ROWS == 1 ? _mm512_and_si512(both, upper)
                                       : _mm512_and_si512(_mm512_srli_epi16(both, 4), lower);
      ANYDEPTH_UNROLL
      for (int r = 0; r < ROWS; ++r) {
        __m512i& last = ROWS == 1 ? high : own[r];
        own[r] = _mm512_dpbusd_epi32(own[r], first, four_inputs(a + r * QUAD));
        last = _mm512_dpbusd_epi32(last, second, four_inputs(a + (ROWS + r) * QUAD));
      }
    }
    if (ROWS == 1) own[0] = _mm512_add_epi32(own[0], _mm512_srai_epi32(high, 4));
    const __m512i factor = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(factors)));
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) sums[r] = _mm512_add_epi32(sums[r], _mm512_mullo_epi32(own[r], factor));
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) apply_epilogue(w, x, r, block, sums[r], target);
}

// Many rows: bound by computing. The next blocks are prefetched meanwhile.
template <int ROWS, int BLOCKS>
inline void gemm_rows(const PackedMatrix& w, const QuantizedRows& x, const int8_t* a, int row, int block,
                      const GemmOutput& target) {
  const size_t next = size_t(w.quads) * TILE * QUAD;
  const int8_t* tile = w.tiles + block * next;
  const int8_t* coming = tile + BLOCKS * next;
  __m512i sums[ROWS][BLOCKS];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS; ++b) sums[r][b] = _mm512_setzero_si512();
  }
  for (int quad = 0; quad < w.quads; ++quad, tile += TILE * QUAD, a += ROWS * QUAD, coming += BLOCKS * TILE * QUAD) {
    __m512i own[BLOCKS];
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS; ++b) {
      own[b] = load_unsigned(tile + b * next);
      prefetch(coming + b * TILE * QUAD);
    }
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const __m512i four = four_inputs(a + r * QUAD);
      ANYDEPTH_UNROLL
      for (int b = 0; b < BLOCKS; ++b) sums[r][b] = _mm512_dpbusd_epi32(sums[r][b], own[b], four);
    }
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int b = 0; b < BLOCKS; ++b)
      apply_epilogue(w, x, row + r, block + b, without_offset(sums[r][b], x, row + r), target);
  }
}

constexpr int MOST_ROWS = 12;  // 24 accumulators, two tiles and the inputs: nearly all of 32 registers
using GemmRows = void (*)(const PackedMatrix&, const QuantizedRows&, const int8_t*, int, int, const GemmOutput&);
template <int BLOCKS>
GemmRows gemm_for_rows(int count) {
  constexpr GemmRows all[MOST_ROWS] = {gemm_rows<1, BLOCKS>,  gemm_rows<2, BLOCKS>,  gemm_rows<3, BLOCKS>,
                                       gemm_rows<4, BLOCKS>,  gemm_rows<5, BLOCKS>,  gemm_rows<6, BLOCKS>,
                                       gemm_rows<7, BLOCKS>,  gemm_rows<8, BLOCKS>,  gemm_rows<9, BLOCKS>,
                                       gemm_rows<10, BLOCKS>, gemm_rows<11, BLOCKS>, gemm_rows<12, BLOCKS>};
  return all[count - 1];
}

// The same four inputs of all rows side by side: [quads, rows, QUAD].
const int8_t* interleave_rows(const QuantizedRows& x, int from, int rows, int quads) {
  int8_t* to = x.scratch + size_t(from) * quads * QUAD;
  interleave(x.values + size_t(from) * x.stride, x.stride, rows, quads, to);
  return to;
}

constexpr int MOST_INT4_ROWS = 8;  // more are faster with unpacked weights
using GemmInt4 = void (*)(const PackedMatrix&, const QuantizedRows&, const int8_t*, const int32_t*, int, const GemmOutput&);

void gemm_int4(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  constexpr GemmInt4 all[MOST_INT4_ROWS] = {gemm_int4_rows<1>, gemm_int4_rows<2>, gemm_int4_rows<3>, gemm_int4_rows<4>,
                                            gemm_int4_rows<5>, gemm_int4_rows<6>, gemm_int4_rows<7>, gemm_int4_rows<8>};
  const int groups = w.quads / GROUP_QUADS;
  const int8_t* a = rows == 1 ? x.values : interleave_rows(x, 0, rows, w.quads);
  int32_t* offsets = reinterpret_cast<int32_t*>(x.scratch + size_t(rows) * x.stride);
  for (int group = 0; group < groups; ++group)
    for (int r = 0; r < rows; ++r)
      offsets[group * rows + r] = group_offset(x.values + size_t(r) * x.stride + group * GROUP);
  for (int block = 0; block < w.blocks; ++block) all[rows - 1](w, x, a, offsets, block, target);
}

void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  if (rows <= MOST_INT4_ROWS && w.nibbles != nullptr) return gemm_int4(w, x, rows, target);
  if (rows <= 4) {
    const int8_t* a = rows == 1 ? x.values : interleave_rows(x, 0, rows, w.quads);
    for (int block = 0; block < w.blocks; ++block) {
      if (rows == 1) gemm_few_rows<1, 4>(w, x, a, block, target);
      if (rows == 2) gemm_few_rows<2, 4>(w, x, a, block, target);
      if (rows == 3) gemm_few_rows<3, 2>(w, x, a, block, target);
      if (rows == 4) gemm_few_rows<4, 2>(w, x, a, block, target);
    }
    return;
  }
  const int parts = (rows + MOST_ROWS - 1) / MOST_ROWS;  // as equal as can be
  const auto start = [&](int part) { return static_cast<int>(int64_t(rows) * part / parts); };
  for (int part = 0; part < parts; ++part) interleave_rows(x, start(part), start(part + 1) - start(part), w.quads);
  const auto two_blocks = [&](const PackedMatrix& own, int block, const GemmOutput& to) {
    for (int part = 0; part < parts; ++part) {
      const int from = start(part), count = start(part + 1) - from;
      const GemmRows run = block + 2 <= own.blocks ? gemm_for_rows<2>(count) : gemm_for_rows<1>(count);
      run(own, x, x.scratch + size_t(from) * w.quads * QUAD, from, block, to);
    }
  };
  for_int8_blocks<unpack_group_fast>(w, x, target, [&](const PackedMatrix& own, const GemmOutput& to) {
    for (int block = 0; block < own.blocks; block += 2) two_blocks(own, block, to);
  });
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
  static const Kernels kernels = {"avx512-vnni", 0.05f, quantize,    normalize, gemm,
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
  static const bool runs = cpu_features().avx512_vnni;
  return runs ? &kernels : nullptr;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace anydepth

#endif
