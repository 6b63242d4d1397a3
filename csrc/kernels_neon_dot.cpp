// NEON with dot products: phones since 2018, Apple's and Arm's laptops and servers. Chosen at run time.
#include "kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

#if defined(__aarch64__) && defined(__GNUC__)

#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

// After all headers: what is in those is shared with code that must run anywhere.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#pragma GCC optimize("no-tree-pre")  // with it, accumulators are spilled in the innermost loop
#endif

namespace anydepth {
namespace {

inline int32x4_t add_products(int32x4_t sums, int8x16_t w, int8x16_t a) { return vdotq_s32(sums, w, a); }

#include "kernels_neon.inl"

}  // namespace
}  // namespace anydepth

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace anydepth {

const Kernels* neon_dot_kernels() {
  static const Kernels kernels = {"neon-dot", 0.15f, quantize,    normalize, gemm,
                                  transpose_keys, halve, attend, attend_memory, attend_cached, dot, gelu,
                                  log_sum_exp, minimum, argmax, next_above};
#if defined(__APPLE__)
  return &kernels;
#elif defined(__linux__)
  constexpr unsigned long HAS_DOT_PRODUCT = 1ul << 20;  // HWCAP_ASIMDDP
  static const bool runs = (getauxval(AT_HWCAP) & HAS_DOT_PRODUCT) != 0;
  return runs ? &kernels : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace anydepth

#else

namespace anydepth {
const Kernels* neon_dot_kernels() { return nullptr; }
}  // namespace anydepth

#endif
