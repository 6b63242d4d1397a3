// The AVX2 kernels, but for `Dot`, which stands before them: included inside an anonymous namespace.
//
// Dot multiplies eight outputs by four inputs: `Input` is what it takes, `VECTORS` are the registers that eight outputs
// need, `UNITS` the eights of outputs of a tile that fills them, and `SPLIT` the accumulators of each in a single row.
// `WIDENS` if it has no instruction for products of bytes. `offset` and `group` are for int4.

struct V {
  static constexpr int W = 8;
  using F = __m256;
  static inline F load(const float* p) { return _mm256_loadu_ps(p); }
  static inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static inline F load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static inline void store(Half* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
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
#include "kernels_int4.inl"

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

inline void prefetch(const int8_t* tile) { _mm_prefetch(reinterpret_cast<const char*>(tile), _MM_HINT_T0); }

// ROWS rows by UNITS * 8 outputs, from the eight `unit` of a block on. `a` is [quads, ROWS, QUAD]. Inputs are split among
// SPLIT accumulators where that hides their latency.
template <int ROWS, int UNITS, int SPLIT>
inline void gemm_tile(const PackedMatrix& w, const QuantizedRows& x, const Dot::Input* a, int row, int block, int unit,
                      const GemmOutput& target) {
  constexpr int N = Dot::VECTORS;
  constexpr size_t STEP = TILE * QUAD;
  const size_t ahead = ROWS <= 3 ? 4096 : size_t(w.quads) * STEP;  // many rows: the next block, meanwhile
  const int8_t* tile = w.tiles + size_t(block) * w.quads * STEP + unit * 8 * QUAD;
  __m256i sums[SPLIT][ROWS][UNITS * N];
  ANYDEPTH_UNROLL
  for (int s = 0; s < SPLIT; ++s) {
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      ANYDEPTH_UNROLL
      for (int u = 0; u < UNITS * N; ++u) sums[s][r][u] = _mm256_setzero_si256();
    }
  }
  const auto add = [&](__m256i (&to)[ROWS][UNITS * N], const int8_t* from, const Dot::Input* inputs) {
    __m256i own[UNITS * N];
    ANYDEPTH_UNROLL
    for (int u = 0; u < UNITS; ++u) Dot::load(from + u * 8 * QUAD, own + u * N);
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const __m256i four = Dot::broadcast(inputs + r * QUAD);
      ANYDEPTH_UNROLL
      for (int u = 0; u < UNITS * N; ++u) to[r][u] = Dot::add(to[r][u], own[u], four);
    }
  };
  int quad = 0;
  for (; quad + SPLIT <= w.quads; quad += SPLIT) {
    ANYDEPTH_UNROLL
    for (int s = 0; s < SPLIT; ++s, tile += STEP, a += ROWS * QUAD) {
      prefetch(tile + ahead);
      add(sums[s], tile, a);
    }
  }
  for (; quad < w.quads; ++quad, tile += STEP, a += ROWS * QUAD) add(sums[0], tile, a);
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int u = 0; u < UNITS; ++u) {
      ANYDEPTH_UNROLL
      for (int s = 1; s < SPLIT; ++s) {
        ANYDEPTH_UNROLL
        for (int v = 0; v < N; ++v)
          sums[0][r][u * N + v] = _mm256_add_epi32(sums[0][r][u * N + v], sums[s][r][u * N + v]);
      }
      const __m256i found = Dot::finish(&sums[0][r][u * N], x.sums[row + r]);
      apply_epilogue(w, x, row + r, block, unit + u, found, target);
    }
  }
}

// Both eights of a block.
template <int ROWS>
inline void gemm_block(const PackedMatrix& w, const QuantizedRows& x, const Dot::Input* a, int row, int block,
                       const GemmOutput& target) {
  if constexpr (ROWS <= 3) {
    constexpr int SPLIT = ROWS == 1 ? Dot::SPLIT : 1;
    gemm_tile<ROWS, 2, SPLIT>(w, x, a, row, block, 0, target);
  } else {
    for (int unit = 0; unit < 2; unit += Dot::UNITS) gemm_tile<ROWS, Dot::UNITS, 1>(w, x, a, row, block, unit, target);
  }
}

constexpr int MOST_ROWS = 6;     // twelve accumulators, the weights and the inputs: nearly all of 16 registers
constexpr int CACHED_ROWS = 96;  // rows whose inputs stay in the second cache

// The same four inputs of `rows` rows side by side: [quads, rows, QUAD].
inline const Dot::Input* interleave_rows(const QuantizedRows& x, int from, int rows, int quads) {
  Dot::Input* to = reinterpret_cast<Dot::Input*>(x.scratch) + size_t(from) * quads * QUAD;
  Dot::interleave_inputs(x.values + size_t(from) * x.stride, x.stride, rows, quads, to);
  return to;
}

// One row without dot products, where widening the weights would take longer than reading them. maddubs multiplies
// unsigned by signed bytes: |a| times w with the sign of a. Pairs of products, each at most 127 x 127, fit in 16 bits.
inline void gemm_signed_row(const PackedMatrix& w, const QuantizedRows& x, int block, const GemmOutput& target) {
  const int8_t* tile = w.tiles + size_t(block) * w.quads * TILE * QUAD;
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int quad = 0; quad < w.quads; ++quad, tile += TILE * QUAD) {
    int32_t four;
    __builtin_memcpy(&four, x.values + quad * QUAD, sizeof four);
    const __m256i all = _mm256_set1_epi32(four), magnitude = _mm256_abs_epi8(all);
    prefetch(tile + 4096);
    ANYDEPTH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile) + half);
      const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(own, all));
      sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
  }
  for (int half = 0; half < 2; ++half) apply_epilogue(w, x, 0, block, half, sums[half], target);
}

