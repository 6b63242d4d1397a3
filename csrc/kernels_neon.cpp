// NEON: every 64-bit ARM processor, in phones and laptops.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__aarch64__) && defined(__GNUC__)

#include <arm_neon.h>

namespace anydepth {
namespace {

// Sixteen outputs by four inputs are four registers of weights. Pairs of products are added in 16 bits (two of at most
// 127 x 127 fit), and epilogue pairs of those in 32.
inline int32x4_t add_products(int32x4_t sums, int8x16_t w, int8x16_t a) {
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
  const int16x8_t high = vmull_s8(vget_high_s8(w), vget_high_s8(a));
  return vaddq_s32(sums, vpaddlq_s16(vpaddq_s16(low, high)));
}

#include "kernels_neon.inl"

}  // namespace

const Kernels* neon_kernels() {
  static const Kernels kernels = {"neon", 0.3f, quantize,    normalize, gemm,
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
  return &kernels;
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace anydepth

#endif
