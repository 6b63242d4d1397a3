// NEON with 8-bit matrix products: phones since 2021, Apple's laptops since 2022, Arm's servers. Chosen at run time.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__clang__)
#define ANYDEPTH_HAS_I8MM (__clang_major__ >= 14)
#elif defined(__GNUC__)
#define ANYDEPTH_HAS_I8MM (__GNUC__ >= 10)
#else
#define ANYDEPTH_HAS_I8MM 0
#endif

#if defined(__aarch64__) && ANYDEPTH_HAS_I8MM

#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

// After all headers: what is in those is shared with code that must run anywhere.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace {

inline int32x4_t add_products(int32x4_t sums, int8x16_t w, int8x16_t a) { return vdotq_s32(sums, w, a); }

#include "kernels_neon.inl"

// A matrix product is of two rows and two outputs, with eight inputs each: two quads.
template <int PAIRS>
inline void gemm_pairs(const PackedMatrix& w, const QuantizedRows& x, int row, int block, const GemmOutput& target) {
  constexpr size_t STEP = TILE * QUAD;
  const int8_t* tiles = w.tiles + size_t(block) * w.quads * STEP;
  int32x4_t sums[PAIRS][TILE / 2];
  ANYDEPTH_UNROLL
  for (int r = 0; r < PAIRS; ++r) {
    ANYDEPTH_UNROLL
    for (int o = 0; o < TILE / 2; ++o) sums[r][o] = vdupq_n_s32(0);
  }
  const auto add = [&](const int8_t* first, const int8_t* second, int at, size_t inputs) {
    int8x16_t outputs[TILE / 2];
    ANYDEPTH_UNROLL
    for (int part = 0; part < 4; ++part) {
      const int32x4_t a = vreinterpretq_s32_s8(vld1q_s8(first + part * 16));
      const int32x4_t b = vreinterpretq_s32_s8(vld1q_s8(second + part * 16));
      outputs[2 * part] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
      outputs[2 * part + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
    ANYDEPTH_UNROLL
    for (int r = 0; r < PAIRS; ++r) {
      const int8_t* from = x.values + size_t(row + 2 * r) * x.stride + at;
      int64_t both[2] = {0, 0};
      __builtin_memcpy(both, from, inputs);
      __builtin_memcpy(both + 1, from + x.stride, inputs);
      const int8x16_t rows = vreinterpretq_s8_s64(vcombine_s64(vcreate_s64(both[0]), vcreate_s64(both[1])));
      ANYDEPTH_UNROLL
      for (int o = 0; o < TILE / 2; ++o) sums[r][o] = vmmlaq_s32(sums[r][o], rows, outputs[o]);
    }
  };
  int quad = 0;
  for (; quad + 2 <= w.quads; quad += 2, tiles += 2 * STEP) add(tiles, tiles + STEP, quad * QUAD, 2 * QUAD);
  if (quad < w.quads) {
    static const int8_t nothing[STEP] = {};
    add(tiles, nothing, quad * QUAD, QUAD);
  }
  ANYDEPTH_UNROLL
  for (int r = 0; r < PAIRS; ++r) {
    ANYDEPTH_UNROLL
    for (int part = 0; part < 4; ++part) {
      const int64x2_t a = vreinterpretq_s64_s32(sums[r][2 * part]), b = vreinterpretq_s64_s32(sums[r][2 * part + 1]);
      const int output = block * TILE + part * 4;
      apply_epilogue(w, x, row + 2 * r, output, vreinterpretq_s32_s64(vzip1q_s64(a, b)), target);
      apply_epilogue(w, x, row + 2 * r + 1, output, vreinterpretq_s32_s64(vzip2q_s64(a, b)), target);
    }
  }
}

void gemm_int8_by_pairs(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for (int block = 0; block < w.blocks; ++block) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) gemm_pairs<2>(w, x, row, block, target);
    for (; row + 2 <= rows; row += 2) gemm_pairs<1>(w, x, row, block, target);
    if (row < rows) gemm_rows<1>(w, x, row, block, target);
  }
}

void gemm_by_pairs(const PackedMatrix& w, const QuantizedRows& x, int rows, const GemmOutput& target) {
  for_int8_blocks<unpack_group>(w, x, target,
                  [&](const PackedMatrix& own, const GemmOutput& to) { gemm_int8_by_pairs(own, x, rows, to); });
}

}  // namespace
}  // namespace anydepth

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace anydepth {

const Kernels* neon_i8mm_kernels() {
  static const Kernels kernels = {"neon-i8mm", 0.1f, quantize, normalize, gemm_by_pairs, transpose_keys, halve,
                                  attend, attend_memory, attend_cached, dot, gelu, log_sum_exp, minimum, argmax, next_above};
#if defined(__APPLE__)
  static const bool runs = [] {
    int found = 0;
    size_t size = sizeof found;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &found, &size, nullptr, 0) == 0 && found != 0;
  }();
  return runs ? &kernels : nullptr;
#elif defined(__linux__)
  constexpr unsigned long HAS_I8MM = 1ul << 13;  // HWCAP2_I8MM
  static const bool runs = (getauxval(AT_HWCAP2) & HAS_I8MM) != 0;
  return runs ? &kernels : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* neon_i8mm_kernels() { return nullptr; }
}  // namespace anydepth

#endif