// The products of codes from 0 to 15 and factors, of even and of odd bytes, less 8 times the factor.
inline void unpack_group_fast(const uint8_t* from, const int8_t* factors, int8_t* to) {
  constexpr int STEP = TILE * QUAD;
  const __m256i lower = _mm256_set1_epi8(0x0F), even = _mm256_set1_epi16(0x00FF);
  const __m256i repeat = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  for (int half = 0; half < 2; ++half) {
    const __m128i own = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors + half * 8));
    const __m256i factor = _mm256_shuffle_epi8(_mm256_cvtepi8_epi32(own), repeat);
    const __m256i of_even = _mm256_and_si256(factor, even), of_odd = _mm256_andnot_si256(even, factor);
    const __m256i eight = _mm256_and_si256(_mm256_slli_epi16(factor, 3), _mm256_set1_epi8(static_cast<char>(0xF8)));
    const auto store = [&](__m256i codes, int8_t* into) {
      const __m256i first = _mm256_and_si256(_mm256_maddubs_epi16(codes, of_even), even);
      const __m256i second = _mm256_slli_epi16(_mm256_maddubs_epi16(codes, of_odd), 8);
      const __m256i all = _mm256_sub_epi8(_mm256_or_si256(first, second), eight);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(into), all);
    };
    for (int two = 0; two < GROUP_QUADS / 2; ++two) {
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + two * STEP + half * 32));
      store(_mm256_and_si256(both, lower), to + 2 * two * STEP + half * 32);
      store(_mm256_and_si256(_mm256_srli_epi16(both, 4), lower), to + (2 * two + 1) * STEP + half * 32);
    }
  }
}

// A row of int4.
inline void gemm_int4_row(const PackedMatrix& w, const QuantizedRows& x, int row, const int32_t* offsets, int block,
                          const GemmOutput& target) {
  constexpr size_t STEP = TILE * QUAD;
  const int groups = w.quads / GROUP_QUADS;
  const uint8_t* nibbles = w.nibbles + size_t(block) * w.quads * STEP / 2;
  const int8_t* factors = w.factors + size_t(block) * groups * TILE;
  const int8_t* a = x.values + size_t(row) * x.stride;
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int group = 0; group < groups; ++group, factors += TILE, nibbles += GROUP_QUADS / 2 * STEP, a += GROUP) {
    ANYDEPTH_UNROLL
    for (int two = 0; two < GROUP_QUADS / 2; ++two) prefetch(reinterpret_cast<const int8_t*>(nibbles) + two * STEP + 4096);
    __m256i found[2];
    Dot::group(nibbles, a, offsets[group], factors, found);
    for (int half = 0; half < 2; ++half) sums[half] = _mm256_add_epi32(sums[half], found[half]);
  }
  for (int half = 0; half < 2; ++half) apply_epilogue(w, x, row, block, half, sums[half], target);
}

inline void gemm_int4(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  const int groups = w.quads / GROUP_QUADS;
  int32_t* offsets = reinterpret_cast<int32_t*>(x.scratch);
  for (int row = 0; row < rows; ++row)
    for (int group = 0; group < groups; ++group)
      offsets[row * groups + group] = Dot::offset(x.values + size_t(row) * x.stride + group * GROUP);
  for (int block = 0; block < w.blocks; ++block)
    for (int row = 0; row < rows; ++row) gemm_int4_row(w, x, row, offsets + row * groups, block, target);
}

void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  if (rows <= 4 && w.nibbles != nullptr) return gemm_int4(w, x, rows, target);
  if (Dot::WIDENS && rows == 1) {
    for (int block = 0; block < w.blocks; ++block) gemm_signed_row(w, x, block, target);
    return;
  }
  const auto in_cache = [&](int first, int count) {
    const int parts = (count + MOST_ROWS - 1) / MOST_ROWS;  // as equal as can be
    const auto start = [&](int part) { return first + count * part / parts; };
    for (int part = 0; part < parts; ++part) interleave_rows(x, start(part), start(part + 1) - start(part), w.quads);
    const auto one_block = [&](const PackedMatrix& own, int block, const GemmOutput& to) {
      for (int part = 0; part < parts; ++part) {
        const int row = start(part);
        const Dot::Input* a = reinterpret_cast<const Dot::Input*>(x.scratch) + size_t(row) * w.quads * QUAD;
        switch (start(part + 1) - row) {
          case 1: gemm_block<1>(own, x, a, row, block, to); break;
          case 2: gemm_block<2>(own, x, a, row, block, to); break;
          case 3: gemm_block<3>(own, x, a, row, block, to); break;
          case 4: gemm_block<4>(own, x, a, row, block, to); break;
          case 5: gemm_block<5>(own, x, a, row, block, to); break;
          default: gemm_block<6>(own, x, a, row, block, to);
        }
      }
    };
    for_int8_blocks<unpack_group_fast>(w, x, target, [&](const PackedMatrix& own, const GemmOutput& to) {
      for (int block = 0; block < own.blocks; ++block) one_block(own, block, to);
    });
  };
  for (int first = 0; first < rows; first += CACHED_ROWS)
    in_cache(first, rows - first < CACHED_ROWS ? rows - first : CACHED_ROWS);
}
