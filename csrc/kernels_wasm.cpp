// SIMD128: WebAssembly in browsers since 2021 to 2023.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__wasm_simd128__)

#include <wasm_simd128.h>

namespace anydepth {
namespace {

struct V {
  static constexpr int W = 4;
  using F = v128_t;
  static inline F load(const float* p) { return wasm_v128_load(p); }
  static inline void store(float* p, F x) { wasm_v128_store(p, x); }
  static inline F load(const Half* p) {  // the exponent is 112 too small, which a product mends, of subnormal numbers too
    const v128_t wide = wasm_u32x4_load16x4(p);
    const v128_t size = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_const_splat(0x7FFF)), 13);
    const v128_t sign = wasm_i32x4_shl(wasm_v128_and(wide, wasm_i32x4_const_splat(0x8000)), 16);
    return wasm_v128_or(wasm_f32x4_mul(size, wasm_f32x4_const_splat(5.192296858534828e33f)), sign);  // 2^112
  }
  static inline void store(Half* p, F x) {
    float each[W];
    store(each, x);
    for (int i = 0; i < W; ++i) p[i] = to_half(each[i]);
  }
  static inline F set(float x) { return wasm_f32x4_splat(x); }
  static inline F zero() { return wasm_f32x4_const_splat(0.0f); }
  static inline F add(F a, F b) { return wasm_f32x4_add(a, b); }
  static inline F sub(F a, F b) { return wasm_f32x4_sub(a, b); }
  static inline F mul(F a, F b) { return wasm_f32x4_mul(a, b); }
  static inline F div(F a, F b) { return wasm_f32x4_div(a, b); }
  static inline F fma(F a, F b, F c) { return wasm_f32x4_add(wasm_f32x4_mul(a, b), c); }
  static inline F max(F a, F b) { return wasm_f32x4_pmax(a, b); }  // NaN: the first
  static inline F min(F a, F b) { return wasm_f32x4_pmin(a, b); }
  static inline F abs(F x) { return wasm_f32x4_abs(x); }
  static inline F round(F x) { return wasm_f32x4_nearest(x); }
  static inline float sum(F x) {
    const F half = add(x, wasm_i32x4_shuffle(x, x, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(half, 0) + wasm_f32x4_extract_lane(half, 1);
  }
  static inline F sums(const F* x) {  // element i: of vector i
    const F a = add(wasm_i32x4_shuffle(x[0], x[1], 0, 4, 1, 5), wasm_i32x4_shuffle(x[0], x[1], 2, 6, 3, 7));
    const F b = add(wasm_i32x4_shuffle(x[2], x[3], 0, 4, 1, 5), wasm_i32x4_shuffle(x[2], x[3], 2, 6, 3, 7));
    return add(wasm_i32x4_shuffle(a, b, 0, 1, 4, 5), wasm_i32x4_shuffle(a, b, 2, 3, 6, 7));
  }
  static inline float maximum(F x) {
    const F half = max(x, wasm_i32x4_shuffle(x, x, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(max(half, wasm_i32x4_shuffle(half, half, 1, 1, 1, 1)), 0);
  }
  static inline F pow2(F n) {
    return wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_const_splat(127)), 23);
  }
  static inline int above(F x, float threshold) {
    const unsigned mask = wasm_i32x4_bitmask(wasm_f32x4_gt(x, wasm_f32x4_splat(threshold)));
    return mask ? __builtin_ctz(mask) : W;
  }
  static inline void store_int8(int8_t* q, F x) {  // x is rounded
    const v128_t wide = wasm_i32x4_trunc_sat_f32x4(x);
    const v128_t half = wasm_i16x8_narrow_i32x4(wide, wide);
    const v128_t all = wasm_i8x16_max(wasm_i8x16_narrow_i16x8(half, half), wasm_i8x16_const_splat(-127));
    wasm_v128_store32_lane(q, all, 0);
  }
};

#include "kernels_float.inl"
#include "kernels_int4.inl"

inline void apply_epilogue(const PackedMatrix& w, const QuantizedRows& x, int row, int output, v128_t sums,
                           const GemmOutput& target) {
  const v128_t factor = V::mul(V::load(w.scales + output), V::set(x.scales[row]));
  const v128_t offset = V::fma(V::load(w.sums + output), V::set(x.zero_points[row]), V::load(w.bias + output));
  v128_t p = V::fma(wasm_f32x4_convert_i32x4(sums), factor, offset);
  float* out = target.out + row * target.stride + output;
  if (target.epilogue == Epilogue::relu) p = V::max(V::zero(), p);
  if (target.epilogue == Epilogue::add) p = V::fma(V::set(target.alpha), p, V::load(out));
  V::store(out, p);
}

// A register of weights has four inputs for each of four outputs. Widened to 16 bits, products are added by pairs in
// 32 bits: what is left are two sums for each output, which are added at the end.
template <int ROWS>
inline void gemm_rows(const PackedMatrix& w, const QuantizedRows& x, int row, int block, const GemmOutput& target) {
  for (int half = 0; half < 2; ++half) {
    const int8_t* tiles = w.tiles + size_t(block) * w.quads * TILE * QUAD + half * 32;
    v128_t sums[ROWS][4];
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      ANYDEPTH_UNROLL
      for (int part = 0; part < 4; ++part) sums[r][part] = wasm_i32x4_const_splat(0);
    }
    const int8_t* a[ROWS];
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) a[r] = x.values + size_t(row + r) * x.stride;
    for (int quad = 0; quad < w.quads; ++quad) {
      v128_t tile[4];
      ANYDEPTH_UNROLL
      for (int part = 0; part < 4; ++part)
        tile[part] = wasm_i16x8_load8x8(tiles + size_t(quad) * TILE * QUAD + part * 8);
      ANYDEPTH_UNROLL
      for (int r = 0; r < ROWS; ++r) {
        const v128_t four = wasm_i16x8_extend_low_i8x16(wasm_v128_load32_splat(a[r] + quad * QUAD));
        ANYDEPTH_UNROLL
        for (int part = 0; part < 4; ++part)
          sums[r][part] = wasm_i32x4_add(sums[r][part], wasm_i32x4_dot_i16x8(tile[part], four));
      }
    }
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      ANYDEPTH_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const v128_t low = sums[r][2 * pair], high = sums[r][2 * pair + 1];
        const v128_t even = wasm_i32x4_shuffle(low, high, 0, 2, 4, 6), odd = wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
        apply_epilogue(w, x, row + r, block * TILE + half * 8 + pair * 4, wasm_i32x4_add(even, odd), target);
      }
    }
  }
}

void gemm_int8(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for (int block = 0; block < w.blocks; ++block) {
    int row = 0;
    for (; row + 2 <= rows; row += 2) gemm_rows<2>(w, x, row, block, target);
    if (row < rows) gemm_rows<1>(w, x, row, block, target);
  }
}

void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for_int8_blocks<unpack_group>(w, x, target, [&](const PackedMatrix& own, const GemmOutput& to) { gemm_int8(own, x, rows, to); });
}

}  // namespace

const Kernels* wasm_kernels() {
  static const Kernels kernels = {"wasm", 0.5f, quantize,    normalize, gemm,
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
  return &kernels;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* wasm_kernels() { return nullptr; }
}  // namespace anydepth

#endif
