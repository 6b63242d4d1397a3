// The NEON kernels, but for `add_products`, which stands before them: included inside an anonymous namespace.

struct V {
  static constexpr int W = 4;
  using F = float32x4_t;
  static inline F load(const float* p) { return vld1q_f32(p); }
  static inline void store(float* p, F x) { vst1q_f32(p, x); }
  static inline F load(const Half* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits))); }
  static inline void store(Half* p, F x) { vst1_u16(&p->bits, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static inline F set(float x) { return vdupq_n_f32(x); }
  static inline F zero() { return vdupq_n_f32(0.0f); }
  static inline F add(F a, F b) { return vaddq_f32(a, b); }
  static inline F sub(F a, F b) { return vsubq_f32(a, b); }
  static inline F mul(F a, F b) { return vmulq_f32(a, b); }
  static inline F div(F a, F b) { return vdivq_f32(a, b); }
  static inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static inline F max(F a, F b) { return vmaxnmq_f32(a, b); }  // NaN: the other
  static inline F min(F a, F b) { return vminnmq_f32(a, b); }
  static inline F abs(F x) { return vabsq_f32(x); }
  static inline F round(F x) { return vrndnq_f32(x); }
  static inline float sum(F x) { return vaddvq_f32(x); }
  static inline F sums(const F* x) {  // element i: of vector i
    return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3]));
  }
  static inline float maximum(F x) { return vmaxnmvq_f32(x); }
  static inline F pow2(F n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
  static inline int above(F x, float threshold) {
    const uint32x4_t over = vcgtq_f32(x, vdupq_n_f32(threshold));
    const uint64_t mask = vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(over)), 0);
    return mask ? __builtin_ctzll(mask) / 16 : W;
  }
  static inline void store_int8(int8_t* q, F x) {
    const int16x4_t half = vqmovn_s32(vcvtnq_s32_f32(x));
    const int8x8_t all = vmax_s8(vqmovn_s16(vcombine_s16(half, half)), vdup_n_s8(-127));
    __builtin_memcpy(q, &all, 4);
  }
};

#include "kernels_float.inl"
#include "kernels_int4.inl"

inline void apply_epilogue(const PackedMatrix& w, const QuantizedRows& x, int row, int output, int32x4_t sums,
                           const GemmOutput& target) {
  const float32x4_t factor = vmulq_n_f32(vld1q_f32(w.scales + output), x.scales[row]);
  const float32x4_t offset = vfmaq_n_f32(vld1q_f32(w.bias + output), vld1q_f32(w.sums + output), x.zero_points[row]);
  float32x4_t p = vfmaq_f32(offset, vcvtq_f32_s32(sums), factor);
  float* out = target.out + row * target.stride + output;
  if (target.epilogue == Epilogue::relu) p = vmaxq_f32(p, vdupq_n_f32(0.0f));
  if (target.epilogue == Epilogue::add) p = vfmaq_n_f32(vld1q_f32(out), p, target.alpha);
  vst1q_f32(out, p);
}

template <int ROWS>
inline void gemm_rows(const PackedMatrix& w, const QuantizedRows& x, int row, int block, const GemmOutput& target) {
  const int8_t* tiles = w.tiles + size_t(block) * w.quads * TILE * QUAD;
  int32x4_t sums[ROWS][4];
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int part = 0; part < 4; ++part) sums[r][part] = vdupq_n_s32(0);
  }
  for (int quad = 0; quad < w.quads; ++quad) {
    int8x16_t tile[4];
    ANYDEPTH_UNROLL
    for (int part = 0; part < 4; ++part) tile[part] = vld1q_s8(tiles + size_t(quad) * TILE * QUAD + part * 16);
    ANYDEPTH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      int32_t four;
      __builtin_memcpy(&four, x.values + size_t(row + r) * x.stride + quad * QUAD, sizeof four);
      const int8x16_t a = vreinterpretq_s8_s32(vdupq_n_s32(four));
      ANYDEPTH_UNROLL
      for (int part = 0; part < 4; ++part) sums[r][part] = add_products(sums[r][part], tile[part], a);
    }
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    ANYDEPTH_UNROLL
    for (int part = 0; part < 4; ++part) apply_epilogue(w, x, row + r, block * TILE + part * 4, sums[r][part], target);
  }
}

[[maybe_unused]] void gemm_int8(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for (int block = 0; block < w.blocks; ++block) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) gemm_rows<4>(w, x, row, block, target);
    if (rows - row == 3) gemm_rows<3>(w, x, row, block, target);
    if (rows - row == 2) gemm_rows<2>(w, x, row, block, target);
    if (rows - row == 1) gemm_rows<1>(w, x, row, block, target);
  }
}

[[maybe_unused]] void gemm(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for_int8_blocks<unpack_group>(w, x, target, [&](const PackedMatrix& own, const GemmOutput& to) { gemm_int8(own, x, rows, to); });
}
